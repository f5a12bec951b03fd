"""A source's records up to a cut of the log, with where each stood: only those that can matter.

Whole frames are looked at as Arrow columns, and only records that pass become rows, so cost follows what is found. A
window's records are found by time; nothing behind the moment it closed is read, except what the late ledger names.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import DeadlineExceeded, NotFound, UsageError
from headrace.log.base import (
    ARRIVAL,
    OFFSET,
    PARTITION,
    STREAM_TIME,
    TIME,
    TOMBSTONE,
    WINDOW_END,
    WINDOW_START,
    Log,
    PartitionEnds,
    Records,
)
from headrace.sql.functions.arrays import hashable
from headrace.sql.source import Source
from headrace.store.arrivals import addressed, below, gathered, last_arrival
from headrace.store.columns import python_values
from headrace.store.cuts import Cut, Places
from headrace.store.decode import SourceDecoder, to_arrow
from headrace.views.stamping import REACHED, Stamping, Stamps, order_of
from headrace.views.traced import EVERYTHING, Bounds, Origin, Traced, Wanted

MOST_RECORDS = 1_000_000
"""More are not made into rows here: that is a rebuild, not an explanation."""
AT_ONCE = 10_000
"""Rows that are looked through together: live frames have only a few."""
# Arrow cannot compare nested values with a set of them.
_SIMPLE = (bool, int, float, str, bytes)

Offsets = Mapping[tuple[str, int], Sequence[int]]
"""Some records: by topic and partition, in order."""


def holds(offsets: Offsets, topic: str, partition: int, offset: int) -> bool:
    """Whether a record is among those, which are in order."""
    there = offsets.get((topic, partition), ())
    place = bisect_left(there, offset)
    return place < len(there) and there[place] == offset


@dataclass(slots=True)
class Reader:
    """Reads what `cut` includes. Remembers how much it looked at, and what retention had taken away."""

    log: Log
    cut: Cut
    late: Offsets = field(default_factory=dict)
    """Records that are admitted though they came too late."""
    only: Offsets | None = None
    """Instead of everything."""
    deadline: float | None = None
    """Monotonic seconds."""
    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By topic and partition: where the query began to read, if not at the beginning."""
    stamps: Stamps = field(default_factory=dict)
    """On a log without stream times: those that the late ledger knows."""
    margin_ms: int = 0
    """On Kafka, how much earlier than a window its records are looked for: Kafka finds them by its own timestamps."""
    looked_at: int = 0
    missing: set[str] = field(default_factory=set)
    """Topics that no longer hold everything that had to be read."""

    def read(self, source: Source, wanted: Wanted = EVERYTHING) -> list[Traced]:
        """In order of arrival. Of a table every change of the keys that matter; one that only once was wanted is."""
        if source.kind == "stream":
            return self._rows(source, wanted)
        keys = {column.name for column in source.key} | ({"WINDOWSTART", "WINDOWEND"} if source.window else set())
        by_key = Wanted({name: values for name, values in wanted.columns.items() if name in keys})
        others = Wanted({name: values for name, values in wanted.columns.items() if name not in keys})
        if not others.columns:
            return self._rows(source, by_key)
        once = self._rows(source, Wanted(wanted.columns))
        found = {name: frozenset(hashable(row.values[name]) for row in once) for name in keys}
        return self._rows(source, Wanted(found)) if once else []

    def stream_time(self, topic: str, arrival: int) -> int:
        """The largest event time that the topic had when that number was given."""
        ends = self.log.snapshot()
        following: list[tuple[int, int]] = []
        for number, end in enumerate(ends.ends.get(topic, ())):
            offset = self.log.offset_at_arrival(topic, number, arrival)
            if offset < end.end:
                for records in self.log.read(topic, number, offset, offset + 1, [ARRIVAL, STREAM_TIME]):
                    [row] = records.batch.to_pylist()
                    following.append((row[ARRIVAL], row[STREAM_TIME]))
        return min(following)[1] if following else ends.stream_times.get(topic, -1)

    def _rows(self, source: Source, wanted: Wanted) -> list[Traced]:
        topic = self.log.topic(source.topic)
        # On Kafka a stream over a raw topic says itself what its time is.
        own_time = topic.spec.kind == "raw" and not isinstance(self.cut, int)
        declared = source if own_time else replace(source, timestamp=None)
        decoder = SourceDecoder(topic, declared, self.log.schemas)
        if own_time and source.timestamp is not None:
            wanted = replace(wanted, since=None, until=None)
        masks = _masks(decoder, wanted)
        parts = [part for part in self._parts(decoder, wanted, masks) if part.num_rows]
        if not parts:
            return []
        rows = _traced(*_in_order(pa.concat_batches(parts)), decoder, source)
        left = Wanted({name: values for name, values in wanted.columns.items() if name not in masks})
        return [row for row in rows if left.admits(row.values)] if left.columns else rows

    def _parts(self, decoder: SourceDecoder, wanted: Wanted, masks: dict[str, pa.Array]) -> Iterator[pa.RecordBatch]:
        topic, found = decoder.source.topic, 0
        for number, ends in enumerate(self._ends(topic)):
            for records in self._frames(decoder, wanted, number, ends):
                part = _matching(records, wanted, masks)
                found += part.num_rows
                if found > MOST_RECORDS:
                    raise UsageError(
                        f"more than {MOST_RECORDS:,} records of `{topic}` have to be looked at one by one",
                        hint="ask for a key, and for a window, that fewer belong to",
                    )
                yield part

    def _ends(self, topic: str) -> tuple[PartitionEnds, ...]:
        ends = self.log.snapshot().ends.get(topic)
        if ends is None:
            raise NotFound(f"topic `{topic}` does not exist")
        return ends

    def _frames(self, decoder: SourceDecoder, wanted: Wanted, number: int, ends: PartitionEnds) -> Iterator[Records]:
        topic, columns = decoder.source.topic, [*decoder.columns, STREAM_TIME]
        if not isinstance(self.cut, int):
            yield from self._stamped(self.cut, topic, columns, wanted, number, ends)
        else:
            for records in self._arrived(self.cut, topic, columns, wanted, number, ends):
                self._look(records)
                yield records

    def _arrived(
        self, cut: int, topic: str, columns: list[str], wanted: Wanted, number: int, ends: PartitionEnds
    ) -> Iterator[Records]:
        if self.only is not None:
            yield from self._chosen(cut, topic, number, self.only.get((topic, number), ()), columns, ends)
            return
        begun = self.starts.get(topic, {}).get(number, 0)
        start = max(begun, ends.start)
        if wanted.since is not None:
            start = max(start, self.log.offset_at_time(topic, number, wanted.since))
        if start == ends.start > begun:
            self.missing.add(topic)
        if start < ends.end:
            frames = gathered(self.log.read(topic, number, start, ends.end, columns), AT_ONCE)
            yield from self._until(frames, cut, wanted.closes)
        if wanted.closes is not None:
            # Without a moment at which to stop, they have been read with the others.
            yield from self._chosen(cut, topic, number, self.late.get((topic, number), ()), columns, ends)

    def _stamped(
        self, cut: Places, topic: str, columns: list[str], wanted: Wanted, number: int, ends: PartitionEnds
    ) -> Iterator[Records]:
        """The same where a cut is offsets, and stream times have to be made."""
        stamping = Stamping(self.log, self._look, self.stamps)
        end = min(ends.end, cut.get(topic, {}).get(number, 0))
        if self.only is not None:
            yield from stamping.chosen(topic, number, self._there(topic, number, self.only, ends, end), columns)
            return
        begun = self.starts.get(topic, {}).get(number, 0)
        first = ends.start
        if wanted.since is not None:
            first = max(first, self.log.offset_at_time(topic, number, max(0, wanted.since - self.margin_ms)))
        start = max(begun, first)
        if start == ends.start > begun:
            self.missing.add(topic)
        yield from stamping.read(topic, number, (first, start, end), columns, wanted.closes)
        if wanted.closes is not None:
            yield from stamping.chosen(topic, number, self._there(topic, number, self.late, ends, end), columns)

    def _there(self, topic: str, number: int, some: Offsets, ends: PartitionEnds, end: int) -> list[int]:
        wanted = [offset for offset in some.get((topic, number), ()) if offset < end]
        if any(offset < ends.start for offset in wanted):
            self.missing.add(topic)
        return [offset for offset in wanted if offset >= ends.start]

    def _until(self, frames: Iterable[Records], cut: int, closes: int | None) -> Iterator[Records]:
        """Up to the cut, and to where stream time closed the window: neither ever goes back."""
        for records in frames:
            inside = below(records, cut)
            if inside is not None and closes is not None:
                times = inside.batch.column(STREAM_TIME).to_numpy()
                open_ = int(np.searchsorted(times, closes))
                if open_ < len(times):
                    offsets = None if inside.offsets is None else inside.offsets[:open_]
                    yield replace(inside, batch=inside.batch.slice(0, open_), offsets=offsets)
                    return
            if inside is not None:
                yield inside
            if inside is None or last_arrival(records) >= cut:
                return

    def _chosen(
        self, cut: int, topic: str, number: int, offsets: Iterable[int], columns: list[str], ends: PartitionEnds
    ) -> Iterator[Records]:
        for offset in offsets:
            if offset < ends.start:
                self.missing.add(topic)
                continue
            yield from self._until(self.log.read(topic, number, offset, offset + 1, columns), cut, None)

    def _look(self, records: Records) -> None:
        self.looked_at += records.batch.num_rows
        self.check_time()

    def check_time(self) -> None:
        """`DeadlineExceeded` if time is up: also to be asked where much is computed with what was read."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise DeadlineExceeded(
                f"{self.looked_at:,} records were looked at, and time is up",
                hint="ask for a window, or allow more time",
            )


def _masks(decoder: SourceDecoder, wanted: Wanted) -> dict[str, pa.Array]:
    """What can be checked on the topic's own columns: the values each may have."""
    found = {}
    for name, values in wanted.columns.items():
        stored = decoder.stored(name)
        plain = [value[1] for value in values]
        if stored is not None and all(value is None or isinstance(value, _SIMPLE) for value in plain):
            try:
                found[name] = to_arrow(plain, stored.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                continue
    return found


def _matching(records: Records, wanted: Wanted, masks: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """What passes, with its partition and offset. Of a frame in which nothing does, nothing is copied."""
    batch = records.batch
    passes = [_among(batch.column(_spelled(batch, name)), values) for name, values in masks.items()]
    if wanted.since is not None:
        passes.append(pc.greater_equal(batch.column(TIME), wanted.since))
    if wanted.until is not None:
        passes.append(pc.less(batch.column(TIME), wanted.until))
    if not passes:
        return addressed(records)
    mask = passes[0]
    for more in passes[1:]:
        mask = pc.and_(mask, more)
    rows = np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))
    offsets = rows + records.first_offset if records.offsets is None else np.asarray(records.offsets)[rows]
    found = replace(records, batch=batch.take(pa.array(rows)), offsets=[int(offset) for offset in offsets])
    return addressed(found)


