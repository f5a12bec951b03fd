"""Joins of rows that know their records. Rows of one side are read first where they say which keys of the other are
needed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import ColumnRef
from headrace.sql.functions.arrays import hashable
from headrace.sql.plan import Join, PlanNode, primary_key, scanned
from headrace.views.aggregates import ROWS_PER_LOOK
from headrace.views.reading import Reader
from headrace.views.traced import Traced, Wanted, key_of

Rows = Callable[[PlanNode, Wanted], list[Traced]]
# Without GRACE, how long rows are waited for: `process.lower.join` has the same day.
DEFAULT_GRACE_MS = 24 * 3600 * 1000


def join_rows(node: Join, wanted: Wanted, rows: Rows, reader: Reader) -> list[Traced]:
    """The join's rows in order of arrival; of a table its changes."""
    left = rows(node.left, _for_side(node, node.left, wanted))
    compute = compile_expression(node.left_key)
    keys = frozenset(hashable(compute(row.values)) for row in left)
    right_wanted = _for_side(node, node.right, wanted)
    # A right or full join has rows of the right that no left one knows of.
    if node.kind in ("inner", "left") and isinstance(node.right_key, ColumnRef):
        columns = dict(right_wanted.columns)
        name = node.right_key.name
        columns[name] = columns[name] & keys if name in columns else keys
        right_wanted = replace(right_wanted, columns=columns)
    if node.form != "stream-stream":
        right_wanted = Wanted(right_wanted.columns)
    both = _Sides(node, left, rows(node.right, right_wanted), reader)
    match node.form:
        case "stream-table":
            return _stream_table(both)
        case "table-table":
            return _table_table(both)
        case "foreign-key":
            return _foreign_key(both)
        case "stream-stream":
            return _stream_stream(both)


def _for_side(node: Join, side: PlanNode, wanted: Wanted) -> Wanted:
    """What of a side matters: its own columns, and the join's key."""
    own = {column.name for column in side.columns}
    columns = {name: values for name, values in wanted.columns.items() if name in own and _may_narrow(node, side)}
    expression = node.left_key if side is node.left else node.right_key
    if node.key is not None and node.key in wanted.columns and isinstance(expression, ColumnRef):
        columns[expression.name] = wanted.columns[node.key]
    return Wanted(columns, wanted.since, wanted.until)


def _may_narrow(node: Join, side: PlanNode) -> bool:
    """A row of a side that is left out must not make one of the other look unmatched, or a table's row look as it was
    before."""
    if side is node.left:
        return node.kind in ("inner", "left")
    return False


@dataclass(slots=True)
class _Sides:
    node: Join
    left: list[Traced]
    right: list[Traced]
    reader: Reader

    def in_order(self) -> Iterator[tuple[bool, Any, Traced]]:
        """Both sides as they arrived: from the left?, the key (None is equal to nothing), the row."""
        left_key, right_key = compile_expression(self.node.left_key), compile_expression(self.node.right_key)
        found = [(True, self._key(left_key(row.values), row), row) for row in self.left]
        found += [(False, self._key(right_key(row.values), row), row) for row in self.right]
        for count, one in enumerate(sorted(found, key=lambda one: one[2].arrival)):
            if count % ROWS_PER_LOOK == 0:
                self.reader.check_time()
            yield one

    def _key(self, value: Any, row: Traced) -> Any:
        if value is None:
            return None
        return (hashable(value), row.window) if self.node.windowed else (hashable(value), None)

    def joined(self, at: Traced, left: Traced | None, right: Traced | None, time: int) -> Traced:
        """One row of both; `at` is the one that caused it."""
        values: dict[str, Any] = {}
        for side, row in ((self.node.left, left), (self.node.right, right)):
            values |= {column.name: None if row is None else row.values[column.name] for column in side.columns}
        if self.node.key is not None:
            values[self.node.key] = self._join_key(left, right)
        there = [row for row in (left, right) if row is not None]
        origins = tuple(one for row in there for one in row.origins)
        window = next((row.window for row in there), None) if self.node.windowed else None
        return Traced(values, time, at.stream_time, at.arrival, origins, window=window)

    def _join_key(self, left: Traced | None, right: Traced | None) -> Any:
        if left is not None:
            return compile_expression(self.node.left_key)(left.values)
        assert right is not None
        return compile_expression(self.node.right_key)(right.values)


def _stream_table(both: _Sides) -> list[Traced]:
    """Each stream row with what the table holds when it arrives."""
    table: dict[Any, Traced] = {}
    found = []
    for from_left, key, row in both.in_order():
        if not from_left:
            if row.gone:
                table.pop(key, None)
            elif key is not None:
                table[key] = row
        elif not row.gone:
            match_ = None if key is None else table.get(key)
            if match_ is not None or both.node.kind == "left":
                found.append(both.joined(row, row, match_, row.time))
    return found


