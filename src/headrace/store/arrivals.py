"""Reading one topic in order of arrival numbers, across its partitions.

Followers and feeds read the same way: everything of a topic between two positions, in bounded stretches. A stretch
ends at one arrival number for all partitions, so whoever stops there and continues later misses nothing and sees
nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import NotFound, OffsetOutOfRange
from headrace.log.base import ARRIVAL, OFFSET, PARTITION, Log, PartitionEnds, Records, Snapshot
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


def position_at_end(snapshot: Snapshot, topic: str) -> Position:
    """After everything the topic holds."""
    return Position(snapshot.arrival, {number: ends.end for number, ends in enumerate(topic_ends(snapshot, topic))})


def position_at_start(snapshot: Snapshot, topic: str) -> Position:
    """Before everything the topic still holds."""
    return Position(0, {number: ends.start for number, ends in enumerate(topic_ends(snapshot, topic))})


def behind(snapshot: Snapshot, topic: str, position: Position) -> int:
    """How many records of the topic are not included in `position`. A topic that is gone has none."""
    ends = snapshot.ends.get(topic, ())
    return sum(max(0, end.end - max(end.start, position.offsets.get(n, end.start))) for n, end in enumerate(ends))


def read_stretch(
    log: Log,
    topic: str,
    after: Position,
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    max_rows: int = 20_000,
) -> Stretch:
    """What follows `after`, up to the snapshot or about `max_rows`, whichever is less. `columns` must have `$arrival`.

    `OffsetOutOfRange` if the log no longer holds all of it."""
    ends = topic_ends(snapshot, topic)
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
            found = gathered[number] = list(_take(log.read(topic, number, offsets[number], end.end, columns), share))
            if _rows(found) >= share and found[-1].next_offset < end.end:
                cut = min(cut, last_arrival(found[-1]) + 1)
    kept: list[Records] = []
    for number, found in gathered.items():
        inside = [part for part in (below(part, cut) for part in found) if part]
        kept += inside
        if _rows(inside) == _rows(found) < share:
            offsets[number] = ends[number].end  # read to the end, whatever gaps there are
        elif inside:
            offsets[number] = inside[-1].next_offset
    return Stretch(tuple(kept), Position(cut, offsets))


def _rows(records: Iterable[Records]) -> int:
    return sum(part.batch.num_rows for part in records)


def _take(records: Iterable[Records], rows: int) -> Iterator[Records]:
    """The first `rows` rows."""
    for part in records:
        if part.batch.num_rows:
            yield head(part, rows)
        rows -= part.batch.num_rows
        if rows <= 0:
            return


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


def merge(changes: Sequence[Records], arrival: int = 0) -> pa.RecordBatch | None:
    """One batch in order of arrival, without what is below `arrival`, with the columns `$partition` and `$offset`
    added. None if that leaves nothing. All changes have the same columns."""
    batches = [addressed(records) for records in changes if records.batch.num_rows]
    if not batches:
        return None
    batch = pa.concat_batches(batches)
    if len({records.partition for records in changes}) > 1:
        batch = batch.take(pc.sort_indices(batch.column(ARRIVAL)))
    first = int(np.searchsorted(batch.column(ARRIVAL).to_numpy(), arrival))
    return batch.slice(first) if first < batch.num_rows else None


def addressed(records: Records) -> pa.RecordBatch:
    """The records with their partition and offset as columns."""
    rows = records.batch.num_rows
    offsets = range(records.first_offset, records.first_offset + rows) if records.offsets is None else records.offsets
    partitions = pa.array(np.full(rows, records.partition, np.int64))
    batch = records.batch.append_column(PARTITION, partitions)
    return batch.append_column(OFFSET, pa.array(np.fromiter(offsets, np.int64, rows)))
