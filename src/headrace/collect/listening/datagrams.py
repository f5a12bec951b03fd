"""UDP: nobody can be told to wait, so what is lost is counted, here and in the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from headrace.collect.listening.pool import Pool
from headrace.collect.listening.settings import Address, Admission
from headrace.collect.status import Counters

RECEIVE_BYTES = 16 * 1024 * 1024
LARGEST = 65_535
_AT_ONCE = 512
"""Datagrams between two looks at everything else."""


class Datagrams:
    """One socket; what arrives goes to the pool."""

    def __init__(self, address: Address, pool: Pool, counters: Counters, admits: Admission) -> None:
        self._pool, self._counters, self._admits = pool, counters, admits
        self._socket = bind(address)
        self._dropped = kernel_drops(self._socket)
        self.address = Address(address.transport, address.host, self._socket.getsockname()[1])
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        receive: Callable[[int], tuple[bytes, tuple[str, int]]] = self._socket.recvfrom
        lost = 0
        with contextlib.suppress(BlockingIOError, InterruptedError):
            for _ in range(_AT_ONCE):
                datagram, sender = receive(LARGEST)
                if self._pool.full or not self._admits(sender[0]):
                    lost += 1
                else:
                    self._pool.add(sender[0], datagram)
        if lost:
            self._counters.lost(lost)

    def count_drops(self) -> int:
        """Count what the kernel has dropped since the last time; how many that were."""
        dropped = kernel_drops(self._socket)
        lost, self._dropped = dropped - self._dropped, dropped
        if lost > 0:
            self._counters.lost(lost)
        return max(lost, 0)

    def close(self) -> None:
        """What the kernel has already is read first."""
        self._loop.remove_reader(self._socket)
        before = -1
        while not self._pool.full and self._pool.bytes != before:
            before = self._pool.bytes
            self._read()
        self.count_drops()
        self._socket.close()


def bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_DGRAM)
    try:
        try:
            # Beyond the system's limit, where we may.
            found.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), RECEIVE_BYTES)
        except OSError:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        found.setblocking(False)
        found.bind((address.host, address.port))
    except BaseException:
        found.close()
        raise
    return found


def kernel_drops(of: socket.socket) -> int:
    """How many datagrams the kernel dropped because nobody read them in time: the last column of /proc/net/udp."""
    inode = str(os.fstat(of.fileno()).st_ino)
    table = "udp6" if of.family == socket.AF_INET6 else "udp"
    try:
        lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    except OSError:
        return 0
    return next((int(parts[-1]) for line in lines if (parts := line.split())[9] == inode), 0)
