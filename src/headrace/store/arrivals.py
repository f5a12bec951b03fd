"""Reading one topic in order of arrival, across its partitions.

Followers and feeds read the same way: everything of a topic between two positions, in bounded stretches. A stretch
ends at one arrival number for all partitions, or, on a log that gives no arrival numbers, at an offset of each; so
whoever stops there and continues later misses nothing and sees nothing twice.

Without arrival numbers, records of different partitions are ordered within a stretch by the largest time that their
partition has had so far, by partition and by offset: nearly the order of time, and never against the order within a
partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import NotFound, OffsetOutOfRange
from headrace.log.base import ARRIVAL, OFFSET, PARTITION, TIME, Log, PartitionEnds, Records, Snapshot
from headrace.store.base import Position

BEGINNING = Position(0, {})


@dataclass(frozen=True, slots=True)
class Stretch:
    """All records of a topic from one position up to `position`. Within a partition in order, partitions one after
    the other."""

    records: tuple[Records, ...]
    position: Position

    @property
    def rows(self) -> int:
        return _rows(self.records)


def topic_ends(snapshot: Snapshot, topic: str) -> tuple[PartitionEnds, ...]:
    ends = snapshot.ends.get(topic)
    if ends is None:
        raise NotFound(f"topic `{topic}` does not exist")
    return ends


def has_arrivals(log: Log) -> bool:
    """Is there one order over all partitions?"""
    return "arrival" in log.capabilities


def position_of(offsets: Mapping[int, int]) -> Position:
    """On a log without arrival numbers. What stands for one grows with every record that is taken in."""
    return Position(sum(offsets.values()), offsets)


def position_at_end(log: Log, snapshot: Snapshot, topic: str) -> Position:
    """After everything the topic holds."""
    offsets = {number: ends.end for number, ends in enumerate(topic_ends(snapshot, topic))}
    return Position(snapshot.arrival, offsets) if has_arrivals(log) else position_of(offsets)


def position_at_start(log: Log, snapshot: Snapshot, topic: str) -> Position:
    """Before everything the topic still holds."""
    offsets = {number: ends.start for number, ends in enumerate(topic_ends(snapshot, topic))}
    return Position(0, offsets) if has_arrivals(log) else position_of(offsets)


def behind(snapshot: Snapshot, topic: str, position: Position) -> int:
    """How many records of the topic are not included in `position`. A topic that is gone has none."""
    missing, offsets = 0, position.offsets
    # Each subscriber asks several times for each event: a plain loop takes half as long as a sum over a generator.
    for number, end in enumerate(snapshot.ends.get(topic, ())):
        missing += max(0, end.end - max(end.start, offsets.get(number, end.start)))
    return missing


def read_stretch(
    log: Log,
    topic: str,
    after: Position,
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    max_rows: int = 20_000,
) -> Stretch:
    """What follows `after`, up to the snapshot or about `max_rows`, whichever is less. `columns` must have `$arrival`,
    which a log without arrival numbers is not asked for.

    `OffsetOutOfRange` if the log no longer holds all of it."""
    ends = topic_ends(snapshot, topic)
    ordered = has_arrivals(log)
    if columns is not None and not ordered:
        columns = [name for name in columns if name != ARRIVAL]
    share = max(1, max_rows // max(1, len(ends)))
    offsets = {number: after.offsets.get(number, end.start) for number, end in enumerate(ends)}
    gathered: dict[int, list[Records]] = {}
    cut = snapshot.arrival
    for number, end in enumerate(ends):
        if offsets[number] < end.start:
            raise OffsetOutOfRange(
                f"offset `{offsets[number]}` of `{topic}`/{number} is before the start `{end.start}`"
            )
        if offsets[number] < end.end:
            found = gathered[number] = list(take(log.read(topic, number, offsets[number], end.end, columns), share))
            if ordered and _rows(found) >= share and found[-1].next_offset < end.end:
                cut = min(cut, last_arrival(found[-1]) + 1)
    kept: list[Records] = []
    for number, found in gathered.items():
        inside = [part for part in (below(part, cut) for part in found) if part] if ordered else found
        kept += inside
        if _rows(inside) == _rows(found) < share:
            offsets[number] = ends[number].end  # read to the end, whatever gaps there are
        elif inside:
            offsets[number] = inside[-1].next_offset
    if not ordered:
        return Stretch(tuple(without_arrival(part) for part in kept), position_of(offsets))
    return Stretch(tuple(kept), Position(cut, offsets))


def without_arrival(records: Records) -> Records:
    """A log that gives no arrival numbers may still fill their column."""
    if ARRIVAL not in records.batch.schema.names:
        return records
    return replace(records, batch=records.batch.drop_columns([ARRIVAL]))


def _rows(records: Iterable[Records]) -> int:
    return sum(part.batch.num_rows for part in records)


def take(records: Iterable[Records], rows: int) -> Iterator[Records]:
    """The first rows only; what follows is not read."""
    for part in records:
        if part.batch.num_rows:
            yield head(part, rows)
        rows -= part.batch.num_rows
        if rows <= 0:
            return


def gathered(frames: Iterable[Records], rows: int) -> Iterator[Records]:
    """What small frames have, as runs of at least so many rows: looking through a frame of one event costs as much as
    through one of thousands. All are of one partition."""
    held: list[Records] = []
    count = 0
    for records in frames:
        held.append(records)
        count += records.batch.num_rows
        if count >= rows:
            yield _as_one(held)
            held, count = [], 0
    if held:
        yield _as_one(held)


def _as_one(frames: list[Records]) -> Records:
    if len(frames) == 1:
        return frames[0]
    whole = replace(frames[0], batch=pa.concat_batches([one.batch for one in frames]))
    if frames[-1].next_offset - whole.first_offset == whole.batch.num_rows:
        return replace(whole, offsets=None)
    return replace(whole, offsets=[offset for one in frames for offset in one.each_offset()])


def head(records: Records, rows: int) -> Records:
    """The first rows only."""
    if rows >= records.batch.num_rows:
        return records
    offsets = None if records.offsets is None else records.offsets[:rows]
    return replace(records, batch=records.batch.slice(0, rows), offsets=offsets)


def last_arrival(records: Records) -> int:
    last: int = records.batch.column(ARRIVAL)[-1].as_py()
    return last


def below(records: Records, arrival: int) -> Records | None:
    """What arrived before `arrival`; None if nothing did. Arrival numbers grow within a partition."""
    if last_arrival(records) < arrival:
        return records
    rows = int(np.searchsorted(records.batch.column(ARRIVAL).to_numpy(), arrival))
    return head(records, rows) if rows else None


def merge(changes: Sequence[Records], after: Position = BEGINNING) -> pa.RecordBatch | None:
    """One batch in order of arrival, without what `after` includes, with the columns `$partition` and `$offset` added.
    None if that leaves nothing. All changes have the same columns, those of a partition stand together."""
    new = [_beyond(records, after.offsets.get(records.partition, 0)) for records in changes]
    batches = [addressed(records) for records in new if records.batch.num_rows]
    if not batches:
        return None
    batch = pa.concat_batches(batches)
    if len({records.partition for records in new}) > 1:
        batch = batch.take(_order(batch))
    return batch


def _beyond(records: Records, offset: int) -> Records:
    """What has this offset or a larger one."""
    if not records.batch.num_rows or records.first_offset >= offset:
        return records
    if records.offsets is None:
        rows = min(offset - records.first_offset, records.batch.num_rows)
        return replace(records, batch=records.batch.slice(rows), first_offset=records.first_offset + rows)
    rows = int(np.searchsorted(np.asarray(records.offsets), offset))
    left = records.offsets[rows:]
    return replace(records, batch=records.batch.slice(rows), first_offset=left[0] if left else offset, offsets=left)


def _order(batch: pa.RecordBatch) -> pa.Array:
    if ARRIVAL in batch.schema.names:
        return pc.sort_indices(batch.column(ARRIVAL))
    times, partitions = batch.column(TIME).to_numpy().copy(), batch.column(PARTITION).to_numpy()
    for partition in np.unique(partitions):
        rows = partitions == partition
        times[rows] = np.maximum.accumulate(times[rows])
    return pa.array(np.lexsort((batch.column(OFFSET).to_numpy(), partitions, times)))


def addressed(records: Records) -> pa.RecordBatch:
    """The records with their partition and offset as columns."""
    rows = records.batch.num_rows
    offsets = range(records.first_offset, records.first_offset + rows) if records.offsets is None else records.offsets
    partitions = pa.array(np.full(rows, records.partition, np.int64))
    batch = records.batch.append_column(PARTITION, partitions)
    return batch.append_column(OFFSET, pa.array(np.fromiter(offsets, np.int64, rows)))


def first_arrival_at(log: Log, now: Snapshot, topic: str, offsets: Sequence[int]) -> int:
    """Return the smallest arrival number of the records at these offsets, one of each partition; that of the next
    record of the log if there are none."""
    found = now.arrival
    for number, (offset, end) in enumerate(zip(offsets, topic_ends(now, topic), strict=True)):
        if offset < end.end:
            for records in log.read(topic, number, offset, offset + 1, [ARRIVAL]):
                found = min(found, records.batch.column(ARRIVAL)[0].as_py())
    return found
