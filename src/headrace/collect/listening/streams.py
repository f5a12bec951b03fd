"""TCP and TLS: a connection is read no further while the pool is full, so whoever sends has to wait."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable

from headrace.collect.listening.pool import Pool
from headrace.collect.listening.settings import Address, Admission
from headrace.collect.status import Counters

MOST_CONNECTIONS = 10_000


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
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        self._transport, self.address = transport, str(peer[0]) if peer else ""
        if not self._streams.welcome(self):
            self._transport = None
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        pool = self._streams.pool
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
            pool.when_room(self._resume)

    def answer(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _resume(self) -> None:
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
        self, pool: Pool, counters: Counters, admits: Admission, framer: Callable[[Connection], Framer]
    ) -> None:
        self.pool, self.counters, self.framer = pool, counters, framer
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
        if len(self._connections) >= MOST_CONNECTIONS or not self._admits(connection.address):
            self.counters.failed(f"a connection from `{connection.address}` was refused")
            return False
        self._connections.add(connection)
        self.counters.connections += 1
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