def _table_table(both: _Sides) -> list[Traced]:
    lefts: dict[Any, Traced] = {}
    rights: dict[Any, Traced] = {}
    keep_left, keep_right = both.node.kind in ("left", "full"), both.node.kind in ("right", "full")
    found = []
    for from_left, key, row in both.in_order():
        if key is None:
            continue
        own = lefts if from_left else rights
        before = lefts.get(key), rights.get(key)
        if row.gone:
            own.pop(key, None)
        else:
            own[key] = row
        left, right = lefts.get(key), rights.get(key)
        time = max(one.time for one in (row, left, right) if one is not None)
        there = (left is not None or keep_right) and (right is not None or keep_left) and (left or right) is not None
        if there:
            found.append(both.joined(row, left, right, time))
        elif before != (None, None):
            left, right = (before[0] or (row if from_left else None)), (before[1] or (None if from_left else row))
            found.append(replace(both.joined(row, left, right, time), gone=True))
    return found


def _foreign_key(both: _Sides) -> list[Traced]:
    """The left table's rows, each with the one it refers to."""
    node = both.node
    names = primary_key(node.left)
    lefts: dict[tuple[Any, ...], Any] = {}
    """What each row refers to."""
    referring: dict[Any, dict[tuple[Any, ...], Traced]] = {}
    rights: dict[Any, Traced] = {}
    keep = node.kind == "left"
    found = []

    def result(at: Traced, key: Any, left: Traced) -> Traced:
        right = None if key is None or left.gone else rights.get(key)
        time = max(at.time, left.time, right.time if right else 0)
        gone = left.gone or (right is None and not keep)
        return replace(both.joined(at, left, right, time), gone=gone)

    for from_left, key, row in both.in_order():
        if from_left:
            primary = key_of(row.values, names)
            known = primary in lefts
            if known:
                del referring[lefts.pop(primary)][primary]
            if not row.gone:
                lefts[primary] = key
                referring.setdefault(key, {})[primary] = row
            if known or not row.gone:
                found.append(result(row, key, row))
        elif key is not None:
            if row.gone:
                rights.pop(key, None)
            else:
                rights[key] = row
            found += [result(row, key, left) for left in referring.get(key, {}).values()]
    return found


@dataclass(slots=True)
class _Waiting:
    row: Traced
    closes: int
    matched: bool = False


@dataclass(slots=True)
class _Key:
    """What a stream-stream join keeps of one key, in order of time."""

    left: list[_Waiting] = field(default_factory=list)
    right: list[_Waiting] = field(default_factory=list)


def _stream_stream(both: _Sides) -> list[Traced]:
    """Every pair once, when the second of it arrives. A row that came too late matches nothing."""
    within = both.node.within
    assert within is not None
    grace = DEFAULT_GRACE_MS if within.grace_ms is None else within.grace_ms
    keep = {True: both.node.kind in ("left", "full"), False: both.node.kind in ("right", "full")}
    topics, stream_time = {source.topic for source in scanned(both.node)}, both.reader.stream_time
    kept: dict[Any, _Key] = {}
    found: list[Traced] = []

    def alone(at: Traced, from_left: bool) -> Traced:
        return both.joined(at, at if from_left else None, None if from_left else at, at.time)

    for from_left, key, row in both.in_order():
        if row.gone or key is None:
            continue
        now = max(row.stream_time, *(stream_time(topic, row.arrival) for topic in topics))
        row = replace(row, stream_time=now)
        closes = row.time + (within.after_ms if from_left else within.before_ms) + grace
        if closes < now:
            if keep[from_left]:
                found.append(alone(row, from_left))
            continue
        state = kept.setdefault(key, _Key())
        others = state.right if from_left else state.left
        low, high = _reach(row.time, from_left, within.before_ms, within.after_ms)
        near = others[bisect_left(others, low, key=_time) : bisect_right(others, high, key=_time)]
        matches = sorted(near, key=lambda other: other.row.arrival)
        for other in matches:
            other.matched = True
            pair = (row, other.row) if from_left else (other.row, row)
            found.append(both.joined(row, *pair, max(row.time, other.row.time)))
        eager = within.grace_ms is None
        if not matches and keep[from_left] and eager:
            found.append(alone(row, from_left))
        own = state.left if from_left else state.right
        insort(own, _Waiting(row, closes, bool(matches) or eager), key=_time)
    return found + _padded(kept, keep, both, max((stream_time(topic, 2**62) for topic in topics), default=-1))


def _time(waiting: _Waiting) -> int:
    return waiting.row.time


def _reach(time: int, from_left: bool, before_ms: int, after_ms: int) -> tuple[int, int]:
    return (time - before_ms, time + after_ms) if from_left else (time - after_ms, time + before_ms)


def _padded(kept: dict[Any, _Key], keep: dict[bool, bool], both: _Sides, now: int) -> list[Traced]:
    """Rows of a kept side that nothing can match any more."""
    alone = [
        (one.row, from_left)
        for state in kept.values()
        for from_left, waiting in ((True, state.left), (False, state.right))
        for one in waiting
        if keep[from_left] and not one.matched and one.closes < now
    ]
    return [
        both.joined(row, row if from_left else None, None if from_left else row, row.time)
        for row, from_left in sorted(alone, key=lambda one: one[0].arrival)
    ]
