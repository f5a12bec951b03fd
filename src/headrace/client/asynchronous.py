"""`AsyncClient`: the same on an event loop. Only what waits differs from `blocking`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import httpx

from headrace.client import operations
from headrace.client.blocking import SILENCE_S, unreachable
from headrace.client.calls import WAITING_ROOM_S, Call, Response, Steps, pause_before_repeat, read_answer
from headrace.client.following import Buffer, FeedReading, Membership, QueueReading, TopicReading
from headrace.client.operations import Event
from headrace.client.rows import LineSplitter, RowReading
from headrace.client.values import Change, Message, Offset, Produced, Record
from headrace.errors import HeadraceError

P = ParamSpec("P")
T = TypeVar("T")


def _awaiting(operation: Callable[P, Steps[T]]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    """The operation as a method that does it."""

    @wraps(operation)
    async def call(self: AsyncClient, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self.run(operation(*arguments, **options))

    return call


class AsyncClient:
    """Belongs to one event loop; its consumers and producers are for one task.

    `patience` is how long a call is tried again when the server is busy, restarting or out of reach; `ca` names a
    file with the certificates that sign the server's, where the system does not know them."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        key: str | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
        ca: str | None = None,
    ) -> None:
        self.url, self._timeout, self._patience = url.rstrip("/"), timeout, patience
        headers = {"authorization": f"Bearer {key}"} if key else {}
        # A proxy of the environment has no business between us and our own server.
        verify = ssl.create_default_context(cafile=ca) if ca else True
        self._http = httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=timeout, trust_env=False, verify=verify
        )

    topics = _awaiting(operations.topics)
    topic = _awaiting(operations.topic)
    create_topic = _awaiting(operations.create_topic)
    alter_topic = _awaiting(operations.alter_topic)
    delete_topic = _awaiting(operations.delete_topic)
    delete_records = _awaiting(operations.delete_records)
    produce = _awaiting(operations.produce)
    page = _awaiting(operations.page)
    groups = _awaiting(operations.groups)
    group = _awaiting(operations.group)
    reset_group = _awaiting(operations.reset_group)
    delete_group = _awaiting(operations.delete_group)
    queues = _awaiting(operations.queues)
    queue = _awaiting(operations.queue)
    create_queue = _awaiting(operations.create_queue)
    delete_queue = _awaiting(operations.delete_queue)
    receive = _awaiting(operations.receive)
    ack = _awaiting(operations.ack)
    nack = _awaiting(operations.nack)
    extend = _awaiting(operations.extend)
    request = _awaiting(operations.request)
    reply = _awaiting(operations.reply)
    query = _awaiting(operations.query)
    statements = _awaiting(operations.statements)

    async def rows(
        self, sql: str, limit: int | None = None, after: str | Sequence[str] | None = None, wait_s: float | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Rows of a SELECT as they come, by column name: an answer of any size. Closing the iterator cancels it."""
        reading, lines = RowReading(), LineSplitter()
        async with self._open(operations.query_call(sql, limit, after, wait_s)) as answer:
            async for piece in answer.aiter_bytes():
                for line in lines.split(piece):
                    for row in reading.named(reading.take(line) or []):
                        yield row
        reading.finish()

    # Reading without an end

    async def consume(
        self,
        topic: str,
        start: Literal["earliest", "latest"] = "earliest",
        *,
        at: str | None = None,
        time: str | int | None = None,
        partition: int | None = None,
        follow: bool = True,
    ) -> AsyncIterator[Record]:
        """Records of a topic, from a place on; with `follow`, also those to come."""
        reading = TopicReading(topic, start, at=at, time=time, partition=partition, follow=follow)
        while not reading.over:
            for one in await self.run(reading.step()):
                yield one

    async def messages(self, queue: str, limit: int = 10, lease: float | None = None) -> AsyncIterator[Message]:
        """Messages of a queue, for ever. Acknowledge each."""
        reading = QueueReading(queue, limit, lease)
        while True:
            for one in await self.run(reading.step()):
                yield one

    async def feed(
        self, view: str, *, after: str | None = None, snapshot: bool = False, from_beginning: bool = False
    ) -> AsyncIterator[Change]:
        """Changes of a view as they happen, over breaks of the connection."""
        reading = FeedReading(view, after=after, snapshot=snapshot, from_beginning=from_beginning)
        while True:
            call = reading.call()
            try:
                async for line in self._lines(call):
                    change = reading.take(line)
                    if change is not None:
                        yield change
            except HeadraceError as error:
                pause = pause_before_repeat(call, error, reading.failures)
                if pause is None:
                    raise
                reading.failed(error)
                await asyncio.sleep(pause)

    @asynccontextmanager
    async def consumer(
        self,
        group: str,
        topics: str | Sequence[str],
        start: Literal["earliest", "latest"] = "earliest",
        session_timeout: float = 30.0,
        client: str = "",
    ) -> AsyncIterator[AsyncGroupConsumer]:
        """A member of a group, for as long as the block lasts."""
        membership = Membership(group, topics, start, session_timeout, client)
        await self.run(membership.join())
        try:
            yield AsyncGroupConsumer(self, membership)
        finally:
            await self.run(membership.leave())

    @asynccontextmanager
    async def producer(self, topic: str, batch_records: int = 1000) -> AsyncIterator[AsyncBufferedProducer]:
        """Gathers events into batches; the rest is sent when the block ends without an error."""
        made = AsyncBufferedProducer(self, Buffer(topic, batch_records))
        yield made
        await made.flush()

    # Doing it

    async def run(self, steps: Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                try:
                    answer = await self._do(call)
                except HeadraceError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, call: Call) -> Any:
        deadline = asyncio.get_running_loop().time() + self._patience
        attempt = 0
        while True:
            try:
                return read_answer(call, await self._send(call))
            except HeadraceError as error:
                pause = pause_before_repeat(call, error, attempt)
                if pause is None or asyncio.get_running_loop().time() + pause > deadline:
                    raise
            attempt += 1
            await asyncio.sleep(pause)

    async def _send(self, call: Call) -> Response:
        timeout = httpx.Timeout(self._timeout, read=max(self._timeout, call.wait_s + WAITING_ROOM_S))
        try:
            answer = await self._http.request(
                call.method,
                call.path,
                params=call.parameters,
                content=call.body,
                headers=dict(call.headers),
                timeout=timeout,
            )
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error
        return Response(answer.status_code, answer.headers, answer.content)

    async def _lines(self, call: Call) -> AsyncIterator[str]:
        async with self._open(call) as answer:
            async for line in answer.aiter_lines():
                yield line

    @asynccontextmanager
    async def _open(self, call: Call) -> AsyncIterator[httpx.Response]:
        timeout = httpx.Timeout(self._timeout, read=max(SILENCE_S, call.wait_s))
        try:
            async with self._http.stream(
                call.method,
                call.path,
                params=call.parameters,
                content=call.body,
                headers=dict(call.headers),
                timeout=timeout,
            ) as answer:
                if answer.status_code >= 400:
                    read_answer(call, Response(answer.status_code, answer.headers, await answer.aread()))
                yield answer
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncGroupConsumer:
    """Iterate over it for ever, or `poll`. A record counts as processed when the next one is asked for: `commit` then
    commits it, and a crash before that brings it again (at least once)."""

    def __init__(self, client: AsyncClient, membership: Membership) -> None:
        self._client, self._membership = client, membership

    async def poll(self, limit: int = 500, wait: float = 20.0) -> list[Record]:
        """What is new, within `wait` seconds. All of it counts as processed at the next `commit`."""
        found = await self._client.run(self._membership.poll(limit, wait))
        for record in found:
            self._membership.processed(record)
        return found

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            for record in await self._client.run(self._membership.poll()):
                yield record
                self._membership.processed(record)

    async def commit(self, offsets: Sequence[Offset] | None = None) -> None:
        await self._client.run(self._membership.commit(offsets))

    async def heartbeat(self) -> None:
        await self._client.run(self._membership.heartbeat())


class AsyncBufferedProducer:
    """`rejected` gathers what did not fit; it is in the dead letters too."""

    def __init__(self, client: AsyncClient, buffer: Buffer) -> None:
        self._client, self._buffer = client, buffer
        self.accepted = self.duplicates = 0
        self.rejected: list[str] = []

    async def send(self, event: Event) -> None:
        if self._buffer.add(event):
            await self.flush()

    async def flush(self) -> Produced:
        sent = await self._client.run(self._buffer.flush())
        self.accepted += sent.accepted
        self.duplicates += sent.duplicates
        self.rejected += [one.reason for one in sent.rejected]
        return sent
