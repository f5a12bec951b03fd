"""Open connections: how many there may be, and the end of those that say nothing.

The HTTP server waits for a first byte without any deadline, and stops accepting at its limit. So a thread looks at the
connections of this process: the kernel tells for each how many bytes it has received. Requests that have begun have
deadlines of their own (headers, bodies, slow readers).

There may be thousands of connections, nearly all of them known, and every system call of this thread takes the
interpreter from the event loop. So one call, `poll`, tells which descriptors are open. Only new ones, and those that
have not begun a request, are looked at one by one. A known descriptor may have been closed and taken by another
connection since the last look, so a part of them is compared each time, all within `COMPARE_LOOKS` looks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import select
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.config import ServerSettings
from headrace.server.sever import reset

LOOK_S = 0.5
COMPARE_LOOKS = 10
SPARE_DESCRIPTORS = 512
"""How many numbers above the highest open descriptor are asked for. The kernel gives out the lowest free number."""
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
class _Descriptor:
    """An open file; `inode` tells whether the number has become another one's. Not all are connections of ours."""

    inode: int
    connection: bool
    since: float
    begun: bool = False


class OpenDescriptors:
    """Tells which descriptors of this process are open, with one system call for thousands of them."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._count = 0

    def look(self) -> set[int]:
        while True:
            found = self._look()
            # More than may be open cannot be asked for.
            most, highest = raise_file_limit(), max(found, default=0)
            if self._count >= min(most, highest + SPARE_DESCRIPTORS):
                return found
            self._extend(min(most, highest + 2 * SPARE_DESCRIPTORS))

    def _look(self) -> set[int]:
        # Asked for no event at all, it answers for those that are closed, and for ends and errors of others.
        return set(range(self._count)).difference(
            number for number, events in self._poll.poll(0) if events & select.POLLNVAL
        )

    def _extend(self, count: int) -> None:
        for number in range(self._count, count):
            self._poll.register(number, 0)
        self._count = count


class Connections:
    """The connections that this process has accepted on a port. `start` and `close` are called once."""

    def __init__(self, port: int, settings: ServerSettings) -> None:
        self._port, self._seconds = port, settings.first_byte_seconds
        self.most = most_connections(settings)
        self.closed_silent = 0
        """Connections closed because they said nothing."""
        self._descriptors = OpenDescriptors()
        self._known: dict[int, _Descriptor] = {}
        self._open = 0
        self._looks = 0
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
        return self._open

    def _look_on(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.look(time.monotonic())
            except Exception:
                # Nobody would begin it again.
                logger.exception("connections could not be looked at")

    def look(self, now: float) -> None:
        """Notice new connections and those that are gone, and close the ones that are silent for too long."""
        seen = self._descriptors.look()
        for number in self._known.keys() - seen:
            del self._known[number]
        self._looks += 1
        turn = self._looks % COMPARE_LOOKS
        for number in seen:
            if number not in self._known or number % COMPARE_LOOKS == turn:
                with contextlib.suppress(OSError):  # closed meanwhile
                    self._meet(number, now)
        ours = [(number, one) for number, one in self._known.items() if one.connection]
        self._open = len(ours)
        crowded = self._open > self.most * 3 // 4
        deadline = min(HASTY_S, self._seconds) if crowded else self._seconds
        late = [(number, one) for number, one in ours if not one.begun and self._is_late(number, one, now - deadline)]
        closed = sum(self._close_silent(number, one) for number, one in late)
        if closed:
            self.closed_silent += closed
            logger.warning("closed %d connections that said nothing for %g s", closed, deadline)

    def _meet(self, number: int, now: float) -> None:
        status = os.fstat(number)
        known = self._known.get(number)
        if known is not None and known.inode == status.st_ino:
            return
        connection = stat.S_ISSOCK(status.st_mode) and self._is_ours(number)
        self._known[number] = _Descriptor(status.st_ino, connection, now)

    def _is_ours(self, number: int) -> bool:
        with socket.socket(fileno=os.dup(number)) as found:
            ours = found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == self._port
            return ours and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)

    def _is_late(self, number: int, one: _Descriptor, before: float) -> bool:
        """Return whether the connection is older than that moment and has not begun a request."""
        if one.since > before:
            return False
        with contextlib.suppress(OSError), _same_socket(number, one.inode) as found:
            one.begun = _received(found) >= BEGUN_BYTES
            return not one.begun
        self._known.pop(number, None)  # it has become another one's, and is met anew
        return False

    def _close_silent(self, number: int, one: _Descriptor) -> bool:
        with contextlib.suppress(OSError), _same_socket(number, one.inode) as found:
            reset(found)
            return True
        return False


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
