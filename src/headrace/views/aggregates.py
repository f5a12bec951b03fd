"""GROUP BY over rows that know their records: plain, in time windows, in sessions, over a stream and over a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import Call
from headrace.sql.functions import steps_of
from headrace.sql.functions.finish import finish
from headrace.sql.functions.function import Steps
from headrace.sql.plan import Aggregate, Named, primary_key
from headrace.sql.source import Window
from headrace.views.reading import Reader, holds
from headrace.views.traced import Bounds, Origin, Traced, Values, Wanted, key_of

# As `process.lower.window` has it.
LAST_TIME_MS = 253_402_300_799_999
_BLOCK = 64
ROWS_PER_LOOK = 1024
"""Between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Late:
    """A row that came too late for a window."""

    row: Traced
    window: Bounds


@dataclass(slots=True)
class _Group:
    values: dict[str, Any]
    window: Bounds | None
    rows: list[Traced] = field(default_factory=list)


def aggregate_stream(
    node: Aggregate, rows: Iterable[Traced], wanted: Wanted, late: list[Late], reader: Reader
) -> list[Traced]:
    """One row per group, as it is after all rows; in order of the last one that changed it."""
    compute_keys = [(named.name, compile_expression(named.expression)) for named in node.keys]
    names = tuple(named.name for named in node.keys)
    groups: dict[tuple[Any, ...], _Group] = {}
    by_key: dict[tuple[Any, ...], list[tuple[dict[str, Any], Traced]]] = {}
    for count, row in enumerate(rows):
        if count % ROWS_PER_LOOK == 0:
            reader.check_time()
        if row.gone:
            continue
        keys = {name: compute(row.values) for name, compute in compute_keys}
        if None in keys.values() or not wanted.admits(keys):
            continue
        key = key_of(keys, names)
        if node.window is None:
            groups.setdefault(key, _Group(keys, None)).rows.append(row)
        elif node.window.kind == "session":
            by_key.setdefault(key, []).append((keys, row))
        else:
            for window in windows_of(node.window, row.time):
                if wanted.since is not None and window != (wanted.since, wanted.until):
                    continue
                if is_late(node.window, window, row) and not _admitted(reader, row):
                    late.append(Late(row, window))
                else:
                    groups.setdefault((key, window), _Group(keys, window)).rows.append(row)
    for same in by_key.values():
        for group in _sessions(node.window, same, late, reader):
            groups[key_of(group.values, names), group.window] = group
    found = []
    for group in groups.values():
        reader.check_time()
        found.append(_result(node, group))
    return sorted(found, key=lambda row: row.arrival)


def would_belong(node: Aggregate, row: Traced, wanted: Wanted) -> bool:
    """Whether a row is of the groups, and the window, that are asked for."""
    keys = {named.name: compile_expression(named.expression)(row.values) for named in node.keys}
    if row.gone or None in keys.values() or not wanted.admits(keys):
        return False
    if node.window is None or wanted.since is None or wanted.until is None:
        return True
    if node.window.kind == "session":
        return wanted.since - node.window.size_ms <= row.time <= wanted.until + node.window.size_ms
    return (wanted.since, wanted.until) in windows_of(node.window, row.time)


def windows_of(window: Window, time: int) -> list[Bounds]:
    """Oldest first."""
    time = min(time, LAST_TIME_MS)
    newest = time - time % window.advance_ms
    starts = range(newest, newest - window.size_ms, -window.advance_ms)
    return [
        (start, start + window.size_ms) for start in reversed(starts) if start >= 0 and start + window.size_ms > time
    ]


def is_late(window: Window, bounds: Bounds, row: Traced) -> bool:
    return bounds[1] + window.grace_ms <= row.stream_time


def _admitted(reader: Reader, row: Traced) -> bool:
    """Whether a late row is to be counted all the same: every record it is made of is among those."""
    return bool(reader.late) and all(holds(reader.late, one.topic, one.partition, one.offset) for one in row.origins)


def _sessions(
    window: Window | None, rows: list[tuple[dict[str, Any], Traced]], late: list[Late], reader: Reader
) -> list[_Group]:
    """Of one key, whose rows come in order of arrival. A row joins the sessions within the gap of it that are not
    closed yet."""
    assert window is not None
    gap, sessions, over = window.size_ms, list[_Group](), list[_Group]()
    for count, (keys, row) in enumerate(rows):
        if count % ROWS_PER_LOOK == 0:
            reader.check_time()
        closed = max(row.time, row.stream_time) - gap - window.grace_ms
        if _admitted(reader, row):
            closed = -1
        elif not reader.late:
            # Time only goes on: what is closed now is closed for all that follow.
            over += [session for session in sessions if _end(session) < closed]
            sessions = [session for session in sessions if _end(session) >= closed]
        joined, apart = list[_Group](), list[_Group]()
        for session in sessions:
            near = _end(session) >= max(row.time - gap, closed) and _start(session) <= row.time + gap
            (joined if near else apart).append(session)
        start = min([row.time, *map(_start, joined)])
        end = max([row.time, *map(_end, joined)])
        if end < closed:
            late.append(Late(row, (row.time, row.time + gap)))
            continue
        if len(joined) == 1:
            # Longer by one, instead of copied for each.
            [session] = joined
            session.values, session.window = keys, (start, end)
            session.rows.append(row)
        else:
            sessions = [*apart, _Group(keys, (start, end), [*_merged(joined), row])]
    return over + sessions


