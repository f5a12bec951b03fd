"""The offset map of a log that was copied from another: the topic `_moved`, written with the records it is about.

- `runs`, of a topic's partition: `{"id", "next", "runs": [[old offset, records, new offset, arrival]…]}`, offsets that
  follow each other on both sides, with the arrival number of the first, -1 where it does not matter
- `query`, of a query and its version: `{topic: {partition: new offset}}`, how far its results in this log go
- `known`, of a query and its version, where the log gives arrival numbers: `{"until": number}`, up to which its results
  are here; null if it had not read all that was copied, so that nobody could say
- `closed`, of a query with results that wait for time: `{"watermark": milliseconds}`, which of those are here

Whoever has a position of the old log, a view, a group, a feed's event id, finds the new one here.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.log.base import Log, TopicSpec
from headrace.types import BIGINT, VARCHAR, Column

MOVED_TOPIC = "_moved"
MOVED_SPEC = TopicSpec(
    MOVED_TOPIC,
    value=(Column("KIND", VARCHAR), Column("NAME", VARCHAR), Column("NUMBER", BIGINT), Column("BODY", VARCHAR)),
    role="derived",
)
NO_ARRIVAL = -1


@dataclass(frozen=True, slots=True)
class Run:
    """`count` records that followed each other without a gap, here as there."""

    old: int
    count: int
    new: int
    arrival: int = NO_ARRIVAL


@dataclass(slots=True)
class PartitionMoves:
    topic_id: int = 0
    next: int = 0
    """The old offset to copy next."""
    runs: list[Run] = field(default_factory=list)

    def offset(self, old: int) -> int:
        """Where what came at or after an old offset is now."""
        place = bisect_right(self.runs, old, key=lambda run: run.old) - 1
        if place >= 0 and old < self.runs[place].old + self.runs[place].count:
            return self.runs[place].new + old - self.runs[place].old
        return self._after(place)

    def after_arrival(self, arrival: int) -> int:
        """Where what arrived after this is now."""
        place = bisect_right(self.runs, arrival, key=lambda run: run.arrival) - 1
        if place >= 0 and arrival < self.runs[place].arrival + self.runs[place].count - 1:
            return self.runs[place].new + arrival - self.runs[place].arrival + 1
        return self._after(place)

    def _after(self, place: int) -> int:
        if place + 1 < len(self.runs):
            return self.runs[place + 1].new
        return self.runs[-1].new + self.runs[-1].count if self.runs else 0

    def add(self, runs: Iterable[Run]) -> None:
        """A run that is known already is said again with its true place."""
        for run in runs:
            if self.runs and self.runs[-1].old >= run.old:
                self.runs = [known for known in self.runs if known.old < run.old]
            self.runs.append(run)


class Moves:
    """As of when it was read. Empty for a log that was not copied from another."""

    def __init__(self, log: Log) -> None:
        self.partitions: dict[tuple[str, int], PartitionMoves] = {}
        self.queries: dict[tuple[str, int], dict[str, dict[int, int]]] = {}
        self.known: dict[tuple[str, int], int | None] = {}
        self.closed: dict[tuple[str, int], int] = {}
        ends = log.snapshot().ends.get(MOVED_TOPIC)
        for records in log.read(MOVED_TOPIC, 0, ends[0].start, ends[0].end) if ends else ():
            for row in records.batch.select(["KIND", "NAME", "NUMBER", "BODY"]).to_pylist():
                self.take(row)

    def take(self, row: Mapping[str, Any]) -> None:
        key, body = (row["NAME"], row["NUMBER"]), json.loads(row["BODY"])
        if row["KIND"] == "known":
            self.known[key] = body["until"]
            return
        if row["KIND"] == "closed":
            self.closed[key] = body["watermark"]
            return
        if row["KIND"] == "query":
            self.queries[key] = {topic: {int(p): o for p, o in offsets.items()} for topic, offsets in body.items()}
            return
        partition = self.partitions.setdefault(key, PartitionMoves())
        partition.topic_id, partition.next = body["id"], body["next"]
        partition.add(Run(*run) for run in body["runs"])

    def knows(self, topic: str) -> bool:
        return any(name == topic for name, _ in self.partitions)

    def partition(self, topic: str, number: int) -> PartitionMoves:
        """One that nothing was copied to was empty."""
        return self.partitions.get((topic, number), PartitionMoves())

    def offsets(self, topic: str, old: Mapping[int, int]) -> dict[int, int]:
        """New offsets for old ones."""
        return {number: self.partition(topic, number).offset(at) for number, at in old.items()}

    def includes(self, topic: str, old: Mapping[int, int]) -> bool:
        """Was everything before these offsets copied?"""
        return all(at <= self.partition(topic, number).next for number, at in old.items())

    def after_arrival(self, topic: str, arrival: int, partitions: int) -> dict[int, int]:
        return {number: self.partition(topic, number).after_arrival(arrival) for number in range(partitions)}


def moved_rows(rows: Iterable[tuple[str, str, int, Any]]) -> pa.RecordBatch:
    """Kind, name, number, body: as `_moved` keeps them."""
    kinds, names, numbers, bodies = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "KIND": pa.array(kinds, pa.string()),
            "NAME": pa.array(names, pa.string()),
            "NUMBER": pa.array(numbers, pa.int64()),
            "BODY": pa.array([json.dumps(body) for body in bodies], pa.string()),
        }
    )


def runs_body(topic_id: int, next_: int, runs: Iterable[Run]) -> dict[str, Any]:
    return {"id": topic_id, "next": next_, "runs": [[run.old, run.count, run.new, run.arrival] for run in runs]}
