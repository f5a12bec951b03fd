"""Stream time where a log gives none: it belongs to a partition, and is the largest time before a record in it.

As the queries' own source makes it (`StampingReader.java`): a running maximum of Kafka's timestamps; a record that was
copied from another log was stamped there; and a record of a partition that had been idle is judged by what the others
had come to. That depends on when its batch was made, and is known only from the late ledger.

Whoever reads from a moment on needs no more: what lies before has smaller times, which close nothing that ends later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headrace.log.base import LOG_TIME, NO_STREAM_TIME, OFFSET, PARTITION, STREAM_TIME, Log, Records

REACHED = "$reached"
"""The largest time of the partition so far, the record's own among them: the first that records are ordered by."""
APART = 5_000
"""Chosen records are read together if they are no further apart: a read costs as much as some thousand rows."""

FIRST_MADE = 1 << 80
"""Numbers that stand for an order, on a log that gives no arrival numbers, begin here."""

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
Look = Callable[[Records], None]
"""Told of everything that is read; may raise when time is up."""
Stamps = Mapping[tuple[str, int], Mapping[int, int]]
"""By topic and partition, and offset: stream times that are known from elsewhere."""


@dataclass(frozen=True, slots=True)
class Stamping:
    """Reads partitions of a log without stream times, with them."""

    log: Log
    look: Look
    known: Stamps = field(default_factory=dict)

    def read(
        self, topic: str, number: int, span: tuple[int, int, int], columns: Sequence[str], closes: int | None
    ) -> Iterator[Records]:
        """`span`: from where on times count, from where on records do, and where both end. What is stamped with
        `closes` or more is left out; once its partition has come so far, so is all that follows."""
        first, start, end = span
        reached = self._reached(topic, number, first, start)
        names = [*(name for name in columns if name != STREAM_TIME), STREAM_TIME, LOG_TIME]
        for records in self.log.read(topic, number, start, end, names) if start < end else ():
            if closes is not None and reached >= closes:
                return
            self.look(records)
            stamped, reached = self._stamped(records, reached)
            stamps = stamped.batch.column(STREAM_TIME).to_numpy()
            yield _legible(stamped, stamps < (2**63 - 1 if closes is None else closes))

    def chosen(self, topic: str, number: int, offsets: Iterable[int], columns: Sequence[str]) -> Iterator[Records]:
        """Some records. What the ledger does not know of has no stream time here."""
        names = [*(name for name in columns if name != STREAM_TIME), STREAM_TIME, LOG_TIME]
        for some in _neighbours(offsets):
            for records in self.log.read(topic, number, some[0], some[-1] + 1, names):
                self.look(records)
                wanted = np.isin(np.asarray(records.each_offset()), some)
                alone = _legible(self._stamped(records, NO_STREAM_TIME)[0], wanted)
                yield replace(alone, batch=_by_their_stamps(alone.batch))

    def has_passed(self, topic: str, number: int, end: int, moment: int) -> bool:
        """Whether a record before `end` has that time or a later one. Kafka's search may find the mark of a transaction
        instead, so what it finds is looked at."""
        start = self.log.offset_at_time(topic, number, moment)
        for records in self.log.read(topic, number, start, end, [LOG_TIME]) if start < end else ():
            self.look(records)
            if np.any(records.batch.column(LOG_TIME).to_numpy() >= moment):
                return True
        return False

    def _reached(self, topic: str, number: int, first: int, start: int) -> int:
        reached = NO_STREAM_TIME
        for records in self.log.read(topic, number, first, start, [LOG_TIME]) if first < start else ():
            self.look(records)
            reached = max(reached, int(records.batch.column(LOG_TIME).to_numpy().max()))
        return reached

    def _stamped(self, records: Records, reached: int) -> tuple[Records, int]:
        batch = records.batch
        so_far = np.maximum.accumulate(np.maximum(batch.column(LOG_TIME).to_numpy(), reached))
        stamps = np.maximum(_before(so_far, reached), batch.column(STREAM_TIME).to_numpy())
        known = self.known.get((records.topic, records.partition))
        if known:
            for row, offset in enumerate(records.each_offset()):
                stamps[row] = max(stamps[row], known.get(offset, NO_STREAM_TIME))
        batch = batch.set_column(batch.schema.get_field_index(STREAM_TIME), STREAM_TIME, pa.array(stamps))
        return replace(records, batch=batch.append_column(REACHED, pa.array(so_far))), int(so_far[-1])


def _before(so_far: Numbers, reached: int) -> Numbers:
    return np.concatenate((np.array([reached], np.int64), so_far[:-1]))


def _by_their_stamps(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A record that came late had its place behind what closed its window."""
    reached = np.maximum(batch.column(REACHED).to_numpy(), batch.column(STREAM_TIME).to_numpy())
    return batch.set_column(batch.schema.get_field_index(REACHED), REACHED, pa.array(reached))


def _legible(records: Records, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Records:
    """Of the wanted rows those that are in the topic's format. What is not is a dead letter and no row; its time has
    counted."""
    kept = wanted.copy()
    kept[list(records.errors or ())] = False
    rows = np.flatnonzero(kept)
    offsets = [int(offset) for offset in np.asarray(records.each_offset())[rows]]
    return replace(records, batch=records.batch.take(pa.array(rows, pa.int64())), offsets=offsets, errors=None)


def _neighbours(offsets: Iterable[int]) -> list[list[int]]:
    """
    >>> _neighbours([1, 2, 9000])
    [[1, 2], [9000]]
    """
    groups: list[list[int]] = []
    for offset in sorted(offsets):
        if groups and offset - groups[-1][-1] <= APART:
            groups[-1].append(offset)
        else:
            groups.append([offset])
    return groups


def order_of(batch: pa.RecordBatch) -> tuple[pa.Array, list[int]]:
    """In which order rows come, and a number for each that says so: how far time had come in their partition, then
    partition, then offset (docs/decisions/0050)."""
    reached, partitions, offsets = (batch.column(name).to_numpy() for name in (REACHED, PARTITION, OFFSET))
    order = np.lexsort((offsets, partitions, reached))
    numbers = [
        (int(reached[row]) + 1) * FIRST_MADE | (int(partitions[row]) << 64) | int(offsets[row])
        for row in order.tolist()
    ]
    return pa.array(order), numbers
