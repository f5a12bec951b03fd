"""The local log in any other process: reads the files, writes through the owner's socket."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from headrace.errors import LogError, NotFound, NotRunning, OwnerLost, UsageError, error_from_json
from headrace.log.base import (
    Acks,
    Append,
    Appended,
    BatchIdentity,
    Committed,
    PartitionEnds,
    Route,
    Snapshot,
    Topic,
    TopicSpec,
)
from headrace.log.local import wire
from headrace.log.local.lock import read_holder
from headrace.log.local.reader import ReadingLog
from headrace.log.local.stable import StableReader, StableView
from headrace.log.local.topics import TopicFiles, no_topic
from headrace.log.schema import spec_to_json, topic_from_json

_POLL_S = 0.002
_HELLO_S = 5.0


class LocalClient(ReadingLog):
    """`NotRunning` if nobody owns the log now. Later, reading goes on without an owner; a write raises `NotRunning` if
    it was not sent, `OwnerLost` if it was and no answer came, and connects again the next time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._topics = TopicFiles(folder)
        self._by_id: dict[int, Topic] = {}
        self._channel = _Channel(folder)
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._pulse: _Connection | None = None
        if not self.owner_alive():
            raise _not_running(folder)
        self._stable = StableReader(folder / "stable")
        self._snapshot: tuple[int, Snapshot] | None = None

    # Topics

    def create_topic(self, spec: TopicSpec) -> Topic:
        return topic_from_json(self._request({"op": "create_topic", "topic": spec_to_json(spec)})["topic"])

    def alter_topic(self, spec: TopicSpec) -> Topic:
        return topic_from_json(self._request({"op": "alter_topic", "topic": spec_to_json(spec)})["topic"])

    def delete_topic(self, name: str) -> None:
        topic = self.topic(name)
        self._request({"op": "delete_topic", "name": name})
        self._forget_topic(topic.id)

    def topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise no_topic(name, [known.name for known in self._topics.all()])
        return topic

    def topics(self) -> list[Topic]:
        return self._topics.all()

    # Writing

    def append(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]:
        entries = [{"topic": one.topic, "partition": one.partition} for one in appends]
        for one in appends:
            self.topic(one.topic)
        streams = [wire.encode_batches(one.batch.schema, [one.batch]) for one in appends]
        return self._channel.send({"op": "append", "acks": acks, "appends": entries, "arrow": True}, streams)

    def stage(
        self,
        transaction: str,
        task: int,
        attempt: int,
        routes: Sequence[Route],
        batches: Iterator[pa.RecordBatch],
    ) -> int:
        first = next(batches, None)
        if first is None:
            first = pa.RecordBatch.from_pydict({})
        request = {
            "op": "stage",
            "transaction": transaction,
            "task": task,
            "attempt": attempt,
            "routes": [{"topic": route.topic, "columns": dict(route.columns)} for route in routes],
            "arrow": True,
        }
        return int(self._request(request, _chain(first, batches))["rows"])

    def commit(
        self, transaction: str, tasks: Sequence[tuple[int, int]], identity: BatchIdentity | None = None
    ) -> Committed:
        request: dict[str, Any] = {"op": "commit", "transaction": transaction, "tasks": tasks}
        if identity is not None:
            request["identity"] = asdict(identity)
        answer = self._request(request)
        return Committed(answer["arrival"], answer["duplicate"])

    def abort(self, transaction: str) -> None:
        self._request({"op": "abort", "transaction": transaction})

    def last_identity(self, query: str, version: int) -> BatchIdentity | None:
        found = self._request({"op": "identity", "query": query, "version": version})["identity"]
        return BatchIdentity(**found) if found else None

    def quarantine(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        answer = self._request({"op": "quarantine", "topic": topic, "partition": partition, "offset": offset})
        return answer["from"], answer["to"]

    def call(self, name: str, body: Any) -> Any:
        """Ask the process around the owner."""
        return self._request({"op": "call", "name": name, "body": body})["body"]

    # Reading

    def snapshot(self) -> Snapshot:
        if self._stable.is_replaced():
            self._stable = StableReader(self.folder / "stable")
        cached = self._snapshot
        if cached is not None and cached[0] == self._stable.sequence():
            return cached[1]
        view = self._stable.view()
        snapshot = self._make_snapshot(view)
        self._snapshot = (view.sequence, snapshot)
        return snapshot

    def _make_snapshot(self, view: StableView) -> Snapshot:
        slots = view.rows()
        if any(slot.topic_id not in self._by_id for slot in slots):
            self._by_id = {topic.id: topic for topic in self._topics.all()}
        ends: dict[str, list[PartitionEnds]] = {}
        stream_times: dict[str, int] = {}
        for slot in sorted(slots, key=lambda slot: (slot.topic_id, slot.partition)):
            topic = self._by_id.get(slot.topic_id)
            if topic is not None:
                ends.setdefault(topic.name, []).append(PartitionEnds(slot.start, slot.end))
                stream_times[topic.name] = slot.stream_time
        return Snapshot(view.arrival, {name: tuple(values) for name, values in ends.items()}, stream_times)

    def wait(self, arrival: int, timeout: float) -> Snapshot:
        deadline = time.monotonic() + timeout
        while self._stable.arrival() <= arrival and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, left))
        return self.snapshot()

    def _ends(self, topic: Topic, partition: int) -> PartitionEnds:
        ends = self.snapshot().ends.get(topic.name)
        if ends is None:
            raise no_topic(topic.name, [known.name for known in self._topics.all()])
        if not 0 <= partition < len(ends):
            raise NotFound(f"topic `{topic.name}` has no partition {partition}", hint=f"0 to {len(ends) - 1}")
        return ends[partition]

    # The owner

    def owner_alive(self) -> bool:
        """Whether the owner is there, without asking it anything once connected."""
        with self._lock:
            if self._pulse is not None and self._pulse.is_open():
                return True
            if self._pulse is not None:
                self._pulse.close()
            try:
                self._pulse = _Connection(self.folder, timeout=_HELLO_S)
                self._pulse.ask({"op": "hello"})
            except (NotRunning, OwnerLost):
                self._pulse = None
                return False
            return True

    def _request(self, request: dict[str, Any], batches: Iterator[pa.RecordBatch] | None = None) -> dict[str, Any]:
        connection = self._take()
        try:
            answer = connection.ask(request, batches)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)
        if not answer["ok"]:
            raise error_from_json(answer["error"])
        return answer

    def _take(self) -> _Connection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.is_open():
                    return connection
                connection.close()
        return _Connection(self.folder)

    def close(self) -> None:
        self._channel.close()
        with self._lock:
            connections, self._idle = [*self._idle, *([self._pulse] if self._pulse else [])], []
            self._pulse = None
        for connection in connections:
            connection.close()
        self._let_go()


