"""What streams and delivery streams have that topics have not (tags, when they were made), in a topic of its own: the
newest note of a name counts."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from headrace.log.base import TOMBSTONE, Append, Log, TopicConfig, TopicSpec
from headrace.structs import ready
from headrace.types import VARCHAR, Column

NOTES_TOPIC = "_kinesis"
NOTES_SPEC = TopicSpec(
    NOTES_TOPIC,
    key=(Column("NAME", VARCHAR),),
    value=(Column("BODY", VARCHAR),),
    config=TopicConfig(compacted=True),
)

T = TypeVar("T")


class StreamNote(msgspec.Struct, frozen=True, kw_only=True):
    topic_id: int
    """Of another topic by that name it says nothing."""
    created_ms: int = 0
    tags: dict[str, str] = {}
    mode: str = "PROVISIONED"
    born: dict[int, int] = {}
    """Shard → when a split or a merge made it."""


class Notes:
    """Safe to use from several threads. The topic is made with the first note."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._next = 0
        self._bodies: dict[str, bytes] = {}

    def get(self, name: str, model: type[T]) -> T | None:
        with self._lock:
            self._refresh()
            body = self._bodies.get(name)
        return None if body is None else msgspec.json.decode(body, type=ready(model))

    def names(self, prefix: str) -> list[str]:
        with self._lock:
            self._refresh()
            return sorted(name for name in self._bodies if name.startswith(prefix))

    def put(self, name: str, note: Any) -> None:
        """`None` takes it away. Durable when this returns."""
        self._log.create_topic(NOTES_SPEC)
        columns = {
            "NAME": pa.array([name], pa.string()),
            "BODY": pa.array([None if note is None else msgspec.json.encode(note).decode()], pa.string()),
            TOMBSTONE: pa.array([note is None], pa.bool_()),
        }
        self._log.append([Append(NOTES_TOPIC, pa.record_batch(columns))]).result()

    def _refresh(self) -> None:
        ends = self._log.snapshot().ends.get(NOTES_TOPIC)
        if not ends or ends[0].end <= self._next:
            return
        for records in self._log.read(NOTES_TOPIC, 0, max(self._next, ends[0].start), ends[0].end, ["NAME", "BODY"]):
            for row in records.batch.to_pylist():
                if row["BODY"] is None:
                    self._bodies.pop(row["NAME"], None)
                else:
                    self._bodies[row["NAME"]] = row["BODY"].encode()
        self._next = ends[0].end
