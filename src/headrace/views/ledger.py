"""The late ledger: what came too late for a query, and for which window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow.compute as pc

from headrace.log.base import TIME, Log
from headrace.store.arrivals import addressed
from headrace.views.reading import Offsets
from headrace.views.stamping import Stamps
from headrace.views.traced import Bounds

_COLUMNS = [
    TIME,
    "TOPIC",
    "PARTITION",
    "OFFSET",
    "STREAM_TIME",
    "WINDOW_START",
    "WINDOW_END",
    "LATE_BY",
    "ROW",
]


@dataclass(frozen=True, slots=True)
class LateEntry:
    """A record that came too late for one window. `place` is the entry's own offset in the ledger."""

    place: int
    topic: str
    partition: int | None
    offset: int | None
    time_ms: int
    stream_time: int
    window: Bounds
    late_by_ms: int
    row: str
    """The record, as JSON."""


def read_ledger(log: Log, topic: str | None, start: int = 0, between: Bounds | None = None) -> list[LateEntry]:
    """What the ledger has from `start` on; with `between`, for windows that touch that time."""
    ends = log.snapshot().ends.get(topic or "")
    if topic is None or not ends:
        return []
    found = []
    for records in log.read(topic, 0, max(start, ends[0].start), ends[0].end, _COLUMNS):
        batch = addressed(records)
        if between is not None:
            touches = pc.and_(
                pc.less_equal(batch.column("WINDOW_START"), between[1]),
                pc.greater_equal(batch.column("WINDOW_END"), between[0]),
            )
            batch = batch.filter(touches)
        found += [
            LateEntry(
                row["$offset"],
                row["TOPIC"],
                row["PARTITION"],
                row["OFFSET"],
                row[TIME],
                row["STREAM_TIME"],
                (row["WINDOW_START"], row["WINDOW_END"]),
                row["LATE_BY"],
                row["ROW"],
            )
            for row in batch.to_pylist()
        ]
    return found


def ledger_end(log: Log, topic: str | None) -> int:
    ends = log.snapshot().ends.get(topic or "")
    return ends[0].end if ends else 0


def stamps_of(entries: Iterable[LateEntry]) -> Stamps:
    """The stream times that records were too late by."""
    found: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for entry in entries:
        if entry.partition is not None and entry.offset is not None:
            found[entry.topic, entry.partition][entry.offset] = entry.stream_time
    return found


def places_of(entries: Iterable[LateEntry]) -> Offsets:
    """Where the records stand. A row that a join made stands nowhere."""
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for entry in entries:
        if entry.partition is not None and entry.offset is not None:
            found[entry.topic, entry.partition].add(entry.offset)
    return {at: sorted(offsets) for at, offsets in found.items()}
