"""Open connections: how many there may be, and the end of those that say nothing.

The HTTP server waits for a first byte without any deadline, and stops accepting at its limit. So a thread looks at the
connections of this process: the kernel tells for each how many bytes it has received. Requests that have begun have
deadlines of their own (headers, bodies, slow readers).
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.config import ServerSettings
from headrace.server.sever import reset

LOOK_S = 0.5
FILES_RESERVED = 2000
"""Open files that are kept for the log, views and everything else."""
HASTY_S = 1.0
"""The deadline of a first byte while three quarters of the connections are taken."""
BEGUN_BYTES = 24
"""What the HTTP server reads before it knows the protocol: HTTP/2's preface is as long. No request is shorter but one
without any header."""
_BYTES_RECEIVED = struct.Struct("@128xQ")
"""The place of `tcpi_bytes_received` in Linux's `struct tcp_info`."""

logger = logging.getLogger("headrace.connections")


def raise_file_limit() -> int:
    """Let this process open as many files as the system allows it to; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return 1_000_000 if soft == resource.RLIM_INFINITY else soft


def most_connections(settings: ServerSettings) -> int:
    """Return how many connections may be open: the setting, or what the limit of open files allows."""
    files = raise_file_limit()
    allowed = max(64, files - FILES_RESERVED, files // 2)
    return min(settings.max_connections or allowed, allowed)


def most_subscribers(settings: ServerSettings) -> int:
    return settings.max_subscribers or most_connections(settings) * 3 // 4


@dataclass(slots=True)
class _Connection:
    descriptor: int
    since: float
    begun: bool = False


class Connections:
    """The connections that this process has accepted on a port. `start` and `close` are called once."""

    def __init__(self, port: int, settings: ServerSettings) -> None:
        self._port, self._seconds = port, settings.first_byte_seconds
        self.most = most_connections(settings)
        self.closed_silent = 0
        """Connections closed because they said nothing."""
        self._known: dict[int, _Connection] = {}
        self._others: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="headrace-connections", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def open(self) -> int:
        """How many there were when last looked at."""
        return len(self._known)

    def _look_on(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.look(time.monotonic())
            except Exception:
                # Nobody would begin it again.
                logger.exception("connections could not be looked at")

    def look(self, now: float) -> None:
        """Notice new connections and those that are gone, and close the ones that are silent for too long."""
        seen: set[int] = set()
        for descriptor in _descriptors():
            with contextlib.suppress(OSError):  # closed meanwhile
                status = os.fstat(descriptor)
                if not stat.S_ISSOCK(status.st_mode):
                    continue
                seen.add(status.st_ino)
                if status.st_ino not in self._known and status.st_ino not in self._others:
                    self._meet(descriptor, status.st_ino, now)
        self._others &= seen
        for inode in self._known.keys() - seen:
            self._known.pop(inode, None)
        crowded = len(self._known) > self.most * 3 // 4
        deadline = min(HASTY_S, self._seconds) if crowded else self._seconds
        silent = [(inode, one) for inode, one in self._known.items() if not one.begun]
        late = [(inode, one) for inode, one in silent if self._is_late(inode, one, now - deadline)]
        closed = sum(self._close_silent(inode, one) for inode, one in late)
        if closed:
            self.closed_silent += closed
            logger.warning("closed %d connections that said nothing for %g s", closed, deadline)

    def _meet(self, descriptor: int, inode: int, now: float) -> None:
        with socket.socket(fileno=os.dup(descriptor)) as found:
            ours = found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == self._port
            if ours and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                self._known[inode] = _Connection(descriptor, now)
            else:
                self._others.add(inode)

    def _is_late(self, inode: int, one: _Connection, before: float) -> bool:
        """Return whether the connection is older than that moment and has not begun a request."""
        if one.since > before:
            return False
        with contextlib.suppress(OSError), _same_socket(one.descriptor, inode) as found:
            one.begun = _received(found) >= BEGUN_BYTES
            return not one.begun
        return False

    def _close_silent(self, inode: int, one: _Connection) -> bool:
        with contextlib.suppress(OSError), _same_socket(one.descriptor, inode) as found:
            reset(found)
            return True
        return False


def _descriptors() -> Iterable[int]:
    return map(int, os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def _same_socket(descriptor: int, inode: int) -> Iterator[socket.socket]:
    """The socket of a descriptor. `OSError` if the descriptor has become another one's."""
    with socket.socket(fileno=os.dup(descriptor)) as found:
        if os.fstat(found.fileno()).st_ino != inode:
            raise OSError("another socket")
        yield found


def _received(found: socket.socket) -> int:
    """Return how many bytes have come. A kernel that does not tell counts as many: nobody is closed by mistake."""
    info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return _BYTES_RECEIVED.unpack_from(info)[0] if len(info) >= _BYTES_RECEIVED.size else BEGUN_BYTES
