"""Rows that several tasks handed over, as one sequence in their own order.

A task of Spark has the rows of one partition, or of one part of the keys. Committed task after task, a derived stream
would have all records of its first partition before those of the second: stream time would have run ahead, and however
well the others keep step they would be late. In the order they were made from, it does not matter how large a batch
was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.log.writing.partitioning import Partitions
from headrace.log.writing.prepare import Prepared

NONE = np.iinfo(np.int64).min


class _Head:
    """Where we are in what one task handed over."""

    def __init__(self, parts: Iterator[Prepared]) -> None:
        self._parts = parts
        self._part: Prepared | None = None
        self._order: Any = np.empty(0, np.int64)
        self._position = 0
        self._reached = NONE
        self._advance()

    @property
    def is_over(self) -> bool:
        return self._part is None

    @property
    def last(self) -> int:
        """Of the part we are in."""
        return self._reached

    def _advance(self) -> None:
        self._part, self._position = next(self._parts, None), 0
        if self._part is not None:
            assert self._part.order is not None
            # A row that comes after one with a larger number stays behind it: nothing is lost, whatever a task says.
            self._order = np.maximum.accumulate(np.maximum(self._part.order, self._reached))
            self._reached = int(self._order[-1])

    def take(self, bound: int) -> tuple[Prepared, Any] | None:
        """The rows up to that number, of the part we are in, and their order."""
        assert self._part is not None
        first, after = self._position, int(np.searchsorted(self._order, bound, side="right"))
        if after == first:
            return None
        taken = _slice(self._part, first, after), self._order[first:after]
        self._position = after
        if after == len(self._order):
            self._advance()
        return taken


def merge(tasks: Sequence[Iterator[Prepared]]) -> Iterator[Prepared]:
    """Parts of one topic, with an order, in that order. Of each task one part is in memory at a time."""
    heads = [head for parts in tasks if not (head := _Head(parts)).is_over]
    while heads:
        bound = min(head.last for head in heads)
        yield _joined([taken for head in heads if (taken := head.take(bound)) is not None])
        heads = [head for head in heads if not head.is_over]


def _joined(pieces: Sequence[tuple[Prepared, Any]]) -> Prepared:
    first = pieces[0][0]
    if len(pieces) == 1:
        return replace(first, order=None)
    rows = np.argsort(np.concatenate([order for _, order in pieces]), kind="stable")
    batch = pa.concat_batches([part.batch for part, _ in pieces]).take(pa.array(rows))
    partitions = _partitions([part for part, _ in pieces], rows)
    return replace(first, batch=batch, partitions=partitions, bytes=batch.nbytes, order=None)


def _partitions(parts: Sequence[Prepared], rows: Any) -> Partitions:
    chosen = {part.partitions for part in parts if isinstance(part.partitions, int)}
    if len(chosen) == 1 and all(isinstance(part.partitions, int) for part in parts):
        return chosen.pop()
    spread = [np.broadcast_to(np.asarray(part.partitions, np.int64), (part.batch.num_rows,)) for part in parts]
    taken: Partitions = np.concatenate(spread)[rows]
    return taken


def _slice(part: Prepared, first: int, after: int) -> Prepared:
    if after - first == part.batch.num_rows:
        return part
    partitions = part.partitions if isinstance(part.partitions, int) else part.partitions[first:after]
    batch = part.batch.slice(first, after - first)
    return replace(part, batch=batch, partitions=partitions, bytes=batch.nbytes)
