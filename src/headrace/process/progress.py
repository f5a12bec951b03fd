"""How far a query is, from its offsets and the log: figures that are the same after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.log.base import NO_STREAM_TIME, STREAM_TIME, TIME, Log, Snapshot

Offsets = Mapping[int, int]
PATIENCE = 2.0
"""A batch may take this many times as long as the one before until its query counts as idle."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The last batch that a query finished, as Spark reports it."""

    batch: int = -1
    batch_ms: int = 0
    ends: Mapping[str, Offsets] = field(default_factory=dict)
    """How far each topic has been read, by what sources call it: its id, on Kafka its name there."""
    state_rows: int = 0
    state_bytes: int = 0


def parse_progress(text: str) -> Progress:
    """Of several sources of one topic only the first counts: the late ledger's second look reads the same records."""
    body: dict[str, Any] = json.loads(text)
    operators = body.get("stateOperators", [])
    ends: dict[str, Offsets] = {}
    for source in body.get("sources", []):
        for topic, offsets in parse_places(source.get("endOffset")).items():
            ends.setdefault(topic, offsets)
    return Progress(
        batch=body.get("batchId", -1),
        batch_ms=body.get("batchDuration", 0),
        ends=ends,
        state_rows=sum(operator.get("numRowsTotal", 0) for operator in operators),
        state_bytes=sum(operator.get("memoryUsedBytes", 0) for operator in operators),
    )


def parse_offsets(value: Any) -> dict[int, int]:
    """The connector's offsets, `{"partitions": {"0": 12}}`, or Kafka's, `{"topic": {"0": 12}}`, as JSON or as text
    holding JSON."""
    body = json.loads(value) if isinstance(value, str) else value
    if not isinstance(body, dict):
        return {}
    partitions = body.get("partitions") or next((ends for ends in body.values() if isinstance(ends, dict)), {})
    return {int(partition): int(end) for partition, end in partitions.items()}


def parse_places(value: Any) -> dict[str, dict[int, int]]:
    """The same with the topic: the connector's, `{"topic": 5, "partitions": {"0": 12}}`, have its id.

    >>> parse_places({"topic": 5, "arrival": 40, "partitions": {"0": 12}}), parse_places('{"shop.views": {"0": 12}}')
    ({'5': {0: 12}}, {'shop.views': {0: 12}})
    >>> parse_places({"floor": 7}), parse_places(None)
    ({}, {})
    """
    body = json.loads(value) if isinstance(value, str) else value
    if not isinstance(body, dict):
        return {}
    if isinstance(body.get("topic"), int):
        body = {str(body["topic"]): body["partitions"]}
    found = {topic: ends for topic, ends in body.items() if isinstance(ends, dict)}
    return {topic: {int(number): int(end) for number, end in ends.items()} for topic, ends in found.items()}


def parse_arrival(value: str) -> int | None:
    """The arrival number at which a batch of the local log ended; None where that is not known."""
    body = json.loads(value)
    arrival = body.get("arrival") if isinstance(body, dict) else None
    return arrival if isinstance(arrival, int) else None


def first_offsets(values: Iterable[Any]) -> dict[int, int]:
    """Of the first source that has records; on Kafka some only tell the time."""
    return next((found for value in values if (found := parse_offsets(value))), {})


def topic_end(snapshot: Snapshot, topic: str) -> int:
    """How many records the topic has had; on Kafka with the marks of transactions, which have offsets too."""
    return sum(ends.end for ends in snapshot.ends.get(topic, ()))


def topic_start(snapshot: Snapshot, topic: str) -> int:
    return sum(ends.start for ends in snapshot.ends.get(topic, ()))


def lag(snapshot: Snapshot, topic: str, read: Offsets) -> int:
    """Offsets that are in the topic and not yet in the query's result."""
    partitions = enumerate(snapshot.ends.get(topic, ()))
    return sum(max(0, ends.end - max(read.get(number, 0), ends.start)) for number, ends in partitions)


def listed(read: Offsets) -> list[int]:
    """
    >>> listed({2: 5, 0: 7})
    [7, 0, 5]
    """
    return [read.get(number, 0) for number in range(max(read, default=-1) + 1)]


def stream_time(log: Log, snapshot: Snapshot, topic: str, read: Offsets) -> int | None:
    """The largest event time among the records read: each carries the largest before it, so the last one of each
    partition knows. Asks the log only if the query is behind."""
    if lag(snapshot, topic, read) == 0:
        known = snapshot.stream_times.get(topic, NO_STREAM_TIME)
        return None if known == NO_STREAM_TIME else known
    found = NO_STREAM_TIME
    for number, ends in enumerate(snapshot.ends.get(topic, ())):
        last = read.get(number, 0) - 1
        if last < ends.start:
            continue
        for records in log.read(topic, number, last, last + 1, columns=[STREAM_TIME, TIME]):
            for name in (STREAM_TIME, TIME):
                found = max(found, *records.batch.column(name).to_pylist())
    return None if found == NO_STREAM_TIME else found


class Rate:
    """Rows per second over the last few seconds, from totals. Totals grow with each batch: while a long batch is
    computed, the rate is that of the batches before."""

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self._changes: list[tuple[float, int]] = []
        """When the total changed, and what it was then; the last two whenever that was."""

    def update(self, now: float, total: int) -> float:
        if not self._changes or total != self._changes[-1][1]:
            self._changes.append((now, total))
        recent = [change for change in self._changes if change[0] > now - self._seconds]
        self._changes = self._changes[-max(2, len(recent) + 1) :]
        if len(self._changes) < 2:
            return 0.0
        (then, before), (earlier, _), (last, after) = self._changes[0], self._changes[-2], self._changes[-1]
        if now - last > max(self._seconds, PATIENCE * (last - earlier)):
            return 0.0
        return max(0, after - before) / (last - then) if last > then else 0.0
