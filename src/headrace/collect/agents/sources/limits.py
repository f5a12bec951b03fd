"""What others may make a source hold for them: so many bytes, for so long."""

from __future__ import annotations

import io
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

IN_FLIGHT = 256 * 1024 * 1024
"""Bytes of one source that are received and not yet in its channels."""
MESSAGE_S = 60.0
"""From a message's first byte to its last. A timeout of each read alone would let a byte now and then hold a thread."""


class Budget:
    """Safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._taken = 0

    def take(self, size: int) -> bool:
        """Whether there is room for so many more."""
        with self._lock:
            if self._taken + size > self.most:
                return False
            self._taken += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._taken -= size


class Patience:
    """Of reads: `idle_s` until something comes, then `message_s` for all of it; then `TimeoutError`."""

    def __init__(self, connection: socket.socket, idle_s: float, message_s: float) -> None:
        self._connection, self._idle_s, self._message_s = connection, idle_s, message_s
        self._ends: float | None = None

    def begin(self) -> None:
        """A message is over: the next may take its time to come."""
        self._ends = None

    def wait(self) -> None:
        """Before each read."""
        if self._ends is None:
            self._connection.settimeout(self._idle_s)
            return
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the message took too long")
        self._connection.settimeout(left)

    def came(self) -> None:
        """After each read."""
        if self._ends is None:
            self._ends = time.monotonic() + self._message_s


class PatientReads(io.RawIOBase):
    """A connection's bytes, as a file."""

    def __init__(self, connection: socket.socket, patience: Patience) -> None:
        self._connection, self._patience = connection, patience

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._patience.wait()
        count = self._connection.recv_into(buffer)
        self._patience.came()
        return count
