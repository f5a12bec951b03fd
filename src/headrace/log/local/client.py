"""The local log in any other process: reads the files, writes through the owner's socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from headrace.errors import NotFound, NotRunning, OwnerLost, PositionOfAnotherLog, error_from_json
from headrace.log.base import (
    Acks,
    Append,
    Appended,
    BatchIdentity,
    Committed,
    Group,
    PartitionEnds,
    Route,
    Snapshot,
    Topic,
    TopicPartition,
    TopicSpec,
)
from headrace.log.epochs import Epochs
from headrace.log.local.connection import AppendChannel, Connection, not_running
from headrace.log.local.epoch_file import epochs_stamp, read_epochs
from headrace.log.local.gather import Run
from headrace.log.local.group_operations import offsets_to_json
from headrace.log.local.reader import ReadingLog
from headrace.log.local.remote import RemoteCoordination, RemoteDesk
from headrace.log.local.stable import Slot, StableReader, StableView, changed_slots
from headrace.log.local.topics import TopicFiles
from headrace.log.missing import no_topic
from headrace.log.schema import spec_to_json, topic_from_json
from headrace.structs import ready

_POLL_S = 0.002
_HELLO_S = 10.0


class LocalClient(ReadingLog):
    """`NotRunning` if nobody owns the log now. Later, reading goes on without an owner; a write raises `NotRunning` if
    it was not sent, `OwnerLost` if it was and no answer came, and connects again the next time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._topics = TopicFiles(folder)
        self._by_id: dict[int, Topic] = {}
        self._channel = AppendChannel(folder)
        self.desk = RemoteDesk(self._request, self._channel)
        self.coordinator = RemoteCoordination(self._request)
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._pulse: Connection | None = None
        if not self.owner_alive():
            raise not_running(folder)
        self._stable = StableReader(folder / "stable")
        self._snapshot: tuple[int, Snapshot] | None = None
        self._view: tuple[StableView, Snapshot] | None = None
        self._epochs: tuple[tuple[int, int], Epochs | None] | None = None
        self._owner: tuple[int, str | None] = (0, None)
        """The last owner that was seen, by when it started, and its epoch."""

    def epochs(self) -> Epochs | None:
        stamp = epochs_stamp(self.folder)
        known = self._epochs
        if known is None or known[0] != stamp:
            self._epochs = known = (stamp, read_epochs(self.folder))
        return known[1]

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
        for one in appends:
            self.topic(one.topic)
        runs = [Run(one.topic, one.partition, one.batch, (one.batch.num_rows,)) for one in appends]
        return self.desk.append(runs, acks, None)

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
            "routes": [
                {"topic": route.topic, "columns": dict(route.columns), "order": route.order} for route in routes
            ],
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

    def rebuild_index(self, topic: str, partition: int, base: int) -> None:
        self._request({"op": "rebuild_index", "topic": topic, "partition": partition, "base": base})

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        request = {"op": "delete_records", "topic": topic, "partition": partition, "before": before}
        return int(self._request(request)["start"])

    # Groups

    def groups(self) -> list[str]:
        return list(self._request({"op": "groups"})["groups"])

    def group(self, name: str) -> Group:
        return msgspec.convert(self._request({"op": "group", "name": name})["group"], ready(Group))

    def reset_group(self, name: str, offsets: Mapping[TopicPartition, int], force: bool = False) -> None:
        body = offsets_to_json(offsets)
        self._request({"op": "reset_group", "name": name, "offsets": body, "force": force})

    def delete_group(self, name: str) -> None:
        self._request({"op": "delete_group", "name": name})

    def split_partition(self, topic: str, partition: int, at: int | None = None) -> tuple[int, int]:
        request = {"op": "split", "topic": topic, "partition": partition, **({} if at is None else {"at": hex(at)})}
        first, second = self._request(request)["partitions"]
        return first, second

    def merge_partitions(self, topic: str, one: int, other: int) -> int:
        return int(self._request({"op": "merge", "topic": topic, "partitions": [one, other]})["partition"])

    def places(self, topic: str, ids: Sequence[str]) -> list[tuple[int, int] | None]:
        found = self._request({"op": "places", "topic": topic, "ids": list(ids)})["places"]
        return [None if place is None else (place[0], place[1]) for place in found]

    def archive_now(self, seal: bool = False) -> int:
        return int(self._request({"op": "archive", "seal": seal})["segments"])

    def call(self, name: str, body: Any) -> Any:
        """Ask the process around the owner."""
        return self._request({"op": "call", "name": name, "body": body})["body"]

    # Reading

    def snapshot(self) -> Snapshot:
        if self._stable.is_replaced():
            self._follow_replaced()
        cached = self._snapshot
        if cached is not None and cached[0] == self._stable.sequence():
            return cached[1]
        view = self._stable.view()
        if view.started_ms != self._owner[0]:
            self._owner = (view.started_ms, self.current_epoch())
        known = self._view
        changed = None if known is None else changed_slots(known[0], view)
        if known is None or changed is None:
            snapshot = self._make_snapshot(view)
        else:
            snapshot = self._update_snapshot(known[1], view.arrival, changed)
        self._snapshot, self._view = (view.sequence, snapshot), (view, snapshot)
        return snapshot

    def _follow_replaced(self) -> None:
        """The log's files are others. If it was restored, whoever reads here may be ahead of it, and cannot go on."""
        reached, replaced = self._stable.arrival(), StableReader(self.folder / "stable")
        now = read_epochs(self.folder)
        if self._owner[1] is not None and now is not None and not now.include(self._owner[1], reached):
            raise PositionOfAnotherLog(
                f"the log in `{self.folder}` was restored while it was being read",
                detail=f"this reader has seen it up to arrival {reached}",
                hint="open the log again, and decide where to go on",
            )
        self._stable = replaced

    def _update_snapshot(self, known: Snapshot, arrival: int, changed: list[Slot]) -> Snapshot:
        """From the one before: most partitions of many are as they were."""
        ends = dict(known.ends)
        stream_times = dict(known.stream_times)
        fresh: dict[str, list[PartitionEnds]] = {}
        for slot in changed:
            topic = self._by_id.get(slot.topic_id)
            if topic is not None:
                fresh.setdefault(topic.name, list(ends[topic.name]))[slot.partition] = PartitionEnds(
                    slot.start, slot.end
                )
                stream_times[topic.name] = max(slot.stream_time, stream_times[topic.name])
        return Snapshot(arrival, ends | {name: tuple(values) for name, values in fresh.items()}, stream_times)

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
                # Only slots of partitions that were written to say the newest.
                stream_times[topic.name] = max(slot.stream_time, stream_times.get(topic.name, -1))
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
                self._pulse = Connection(self.folder, timeout=_HELLO_S)
                self._pulse.ask({"op": "hello"})
            except (NotRunning, OwnerLost):
                if self._pulse is not None:
                    self._pulse.close()
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

    def _take(self) -> Connection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if connection.is_open():
                    return connection
                connection.close()
        return Connection(self.folder)

    def close(self) -> None:
        self._channel.close()
        with self._lock:
            connections, self._idle = [*self._idle, *([self._pulse] if self._pulse else [])], []
            self._pulse = None
        for connection in connections:
            connection.close()
        self._let_go()


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