def _among(array: pa.Array, values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type):
        # The log keeps microseconds; a moment is the same to the millisecond.
        array = pc.floor_temporal(array, unit="millisecond")
    if len(values) == 1 and values.null_count == 0:
        return pc.equal(array, values.cast(array.type)[0])
    return pc.is_in(array, value_set=values.cast(array.type))


def _spelled(batch: pa.RecordBatch, name: str) -> str:
    """The topic's spelling of a declared column."""
    names = batch.schema.names
    return name if name in names else next(one for one in names if one.casefold() == name.casefold())


def _in_order(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
    """The rows as they arrived, with numbers that say so."""
    if REACHED in batch.schema.names:
        order, numbers = order_of(batch)
        return batch.take(order), numbers
    batch = batch.take(pc.sort_indices(batch.column(ARRIVAL)))
    return batch, batch.column(ARRIVAL).to_pylist()


def _traced(batch: pa.RecordBatch, arrivals: list[int], decoder: SourceDecoder, source: Source) -> list[Traced]:
    decoded = decoder.decode(Records(source.topic, 0, 0, batch)).batch
    columns = source.key + source.value
    names = [column.name for column in columns]
    per_column = [python_values(decoded.column(column.name), column.type) for column in columns]
    times = decoded.column(TIME).to_pylist()
    stream_times, partitions, offsets = (batch.column(name).to_pylist() for name in (STREAM_TIME, PARTITION, OFFSET))
    dead = decoded.column(TOMBSTONE).to_pylist()
    windows: list[Bounds | None] = [None] * batch.num_rows
    if source.window is not None:
        bounds = (batch.column(name).to_pylist() for name in (WINDOW_START, WINDOW_END))
        windows = list(zip(*bounds, strict=True))
    rows = zip(*per_column, strict=True) if per_column else [()] * batch.num_rows
    found = []
    for row, arrival, stream_time, moment, partition, offset, gone, window in zip(
        rows, arrivals, stream_times, times, partitions, offsets, dead, windows, strict=True
    ):
        own = dict(zip(names, row, strict=True))
        origin = Origin(source.name, source.topic, partition, offset, arrival, moment, own, gone, window)
        values: dict[str, Any] = {"ROWTIME": moment, "ROWPARTITION": partition, "ROWOFFSET": offset}
        if window is not None:
            values["WINDOWSTART"], values["WINDOWEND"] = window
        values |= {header.name: None for header in source.headers}
        values |= own
        if source.kind == "table" and any(values[key.name] is None for key in source.key):
            continue  # no row of a table
        found.append(Traced(values, moment, stream_time, arrival, (origin,), gone, window))
    return found
