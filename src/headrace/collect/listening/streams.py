"""TCP and TLS: a connection is read no further while the pool is full, so whoever sends has to wait."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable

from headrace.collect.listening.pool import Pool
from headrace.collect.listening.settings import Address, Admission
from headrace.collect.status import Counters

MOST_CONNECTIONS = 10_000
IDLE_S = 60.0
"""When there are so many, one that has said nothing for so long makes room for the next."""
KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""After a minute of silence the kernel asks whether the other end is there; after two, it is not."""


class OutOfStep(Exception):
    """Where the next message begins is not known any more: the connection ends."""


class Framer(ABC):
    """Tells the messages of one connection apart."""

    @abstractmethod
    def feed(self, data: bytes, pool: Pool, address: str) -> bytes | None:
        """Put into the pool what is whole, keep the rest; what to answer, if anything. `OutOfStep` ends it."""

    @abstractmethod
    def end(self, pool: Pool, address: str) -> None:
        """The connection is over: what is left is a message, or nothing."""


class Connection(asyncio.Protocol):
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._framer = streams.framer(self)
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._heard = 0.0
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        self._transport, self.address = transport, str(peer[0]) if peer else ""
        self._heard = asyncio.get_running_loop().time()
        if not self._streams.welcome(self):
            self._transport = None
            transport.abort()
            return
        keep_alive(transport.get_extra_info("socket"))

    @property
    def heard(self) -> float:
        """When it said something last. One that is not read cannot have."""
        return math.inf if self._paused else self._heard

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        pool, self._heard = self._streams.pool, asyncio.get_running_loop().time()
        try:
            answer = self._framer.feed(data, pool, self.address)
        except OutOfStep as error:
            self._streams.counters.failed(f"{self.address}: {error}")
            self._transport.close()
            self._transport = None
            return
        if answer:
            self.answer(answer)
        if pool.full:
            self._transport.pause_reading()
            self._paused = True
            pool.when_room(self._resume)

    def answer(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _resume(self) -> None:
        self._paused, self._heard = False, asyncio.get_running_loop().time()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._framer.end(self._streams.pool, self.address)
        self._transport = None
        self._streams.goodbye(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Streams:
    """One listening socket and its connections."""

    def __init__(
        self,
        pool: Pool,
        counters: Counters,
        admits: Admission,
        framer: Callable[[Connection], Framer],
        most: int = MOST_CONNECTIONS,
        idle_s: float = IDLE_S,
    ) -> None:
        self.pool, self.counters, self.framer = pool, counters, framer
        self._most, self._idle_s = most, idle_s
        self._admits = admits
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def open(self, address: Address, context: ssl.SSLContext | None = None) -> Address:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), address.host, address.port, ssl=context, reuse_address=True
        )
        return Address(address.transport, address.host, self._server.sockets[0].getsockname()[1])

    def welcome(self, connection: Connection) -> bool:
        if not self._admits(connection.address) or not self._has_room():
            self.counters.failed(f"a connection from `{connection.address}` was refused")
            return False
        self._connections.add(connection)
        self.counters.connections += 1
        return True

    def _has_room(self) -> bool:
        if len(self._connections) < self._most:
            return True
        idle = min(self._connections, key=lambda one: one.heard)
        if asyncio.get_running_loop().time() - idle.heard < self._idle_s:
            return False
        self.counters.failed(f"{idle.address}: the connection was closed, as there are {self._most} and it is idle")
        idle.close()
        self.goodbye(idle)
        return True

    def goodbye(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self.counters.connections -= 1

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        # What has arrived is read before the connections end.
        await asyncio.sleep(0.05)
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)


def keep_alive(of: socket.socket | None) -> None:
    """Whoever vanished without a word is noticed."""
    if of is None or of.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # Not every system has them all, and the other end may be gone already.
    with contextlib.suppress(OSError):
        of.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE:
            if hasattr(socket, name):
                of.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
