"""`Client`: one call after the other, in the caller's thread."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import httpx

from headrace.client import operations
from headrace.client.calls import WAITING_ROOM_S, Call, Response, Steps, Unreachable, pause_before_repeat, read_answer
from headrace.client.following import Buffer, FeedReading, Membership, QueueReading, TopicReading
from headrace.client.operations import Event
from headrace.client.rows import LineSplitter, RowReading
from headrace.client.values import Change, Message, Offset, Produced, Record
from headrace.errors import HeadraceError

P = ParamSpec("P")
T = TypeVar("T")

SILENCE_S = 45.0
"""A feed says something at least every 15 s; a silence of three times that means that the server is gone."""


def _blocking(operation: Callable[P, Steps[T]]) -> Callable[Concatenate[Client, P], T]:
    """The operation as a method that does it."""

    @wraps(operation)
    def call(self: Client, /, *arguments: P.args, **options: P.kwargs) -> T:
        return self.run(operation(*arguments, **options))

    return call


class Client:
    """Safe to use from several threads; its consumers and producers are for one.

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
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=False, verify=verify)

    topics = _blocking(operations.topics)
    topic = _blocking(operations.topic)
    create_topic = _blocking(operations.create_topic)
    alter_topic = _blocking(operations.alter_topic)
    delete_topic = _blocking(operations.delete_topic)
    delete_records = _blocking(operations.delete_records)
    produce = _blocking(operations.produce)
    page = _blocking(operations.page)
    groups = _blocking(operations.groups)
    group = _blocking(operations.group)
    reset_group = _blocking(operations.reset_group)
    delete_group = _blocking(operations.delete_group)
    queues = _blocking(operations.queues)
    queue = _blocking(operations.queue)
    create_queue = _blocking(operations.create_queue)
    delete_queue = _blocking(operations.delete_queue)
    receive = _blocking(operations.receive)
    ack = _blocking(operations.ack)
    nack = _blocking(operations.nack)
    extend = _blocking(operations.extend)
    request = _blocking(operations.request)
    reply = _blocking(operations.reply)
    query = _blocking(operations.query)
    statements = _blocking(operations.statements)

    def rows(
        self, sql: str, limit: int | None = None, after: str | Sequence[str] | None = None, wait_s: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Rows of a SELECT as they come, by column name: an answer of any size. Closing the iterator cancels it."""
        reading, lines = RowReading(), LineSplitter()
        for piece in self._pieces(operations.query_call(sql, limit, after, wait_s)):
            for line in lines.split(piece):
                yield from reading.named(reading.take(line) or [])
        reading.finish()

    # Reading without an end

    def consume(
        self,
        topic: str,
        start: Literal["earliest", "latest"] = "earliest",
        *,
        at: str | None = None,
        time: str | int | None = None,
        partition: int | None = None,
        follow: bool = True,
    ) -> Iterator[Record]:
        """Records of a topic, from a place on; with `follow`, also those to come."""
        reading = TopicReading(topic, start, at=at, time=time, partition=partition, follow=follow)
        while not reading.over:
            yield from self.run(reading.step())

    def messages(self, queue: str, limit: int = 10, lease: float | None = None) -> Iterator[Message]:
        """Messages of a queue, for ever. Acknowledge each."""
        reading = QueueReading(queue, limit, lease)
        while True:
            yield from self.run(reading.step())

    def feed(
        self, view: str, *, after: str | None = None, snapshot: bool = False, from_beginning: bool = False
    ) -> Iterator[Change]:
        """Changes of a view as they happen, over breaks of the connection."""
        reading = FeedReading(view, after=after, snapshot=snapshot, from_beginning=from_beginning)
        while True:
            call = reading.call()
            try:
                for line in self._lines(call):
                    change = reading.take(line)
                    if change is not None:
                        yield change
            except HeadraceError as error:
                pause = pause_before_repeat(call, error, reading.failures)
                if pause is None:
                    raise
                reading.failed(error)
                time.sleep(pause)

    @contextmanager
    def consumer(
        self,
        group: str,
        topics: str | Sequence[str],
        start: Literal["earliest", "latest"] = "earliest",
        session_timeout: float = 30.0,
        client: str = "",
    ) -> Iterator[GroupConsumer]:
        """A member of a group, for as long as the block lasts."""
        membership = Membership(group, topics, start, session_timeout, client)
        self.run(membership.join())
        try:
            yield GroupConsumer(self, membership)
        finally:
            self.run(membership.leave())

    @contextmanager
    def producer(self, topic: str, batch_records: int = 1000) -> Iterator[BufferedProducer]:
        """Gathers events into batches; the rest is sent when the block ends without an error."""
        made = BufferedProducer(self, Buffer(topic, batch_records))
        yield made
        made.flush()

    # Doing it

    def run(self, steps: Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                try:
                    answer = self._do(call)
                except HeadraceError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, call: Call) -> Any:
        deadline = time.monotonic() + self._patience
        attempt = 0
        while True:
            try:
                return read_answer(call, self._send(call))
            except HeadraceError as error:
                pause = pause_before_repeat(call, error, attempt)
                if pause is None or time.monotonic() + pause > deadline:
                    raise
            attempt += 1
            time.sleep(pause)

    def _send(self, call: Call) -> Response:
        timeout = httpx.Timeout(self._timeout, read=max(self._timeout, call.wait_s + WAITING_ROOM_S))
        try:
            answer = self._http.request(
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

    def _lines(self, call: Call) -> Iterator[str]:
        with self._open(call) as answer:
            yield from answer.iter_lines()

    def _pieces(self, call: Call) -> Iterator[bytes]:
        with self._open(call) as answer:
            yield from answer.iter_bytes()

    @contextmanager
    def _open(self, call: Call) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(self._timeout, read=max(SILENCE_S, call.wait_s))
        try:
            with self._http.stream(
                call.method,
                call.path,
                params=call.parameters,
                content=call.body,
                headers=dict(call.headers),
                timeout=timeout,
            ) as answer:
                if answer.status_code >= 400:
                    read_answer(call, Response(answer.status_code, answer.headers, answer.read()))
                yield answer
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unreachable(url: str, error: httpx.HTTPError) -> Unreachable:
    never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return Unreachable(
        f"no answer from `{url}`",
        sent=not never_sent,
        detail=str(error) or type(error).__name__,
        hint="is it running?  headrace up",
    )


class GroupConsumer:
    """Iterate over it for ever, or `poll`. A record counts as processed when the next one is asked for: `commit` then
    commits it, and a crash before that brings it again (at least once)."""

    def __init__(self, client: Client, membership: Membership) -> None:
        self._client, self._membership = client, membership

    def poll(self, limit: int = 500, wait: float = 20.0) -> list[Record]:
        """What is new, within `wait` seconds. All of it counts as processed at the next `commit`."""
        found = self._client.run(self._membership.poll(limit, wait))
        for record in found:
            self._membership.processed(record)
        return found

    def __iter__(self) -> Iterator[Record]:
        while True:
            for record in self._client.run(self._membership.poll()):
                yield record
                self._membership.processed(record)

    def commit(self, offsets: Sequence[Offset] | None = None) -> None:
        self._client.run(self._membership.commit(offsets))

    def heartbeat(self) -> None:
        self._client.run(self._membership.heartbeat())


class BufferedProducer:
    """`rejected` gathers what did not fit; it is in the dead letters too."""

    def __init__(self, client: Client, buffer: Buffer) -> None:
        self._client, self._buffer = client, buffer
        self.accepted = self.duplicates = 0
        self.rejected: list[str] = []

    def send(self, event: Event) -> None:
        if self._buffer.add(event):
            self.flush()

    def flush(self) -> Produced:
        sent = self._client.run(self._buffer.flush())
        self.accepted += sent.accepted
        self.duplicates += sent.duplicates
        self.rejected += [one.reason for one in sent.rejected]
        return sent