class _Connection:
    """One request at a time."""

    def __init__(self, folder: Path, timeout: float | None = None) -> None:
        holder = read_holder(folder)
        if holder is None or not holder.socket:
            raise _not_running(folder)
        try:
            self._socket = wire.connect(holder.socket, timeout)
        except OSError:
            raise _not_running(folder) from None
        self._file: IO[bytes] = self._socket.makefile("rb")

    def ask(self, request: dict[str, Any], batches: Iterator[pa.RecordBatch] | None = None) -> dict[str, Any]:
        try:
            self._socket.sendall(wire.encode_line(request))
            if batches is not None:
                self._send(batches)
            answer = wire.read_line(self._file)
        except OSError as error:
            raise _lost() from error
        if answer is None:
            raise _lost()
        return answer

    def _send(self, batches: Iterator[pa.RecordBatch]) -> None:
        first = next(batches)
        sink = self._socket.makefile("wb", buffering=1024 * 1024)
        # Closed only when all of it was sent: a stream that ends because its maker failed would be taken as whole.
        stream = pa.ipc.new_stream(sink, first.schema)
        if first.num_columns:
            stream.write_batch(first)
        for batch in batches:
            stream.write_batch(batch)
        stream.close()
        sink.flush()

    def is_open(self) -> bool:
        """An idle connection has nothing to say; if it is readable, the other side has hung up."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
            return not poll.poll(0)
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._file.close()
        self._socket.close()


class _Channel:
    """The connection for appends: sent one after the other without waiting, answered in the same order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._waiting: deque[Future[list[Appended]]] = deque()
        self._closed = False

    def send(self, request: dict[str, Any], streams: Sequence[pa.Buffer]) -> Future[list[Appended]]:
        future: Future[list[Appended]] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                raise LogError("the log is closed")
            connection = self._socket or self._connect()
            self._waiting.append(future)
            try:
                connection.sendall(wire.encode_line(request))
                for stream in streams:
                    connection.sendall(memoryview(stream))
            except OSError:
                # The receiver notices too, and tells everyone who waits.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        return future

    def _connect(self) -> socket.socket:
        holder = read_holder(self._folder)
        if holder is None or not holder.socket:
            raise _not_running(self._folder)
        try:
            connection = wire.connect(holder.socket)
        except OSError:
            raise _not_running(self._folder) from None
        self._socket, self._waiting = connection, deque()
        threading.Thread(
            target=self._receive, args=(connection, self._waiting), name="log-appends", daemon=True
        ).start()
        return connection

    def _receive(self, connection: socket.socket, waiting: deque[Future[list[Appended]]]) -> None:
        try:
            with connection.makefile("rb") as file:
                while (answer := wire.read_line(file)) is not None:
                    _resolve(waiting.popleft(), answer)
        except (OSError, IndexError, UsageError):
            pass
        finally:
            with self._lock:
                if self._socket is connection:
                    self._socket = None
                left = list(waiting)
            connection.close()
            for future in left:
                future.set_exception(_lost())

    def close(self) -> None:
        """No more appends; those that were sent are still answered."""
        with self._lock:
            self._closed = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_WR)


def _resolve(future: Future[list[Appended]], answer: dict[str, Any]) -> None:
    if not answer["ok"]:
        future.set_exception(error_from_json(answer["error"]))
        return
    future.set_result(
        [
            Appended(tuple((p, first, last) for p, first, last in one["positions"]), tuple(one["duplicates"]))
            for one in answer["results"]
        ]
    )


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _not_running(folder: Path) -> NotRunning:
    return NotRunning(f"nobody owns the log in `{folder}`", hint="start it:  headrace up")


def _lost() -> OwnerLost:
    return OwnerLost(
        "the log's owner went away before it answered",
        hint="the write may or may not be stored; an event id makes a repeat harmless",
    )
