"""What arrives on sockets of our own: bounded in memory, and nobody who vanished keeps others out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.clock import SystemClock
from headrace.collect.listening.pool import Pool
from headrace.collect.listening.settings import Address, Admission
from headrace.collect.listening.streams import Connection, Streams
from headrace.collect.status import Counters
from headrace.collect.syslog.framing import SyslogFramer


def test_empty_messages_fill_a_pool_too() -> None:
    async def fill() -> int:
        pool, count = Pool(1 << 20), 0
        while not pool.full and count < 200_000:
            pool.add(f"10.0.0.{count % 2}", b"")
            count += 1
        assert pool.full
        while pool.take_rest():
            pass
        assert pool.bytes == 0
        return count

    assert asyncio.run(fill()) < 20_000


class Clients:
    """Real connections to one listening socket."""

    def __init__(self, streams: Streams, counters: Counters, port: int, seen: list[Connection]) -> None:
        self.streams, self.counters, self.seen, self._port = streams, counters, seen, port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        before = len(self.seen)
        found = await asyncio.open_connection("127.0.0.1", self._port)
        while len(self.seen) == before:
            await asyncio.sleep(0)
        return found


@asynccontextmanager
async def listening(most: int, idle_s: float, pool: Pool | None = None) -> AsyncIterator[Clients]:
    seen: list[Connection] = []

    def framer(connection: Connection) -> SyslogFramer:
        seen.append(connection)
        return SyslogFramer(100)

    counters = Counters("devices", SystemClock())
    streams = Streams(pool or Pool(1 << 20), counters, Admission([]), framer, most, idle_s)
    address = await streams.open(Address("tcp", "127.0.0.1", 0))
    try:
        yield Clients(streams, counters, address.port, seen)
    finally:
        await streams.close()


def test_a_connection_is_asked_whether_it_is_there() -> None:
    async def look() -> list[int]:
        async with listening(10, 60.0) as clients:
            _, writer = await clients.connect()
            transport = clients.seen[0]._transport
            assert transport is not None
            ours = transport.get_extra_info("socket")
            writer.close()
            return [
                ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            ]

    assert asyncio.run(look()) == [1, 60]


def test_when_there_are_too_many_the_longest_idle_makes_room() -> None:
    async def story() -> None:
        async with listening(2, 0.0) as clients:
            first, first_writer = await clients.connect()
            second, second_writer = await clients.connect()
            first_writer.write(b"<1>a\n")
            await first_writer.drain()
            while not clients.streams.pool.bytes:
                await asyncio.sleep(0)
            _, third = await clients.connect()
            # The second has said nothing since it came: it is the one that ends.
            with contextlib.suppress(ConnectionResetError):
                assert await second.read() == b""
            assert clients.counters.status().connections == 2
            assert "idle" in str(clients.counters.status().last_error)
            assert not first.at_eof()
            for writer in (first_writer, second_writer, third):
                writer.close()

    asyncio.run(story())


def test_when_none_is_idle_or_only_waits_for_us_the_next_is_refused() -> None:
    async def story(idle_s: float, pool: Pool) -> str | None:
        async with listening(1, idle_s, pool) as clients:
            _, writer = await clients.connect()
            writer.write(b"<1>a\n")
            await writer.drain()
            while not pool.bytes:
                await asyncio.sleep(0)
            other, refused = await clients.connect()
            with contextlib.suppress(ConnectionResetError):
                assert await other.read() == b""
            writer.close()
            refused.close()
            return clients.counters.status().last_error

    async def both() -> None:
        assert await story(60.0, Pool(1 << 20)) == "a connection from `127.0.0.1` was refused"
        # The pool is full, so it is not read: it may have said a lot.
        assert await story(0.0, Pool(1)) == "a connection from `127.0.0.1` was refused"

    asyncio.run(both())
