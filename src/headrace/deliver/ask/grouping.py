"""GROUP BY: chunk by chunk, each group's rows are folded together; only the groups are held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from headrace.deliver.ask.budget import ROWS_PER_CHUNK, Budget, Chunks, Row, chunked, size_of
from headrace.deliver.ask.folds import Fold, fold_of
from headrace.sql.ask_plan import Group
from headrace.sql.expressions import Call
from headrace.sql.functions.arrays import hashable
from headrace.sql.source import Window
from headrace.store.rows import names_of, project_rows
from headrace.types import Array, Map, Struct

Key: TypeAlias = tuple[Any, ...]

BYTES_PER_VALUE = 100
"""What a value that an aggregate keeps is taken to cost."""


def group_rows(node: Group, chunks: Chunks, budget: Budget) -> Chunks:
    if node.window is not None and node.window.kind == "session":
        return _sessions(node, chunks, budget)
    return _groups(node, chunks, budget)


class _Columns:
    """A group node compiled: keys, and each aggregate's arguments, over a row of its input."""

    def __init__(self, node: Group) -> None:
        names = names_of(node.input.columns)
        self.keys = project_rows([named.expression for named in node.keys], names)
        self.nested = any(isinstance(named.column.type, Array | Map | Struct) for named in node.keys)
        calls = [named.expression for named in node.aggregates]
        assert all(isinstance(call, Call) for call in calls)
        self.arguments = [project_rows(call.arguments, names) for call in calls if isinstance(call, Call)]
        self.folds = [fold_of(call) for call in calls if isinstance(call, Call)]
        self.time = names.index(node.time) if node.time is not None else -1
        self.stream_time = names.index(node.stream_time) if node.stream_time is not None else -1

    def known(self, key: Key) -> Key:
        """What tells a key from others."""
        return tuple(map(hashable, key)) if self.nested else key


class _State:
    """One group."""

    __slots__ = ("folds", "key", "rows")

    def __init__(self, key: Key, folds: list[Callable[[], Fold]]) -> None:
        self.key, self.rows = key, 0
        self.folds = [fold() for fold in folds]

    def add(self, rows: list[Row], columns: _Columns) -> int:
        """Returns how many values more it holds."""
        grown = 0
        for fold, arguments in zip(self.folds, columns.arguments, strict=True):
            fold.add([arguments(row) for row in rows], self.rows)
            grown += fold.growth
        self.rows += len(rows)
        return grown

    def row(self) -> Row:
        return (*self.key, *(fold.result() for fold in self.folds))


def _groups(node: Group, chunks: Chunks, budget: Budget) -> Chunks:
    columns, groups = _Columns(node), dict[Key, _State]()
    if not node.keys:
        groups[()] = _State((), columns.folds)
    windows = _windows(node.window, columns) if node.window is not None else None
    for chunk in chunks:
        parts: dict[Key, list[Row]] = {}
        keys: dict[Key, Key] = {}
        for row in chunk:
            key = columns.keys(row)
            if None in key:
                continue
            for full in (key,) if windows is None else [(*key, *bounds) for bounds in windows(row)]:
                known = columns.known(full)
                part = parts.get(known)
                if part is None:
                    parts[known], keys[known] = [row], full
                else:
                    part.append(row)
        for known, rows in parts.items():
            state = groups.get(known)
            if state is None:
                state = groups[known] = _State(keys[known], columns.folds)
                budget.hold_bytes(size_of(keys[known]) + 200 + 120 * len(state.folds))
            grown = state.add(rows, columns)
            if grown:
                budget.hold_bytes(grown * BYTES_PER_VALUE)
        budget.look()
    return chunked((state.row() for state in groups.values()), budget)


def _windows(window: Window, columns: _Columns) -> Callable[[Row], list[tuple[int, int]]]:
    """The windows a row belongs to and is not late for (contract 4)."""
    size, advance, grace = window.size_ms, window.advance_ms, window.grace_ms
    before = (size - 1) // advance * advance

    def bounds(row: Row) -> list[tuple[int, int]]:
        time, stream_time = row[columns.time], row[columns.stream_time]
        newest = time - time % advance + size
        ends = range(newest - before, newest + 1, advance)
        return [
            (end - size, end)
            for end in ends
            if end > time and end >= size and (stream_time is None or end + grace > stream_time)
        ]

    return bounds


class _Session:
    __slots__ = ("end", "rows", "start")

    def __init__(self, start: int, end: int, rows: list[Row]) -> None:
        self.start, self.end, self.rows = start, end, rows


def _sessions(node: Group, chunks: Chunks, budget: Budget) -> Chunks:
    """By the rules of the running query, row by row as they arrived: a row joins the sessions it is within the gap of,
    unless they are closed, and is left out if it would begin one that is."""
    assert node.window is not None
    columns, gap, grace = _Columns(node), node.window.size_ms, node.window.grace_ms
    groups: dict[Key, tuple[Key, list[_Session]]] = {}
    for chunk in chunks:
        budget.hold(chunk)
        for row in chunk:
            key = columns.keys(row)
            if None not in key:
                _, sessions = groups.setdefault(columns.known(key), (key, []))
                _take(row, row[columns.time], row[columns.stream_time], sessions, gap, grace)
    return chunked(_session_rows(groups, columns), budget)


def _take(row: Row, time: int, stream_time: int | None, sessions: list[_Session], gap: int, grace: int) -> None:
    closed = max(time, time if stream_time is None else stream_time) - gap - grace
    joined = [one for one in sessions if one.end >= max(time - gap, closed) and one.start <= time + gap]
    end = max([time, *(one.end for one in joined)])
    if end < closed:
        return
    if len(joined) == 1:
        [session] = joined
        session.start, session.end = min(session.start, time), end
        session.rows.append(row)
        return
    start = min([time, *(one.start for one in joined)])
    rows = [earlier for one in joined for earlier in one.rows]
    sessions[:] = [one for one in sessions if one not in joined]
    sessions.append(_Session(start, end, [*rows, row]))


def _session_rows(groups: dict[Key, tuple[Key, list[_Session]]], columns: _Columns) -> Iterator[Row]:
    for key, sessions in groups.values():
        for session in sessions:
            state = _State((*key, session.start, session.end), columns.folds)
            for first in range(0, len(session.rows), ROWS_PER_CHUNK):
                state.add(session.rows[first : first + ROWS_PER_CHUNK], columns)
            yield state.row()
