"""Records of several partitions in one order: that in which queries over Kafka see them.

By how far time has come in their partition with them, then by topic, partition and offset (`OrderedCut.java`). A log
that numbers its records across topics gets them in it, so joins, and what is late, mean there what they meant before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from headrace.log.base import TIME, Log, Records


@dataclass(slots=True)
class Lane:
    """A partition that is being read. `place` is its topic's in the order of topics."""

    place: int
    topic: str
    partition: int
    source: Iterator[Records]
    records: Records | None = None
    reached: Any = None
    """By row, the largest time so far."""
    taken: int = 0
    done: bool = False

    def fill(self) -> None:
        """Have rows at hand, if there are any left."""
        while not self.done and (self.records is None or self.taken >= self.records.batch.num_rows):
            before = -1 if self.reached is None else int(self.reached[-1])
            self.records, self.taken = next(self.source, None), 0
            if self.records is None:
                self.done = True
            elif self.records.batch.num_rows:
                times = self.records.batch.column(TIME).to_numpy()
                self.reached = np.maximum(np.maximum.accumulate(times), before)

    @property
    def last(self) -> int:
        return int(self.reached[-1])

    def take_until(self, time: int) -> Piece | None:
        """The rows whose time has come."""
        end = int(np.searchsorted(self.reached, time, side="right"))
        if end <= self.taken or self.records is None:
            return None
        piece = Piece(self, self.records, self.taken, end)
        self.taken = end
        return piece


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows `first` to before `end` of some records."""

    lane: Lane
    records: Records
    first: int
    end: int

    def cut(self, first: int, end: int) -> Records:
        """Counted from the piece's first row."""
        at, count = self.first + first, end - first
        offsets = self.records.each_offset()[at : at + count]
        return Records(
            self.lane.topic, self.lane.partition, offsets[0], self.records.batch.slice(at, count), tuple(offsets)
        )


@dataclass(frozen=True, slots=True)
class _Keys:
    """What rows are sorted by, one array each."""

    reached: list[Any] = field(default_factory=list)
    pieces: list[Any] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)


def paged(log: Log, topic: str, partition: int, start: int, end: int, rows: int) -> Iterator[Records]:
    """A range of offsets, a part at a time: nothing is held open while the other partitions have their turn."""
    for at in range(start, end, rows):
        yield from list(log.read(topic, partition, at, min(at + rows, end)))


def in_order(lanes: Sequence[Lane], most: int) -> Iterator[list[Records]]:
    """Runs of records in that order, in lists of at most so many rows."""
    for lane in lanes:
        lane.fill()
    while open_ := [lane for lane in lanes if not lane.done]:
        # Of the partition that is least far, all rows at hand; of the others what comes no later.
        frontier = min(lane.last for lane in open_)
        pieces = [piece for lane in open_ if (piece := lane.take_until(frontier)) is not None]
        yield from _chunks(list(_runs(sorted(pieces, key=lambda one: (one.lane.place, one.lane.partition)))), most)
        for lane in open_:
            lane.fill()


def _runs(pieces: Sequence[Piece]) -> Iterator[Records]:
    """The pieces' rows in order, those that follow each other in one partition together."""
    keys = _Keys()
    for number, piece in enumerate(pieces):
        count = piece.end - piece.first
        keys.reached.append(_reached(piece))
        keys.pieces.append(np.full(count, number))
        keys.rows.append(np.arange(count))
    reached, owners, rows = (np.concatenate(arrays) for arrays in (keys.reached, keys.pieces, keys.rows))
    order = np.lexsort((rows, owners, reached))
    owners, rows = owners[order], rows[order]
    edges = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
    for first, end in pairwise(edges):
        yield pieces[int(owners[first])].cut(int(rows[first]), int(rows[end - 1]) + 1)


def _reached(piece: Piece) -> Any:
    return piece.lane.reached[piece.first : piece.end]


def _chunks(runs: Sequence[Records], most: int) -> Iterator[list[Records]]:
    chunk: list[Records] = []
    rows = 0
    for run in runs:
        chunk.append(run)
        rows += run.batch.num_rows
        if rows >= most:
            yield chunk
            chunk, rows = [], 0
    if chunk:
        yield chunk
