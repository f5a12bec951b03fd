"""Several sends travel as one batch; each gets its own positions back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.log.base import Appended
from headrace.log.writing.partitioning import Partitions

_FEW = 256


def cut_positions(whole: Appended, partitions: Partitions, cuts: Sequence[int]) -> list[Appended]:
    """The answer for each run of `cuts` rows, out of the answer for the whole batch. `partitions` are those of the rows
    that were stored, so without duplicates."""
    if len(cuts) == 1:
        return [whole]
    if isinstance(partitions, int) and not whole.duplicates:
        return _in_one(whole, cuts)
    if sum(cuts) <= _FEW:
        return _one_by_one(whole, partitions, cuts)
    edges = np.concatenate([[0], np.cumsum(cuts)])
    duplicates = np.array(whole.duplicates, np.int64)
    before = np.searchsorted(duplicates, edges)
    stored = edges - before
    found: list[list[tuple[int, int, int]]] = [[] for _ in cuts]
    for number, first, rows in _rows_of(whole, partitions):
        ends = stored if rows is None else np.searchsorted(rows, stored)
        for send in np.flatnonzero(np.diff(ends)).tolist():
            found[send].append((number, first + int(ends[send]), first + int(ends[send + 1]) - 1))
    if not whole.duplicates:
        return [Appended(tuple(positions)) for positions in found]
    return [
        Appended(tuple(found[send]), tuple((duplicates[before[send] : before[send + 1]] - edges[send]).tolist()))
        for send in range(len(cuts))
    ]


def _one_by_one(whole: Appended, partitions: Partitions, cuts: Sequence[int]) -> list[Appended]:
    """For few rows a loop is faster than setting up vectors."""
    nexts = {number: first for number, first, _ in whole.positions}
    numbers = [partitions] * (sum(cuts) - len(whole.duplicates)) if isinstance(partitions, int) else partitions.tolist()
    if not whole.duplicates and set(cuts) == {1}:
        return [_next(nexts, number) for number in numbers]
    stored, duplicates = iter(numbers), set(whole.duplicates)
    cut, row = [], 0
    for rows in cuts:
        found: dict[int, tuple[int, int, int]] = {}
        again = []
        for index in range(rows):
            if row + index in duplicates:
                again.append(index)
                continue
            number = next(stored)
            offset = nexts[number]
            nexts[number] = offset + 1
            found[number] = (number, found[number][1] if number in found else offset, offset)
        cut.append(Appended(tuple(found[number] for number in sorted(found)), tuple(again)))
        row += rows
    return cut


def _next(nexts: dict[int, int], number: int) -> Appended:
    """A single record's answer."""
    offset = nexts[number]
    nexts[number] = offset + 1
    return Appended(((number, offset, offset),))


def _in_one(whole: Appended, cuts: Sequence[int]) -> list[Appended]:
    """All rows are in one partition and all were stored."""
    [(number, first, _)] = whole.positions or [(0, 0, 0)]
    cut = []
    for rows in cuts:
        cut.append(Appended(((number, first, first + rows - 1),) if rows else ()))
        first += rows
    return cut


def _rows_of(whole: Appended, partitions: Partitions) -> list[tuple[int, int, Any]]:
    """(partition, its first offset, the rows that went there: None for all of them)."""
    if isinstance(partitions, int):
        return [(number, first, None) for number, first, _ in whole.positions]
    order = np.argsort(partitions, kind="stable")
    ordered = partitions[order]
    edges = [np.searchsorted(ordered, [number, number + 1]) for number, _, _ in whole.positions]
    return [
        (number, first, order[edge[0] : edge[1]])
        for (number, first, _), edge in zip(whole.positions, edges, strict=True)
    ]