def _merged(sessions: Sequence[_Group]) -> list[Traced]:
    return sorted((row for session in sessions for row in session.rows), key=lambda row: row.arrival)


def _start(session: _Group) -> int:
    assert session.window is not None
    return session.window[0]


def _end(session: _Group) -> int:
    assert session.window is not None
    return session.window[1]


def _result(node: Aggregate, group: _Group) -> Traced:
    values = dict(group.values)
    if group.window is not None:
        values["WINDOWSTART"], values["WINDOWEND"] = group.window
    for named in node.aggregates:
        values[named.name] = aggregate_rows(named, group.rows)
    last = max(row.arrival for row in group.rows)
    # A session's time is that of its last row, which is the largest too.
    moment = max(row.time for row in group.rows)
    return Traced(values, moment, -1, last, _origins(group.rows), window=group.window)


def _origins(rows: Sequence[Traced]) -> tuple[Origin, ...]:
    """Each record once, by arrival."""
    found = {(one.topic, one.partition, one.offset): one for row in rows for one in row.origins}
    return tuple(found.values())


def aggregate_rows(named: Named, rows: Sequence[Traced]) -> Any:
    """The aggregate's value over rows in order of arrival. States are made in blocks and merged like digits are
    carried: adding one by one would copy what some functions keep each time."""
    call = named.expression
    assert isinstance(call, Call)
    steps = _steps(call)
    arguments = [compile_expression(argument) for argument in call.arguments]
    waiting: list[tuple[int, Any]] = []
    try:
        for begin in range(0, len(rows), _BLOCK):
            size, state = 1, _block(steps, arguments, rows[begin : begin + _BLOCK])
            while waiting and waiting[-1][0] == size:
                size, state = size * 2, steps.merge(waiting.pop()[1], state)
            waiting.append((size, state))
        whole = steps.init() if not waiting else waiting.pop()[1]
        while waiting:
            whole = steps.merge(waiting.pop()[1], whole)
        return finish(call, steps.result(whole))
    except Exception:
        # What a function cannot do with the values it got is null, here as in Spark.
        return None


def _steps(call: Call) -> Steps:
    steps = steps_of(call)
    assert steps is not None
    return steps


def _block(steps: Steps, arguments: Sequence[Callable[[Values], Any]], rows: Sequence[Traced]) -> Any:
    state = steps.init()
    for row in rows:
        given = [argument(row.values) for argument in arguments]
        if steps.nulls or not given or given[0] is not None:
            state = steps.add(state, *((row.arrival,) if steps.ordered else ()), *given)
    return state


@dataclass(slots=True)
class _Kept:
    """A group over a table: what it has come to, and the rows that are in it now."""

    values: dict[str, Any]
    states: list[Any]
    members: dict[tuple[Any, ...], Traced] = field(default_factory=dict)
    time: int = 0
    arrival: int = 0


def aggregate_table(node: Aggregate, rows: Iterable[Traced], wanted: Wanted, reader: Reader) -> list[Traced]:
    """A row that changes is taken from its group and added to its new one."""
    names = primary_key(node.input)
    compute_keys = [(named.name, compile_expression(named.expression)) for named in node.keys]
    calls = [_Aggregated(named) for named in node.aggregates]
    groups: dict[tuple[Any, ...], _Kept] = {}
    before: dict[tuple[Any, ...], Traced] = {}

    def change(row: Traced, at: Traced, primary: tuple[Any, ...], sign: int) -> None:
        keys = {name: compute(row.values) for name, compute in compute_keys}
        if None in keys.values() or not wanted.admits(keys):
            return
        key = key_of(keys, tuple(keys))
        group = groups.setdefault(key, _Kept(keys, [call.steps.init() for call in calls]))
        group.states = [call.step(state, row, at, sign) for call, state in zip(calls, group.states, strict=True)]
        group.time, group.arrival = max(group.time, at.time), at.arrival
        if sign > 0:
            group.members[primary] = row
        else:
            group.members.pop(primary, None)

    for count, row in enumerate(rows):
        if count % ROWS_PER_LOOK == 0:
            reader.check_time()
        if any(row.values[name] is None for name in names):
            continue
        primary = key_of(row.values, names)
        old = before.pop(primary, None)
        if old is not None:
            change(old, row, primary, -1)
        if not row.gone:
            before[primary] = row
            change(row, row, primary, 1)
    found = []
    for group in groups.values():
        values = group.values | {call.name: call.result(state) for call, state in zip(calls, group.states, strict=True)}
        found.append(Traced(values, group.time, -1, group.arrival, _origins(list(group.members.values()))))
    return sorted(found, key=lambda one: one.arrival)


class _Aggregated:
    """One aggregate over a table."""

    def __init__(self, named: Named) -> None:
        call = named.expression
        assert isinstance(call, Call)
        self.name, self.call, self.steps = named.name, call, _steps(call)
        self.arguments = [compile_expression(argument) for argument in call.arguments]

    def step(self, state: Any, row: Traced, at: Traced, sign: int) -> Any:
        given = [argument(row.values) for argument in self.arguments]
        if given and given[0] is None and not self.steps.nulls:
            return state
        step = self.steps.add if sign > 0 else self.steps.undo
        if step is None:
            return state
        return step(state, *((at.arrival,) if self.steps.ordered else ()), *given)

    def result(self, state: Any) -> Any:
        try:
            return finish(self.call, self.steps.result(state))
        except Exception:
            return None
