"""The owner's socket, owner's side. A connection has a thread that reads requests and one that answers them in order,
so a writer may send on without waiting and still shares its groups with everyone else's."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import pyarrow as pa

from headrace.errors import HeadraceError, UsageError
from headrace.log.local import wire
from headrace.log.local.operations import Answer, Operations

if TYPE_CHECKING:
    from headrace.log.local.log import LocalLog

logger = logging.getLogger(__name__)

_LONGEST_PATH = 100
"""The kernel takes 107 bytes."""
_OUTSTANDING = 1000
_CLOSE_S = 5.0


class OwnerServer:
    def __init__(self, log: LocalLog, started_ms: int) -> None:
        self._log, self._started_ms = log, started_ms
        self.path, self._private = _socket_path(log.folder)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.fchmod(self._socket.fileno(), 0o600)
        self._socket.bind(str(self.path))
        self._socket.listen(128)
        self._connections: set[_Connection] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="log-accept", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                if self._closed:
                    return
                logger.exception("cannot take a connection to the log")
                continue
            connection = _Connection(accepted, Operations(self._log, self._started_ms), self._done)
            with self._lock:
                self._connections.add(connection)
            connection.start()

    def _done(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)

    def close(self) -> None:
        """Take no more requests, answer those that were taken."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.finish()
        deadline = time.monotonic() + _CLOSE_S
        for connection in connections:
            connection.join(max(0.0, deadline - time.monotonic()))
            connection.hang_up()
        self.path.unlink(missing_ok=True)
        if self._private is not None:
            with contextlib.suppress(OSError):
                self._private.rmdir()


def _socket_path(folder: Path) -> tuple[Path, Path | None]:
    """Where to listen: in the log's folder, or in a private one if that path is too long. We hold the lock, so a socket
    that is there is stale."""
    path = folder.resolve() / "owner.sock"
    private = None
    if len(os.fsencode(path)) > _LONGEST_PATH:
        private = Path(tempfile.mkdtemp(prefix="headrace-"))
        path = private / "owner.sock"
    path.unlink(missing_ok=True)
    return path, private


class _Connection:
    def __init__(self, accepted: socket.socket, operations: Operations, done: Callable[[_Connection], None]) -> None:
        self._socket, self._operations, self._done = accepted, operations, done
        self._answers: queue.Queue[Answer | None] = queue.Queue(_OUTSTANDING)
        self._reader = threading.Thread(target=self._read, name="log-connection", daemon=True)
        self._writer = threading.Thread(target=self._write, name="log-answers", daemon=True)

    def start(self) -> None:
        self._reader.start()
        self._writer.start()

    def _read(self) -> None:
        file = cast("IO[bytes]", self._socket.makefile("rb", buffering=1024 * 1024))
        try:
            while (request := wire.read_line(file)) is not None:
                self._answers.put(self._operations.run(request, file))
        except HeadraceError as error:
            # Where the next request begins is not known any more.
            self._answers.put(wire.failure(error))
        except (OSError, pa.ArrowException, ValueError) as error:
            self._answers.put(wire.failure(UsageError("a broken request", detail=str(error))))
        except Exception as error:
            logger.exception("a request to the log failed")
            self._answers.put(wire.failure(HeadraceError("the owner failed", detail=str(error))))
        finally:
            self._answers.put(None)

    def _write(self) -> None:
        try:
            while (item := self._answers.get()) is not None:
                self._socket.sendall(item if isinstance(item, bytes) else item.result())
        except OSError:
            # Nobody listens: stop reading, drop the answers that are left.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            while self._answers.get() is not None:
                pass
        finally:
            self._reader.join()
            self._socket.close()
            self._done(self)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def hang_up(self) -> None:
        """On a client that does not read its answers."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def join(self, timeout: float) -> None:
        self._writer.join(timeout)
