"""OVER: a row's place among others, and what lies around it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from headrace.deliver.ask.budget import Budget, Chunks, Row, chunked
from headrace.deliver.ask.folds import fold_of
from headrace.deliver.ask.ordering import sort_key, sort_rows
from headrace.sql.ask_plan import Around
from headrace.sql.expressions import Frame, Literal, Over
from headrace.sql.functions.arrays import hashable
from headrace.store.rows import names_of, over_rows, project_rows

Values: TypeAlias = list[Any]


def around_rows(node: Around, chunks: Chunks, budget: Budget) -> Chunks:
    rows: list[Row] = []
    for chunk in chunks:
        budget.hold(chunk)
        rows += chunk
    names = names_of(node.input.columns)
    columns = []
    for named in node.functions:
        assert isinstance(named.expression, Over)
        columns.append(_column(named.expression, rows, names, budget))
    added = zip(*columns, strict=True) if columns else iter([()] * len(rows))
    return chunked((row + more for row, more in zip(rows, added, strict=True)), budget)


def _column(over: Over, rows: list[Row], names: Sequence[str], budget: Budget) -> Values:
    """The function's value for each row, in the rows' order."""
    found: Values = [None] * len(rows)
    partition = project_rows(over.partition_by, names)
    parts: dict[Any, list[int]] = {}
    for place, row in enumerate(rows):
        parts.setdefault(tuple(map(hashable, partition(row))), []).append(place)
    # Under a name no column has, each row's place is carried along while its part is sorted.
    for places in parts.values():
        budget.look()
        ordered = sort_rows([(*rows[place], place) for place in places], over.order_by, [*names, "$place"])
        for row, value in zip(ordered, _Part(over, ordered, names, budget).values(), strict=True):
            found[row[-1]] = value
    return found


class _Part:
    """The rows of one partition, in order."""

    def __init__(self, over: Over, rows: list[Row], names: Sequence[str], budget: Budget) -> None:
        self.over, self.rows, self.names, self.budget = over, rows, names, budget
        compute = project_rows(over.arguments, names)
        self.arguments = [compute(row[:-1]) for row in rows]
        key = sort_key(over.order_by, names)
        self.keys = [key(row[:-1]) for row in rows] if over.order_by else [()] * len(rows)

    def values(self) -> Values:
        special = _FUNCTIONS.get(self.over.name)
        return special(self) if special is not None else self._aggregated()

    def number(self, place: int, default: int) -> int:
        """A constant argument."""
        if place >= len(self.over.arguments):
            return default
        argument = self.over.arguments[place]
        assert isinstance(argument, Literal)
        return int(argument.value)

    def peers(self) -> Iterator[tuple[int, int]]:
        """Where runs of rows of equal order begin and end."""
        start = 0
        for _, run in groupby(self.keys):
            end = start + sum(1 for _ in run)
            yield start, end
            start = end

    def frames(self) -> list[tuple[int, int]]:
        """Of each row the first and the one after the last of its frame. Without one it ends with the row's equals, or
        if there is no order with the last row."""
        frame, count = self.over.frame or Frame(None, 0, "RANGE"), len(self.rows)
        if frame.unit == "ROWS":
            return [_frame(frame, place, count) for place in range(count)]
        if frame.start or frame.end:
            return self._ranges(frame)
        return [
            (0 if frame.start is None else start, count if frame.end is None else end)
            for start, end in self.peers()
            for _ in range(start, end)
        ]

    def _ranges(self, frame: Frame) -> list[tuple[int, int]]:
        """Of rows ordered by a number those at most so far away; of a row without one its equals."""
        [by] = self.over.order_by
        number = over_rows(by.expression, self.names)
        values = [number(row[:-1]) for row in self.rows]
        known = [-value if by.descending else value for value in values if value is not None]
        # Nulls are first, or if descending last.
        first = 0 if by.descending else len(values) - len(known)
        found: list[tuple[int, int]] = []
        for (start, end), value in zip(self._peers_of_each(), values, strict=True):
            if value is not None:
                here = -value if by.descending else value
                start = start if frame.start is None else first + bisect_left(known, here + frame.start)
                end = end if frame.end is None else first + bisect_right(known, here + frame.end)
            start, end = 0 if frame.start is None else start, len(values) if frame.end is None else end
            found.append((start, max(start, end)))
        return found

    def _peers_of_each(self) -> list[tuple[int, int]]:
        return [(start, end) for start, end in self.peers() for _ in range(start, end)]

    def _aggregated(self) -> Values:
        make = fold_of(self.over.call)
        found: Values = []
        fold, begin, done = make(), 0, 0
        for start, end in self.frames():
            if start != begin or end < done:
                # A frame that lets go of rows is computed anew; most only grow.
                self.budget.look()
                fold, begin, done = make(), start, start
            if end > done:
                fold.add(self.arguments[done:end], done)
                done = end
            elif found and end == done and start == begin and end > start:
                found.append(found[-1])
                continue
            found.append(fold.result())
        return found


def _frame(frame: Frame, place: int, count: int) -> tuple[int, int]:
    start = 0 if frame.start is None else min(count, max(0, place + frame.start))
    end = count if frame.end is None else min(count, max(0, place + frame.end + 1))
    return start, max(start, end)


def _row_number(part: _Part) -> Values:
    return list(range(1, len(part.rows) + 1))


def _rank(part: _Part) -> Values:
    return [start + 1 for start, end in part.peers() for _ in range(start, end)]


def _dense_rank(part: _Part) -> Values:
    return [number for number, (start, end) in enumerate(part.peers(), 1) for _ in range(start, end)]


def _percent_rank(part: _Part) -> Values:
    others = len(part.rows) - 1
    return [(rank - 1) / others if others else 0.0 for rank in _rank(part)]


def _cume_dist(part: _Part) -> Values:
    return [end / len(part.rows) for start, end in part.peers() for _ in range(start, end)]


def _ntile(part: _Part) -> Values:
    size, longer = divmod(len(part.rows), part.number(0, 1))
    found: Values = []
    tile = 1
    while len(found) < len(part.rows):
        found += [tile] * (size + (1 if tile <= longer else 0))
        tile += 1
    return found


def _shifted(direction: int) -> Callable[[_Part], Values]:
    def values(part: _Part) -> Values:
        away, count = direction * part.number(1, 1), len(part.rows)
        found: Values = []
        for place, arguments in enumerate(part.arguments):
            other = place + away
            inside = 0 <= other < count
            found.append(part.arguments[other][0] if inside else arguments[2] if len(arguments) > 2 else None)
        return found

    return values


def _nth(part: _Part, choose: Callable[[int, int], int]) -> Values:
    places = [(choose(start, end), start, end) for start, end in part.frames()]
    return [part.arguments[place][0] if start <= place < end else None for place, start, end in places]


_FUNCTIONS: dict[str, Callable[[_Part], Values]] = {
    "ROW_NUMBER": _row_number,
    "RANK": _rank,
    "DENSE_RANK": _dense_rank,
    "PERCENT_RANK": _percent_rank,
    "CUME_DIST": _cume_dist,
    "NTILE": _ntile,
    "LAG": _shifted(-1),
    "LEAD": _shifted(1),
    "FIRST_VALUE": lambda part: _nth(part, lambda start, end: start),
    "LAST_VALUE": lambda part: _nth(part, lambda start, end: end - 1),
    "NTH_VALUE": lambda part: _nth(part, lambda start, end: start + part.number(1, 1) - 1),
}
