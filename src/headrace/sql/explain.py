"""Plans as text: a tree, the result on top, what it reads at the bottom."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sql.plan import (
    Aggregate,
    Filter,
    Named,
    PersistentQuery,
    PlanNode,
    Project,
    PullQuery,
    PushQuery,
    Scan,
    walk,
)
from headrace.sql.printer import print_expression, print_name
from headrace.sql.source import Source, Window
from headrace.sql.statements import UNIT_MS
from headrace.types import Column

Plan = PersistentQuery | PushQuery | PullQuery


def explain(plan: Plan) -> str:
    """What the plan does: keys, windows, state, formats, and where rows move to another partition."""
    match plan:
        case PersistentQuery():
            lines = _tree([_sink(plan), *(_describe(node) for node in walk(plan.root))])
        case PushQuery():
            runs = "in the server, row by row" if plan.stateless else "as a query on Spark while somebody listens"
            head = [f"PUSH QUERY  runs {runs}" + _limit(plan.limit)]
            lines = _tree([head, *(_describe(node) for node in walk(plan.root))])
        case PullQuery():
            lines = _tree(_pull(plan))
    return "\n".join(lines)


def _tree(levels: Sequence[list[str]]) -> list[str]:
    """Each level below the one before it; a level's further lines are its details."""
    lines: list[str] = []
    for depth, (head, *details) in enumerate(levels):
        lines.append("   " * (depth - 1) + "└─ " + head if depth else head)
        bar = "│  " if depth + 1 < len(levels) else "   "
        lines += ["   " * depth + bar + detail for detail in details]
    return lines


def _sink(plan: PersistentQuery) -> list[str]:
    sink = plan.sink
    return [f"{sink.kind.upper()} {print_name(sink.name)}  emits {plan.emit}", *_source_details(sink)]


def _describe(node: PlanNode) -> list[str]:
    match node:
        case Project():
            return _project(node)
        case Filter():
            above = "the changes of groups" if isinstance(node.input, Aggregate) else "rows"
            return [f"FILTER {above}", print_expression(node.predicate)]
        case Aggregate():
            return _aggregate(node)
        case Scan():
            return [f"SCAN {node.source.kind} {print_name(node.source.name)}", *_source_details(node.source)]


def _project(node: Project) -> list[str]:
    lines = ["PROJECT"]
    if node.key:
        lines.append("key     " + _named_list(node.key))
    return [*lines, "value   " + _named_list(node.value)]


def _aggregate(node: Aggregate) -> list[str]:
    window = f"window  {window_text(node.window)}" if node.window else "window  none: groups are kept for ever"
    state = "state   one row per group" + (" and window" if node.window else "")
    moves = "moves   rows to the partition of their group (repartition)"
    lines = ["AGGREGATE", "by      " + _named_list(node.keys), "compute " + _named_list(node.aggregates)]
    return [*lines, window, state, moves]


def _pull(plan: PullQuery) -> list[list[str]]:
    source = plan.source
    levels = [["PULL QUERY" + _limit(plan.limit), "columns " + _named_list(plan.items)]]
    if plan.order:
        by = ", ".join(print_expression(one.expression) + (" DESC" if one.descending else "") for one in plan.order)
        levels.append([f"SORT by {by}"])
    if plan.predicate is not None:
        levels.append(["FILTER rows", print_expression(plan.predicate)])
    reads = "LOOK UP table" if source.kind == "table" else "SCAN stream"
    return [*levels, [f"{reads} {print_name(source.name)}", *_source_details(source)]]


def _limit(limit: int | None) -> str:
    return "" if limit is None else f", until {limit} rows"


def _source_details(source: Source) -> list[str]:
    lines = [
        f"topic   {source.topic}, {source.partitions} partition{'s' if source.partitions != 1 else ''}",
        f"format  key {source.key_format}, value {source.value_format}",
        "key     " + (_columns(source.key) or "none"),
        "value   " + _columns(source.value),
    ]
    if source.window:
        lines.append(f"window  {window_text(source.window)}")
    if source.timestamp:
        pattern = f" as {source.timestamp_format}" if source.timestamp_format else ""
        lines.append(f"time    {print_name(source.timestamp)}{pattern}")
    return lines


def _columns(columns: Sequence[Column]) -> str:
    return ", ".join(f"{print_name(column.name)} {column.type}" for column in columns)


def _named_list(named: Sequence[Named]) -> str:
    return ", ".join(_named(one) for one in named)


def _named(named: Named) -> str:
    text, name = print_expression(named.expression), print_name(named.name)
    return name if text == name else f"{text} AS {name}"


def window_text(window: Window) -> str:
    """
    >>> window_text(Window("hopping", 60_000, 10_000, 0))
    'HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS, GRACE PERIOD 0 SECONDS)'
    """
    advance = f", ADVANCE BY {duration_text(window.advance_ms)}" if window.kind == "hopping" else ""
    retention = f", RETENTION {duration_text(window.retention_ms)}" if window.retention_ms is not None else ""
    grace = f", GRACE PERIOD {duration_text(window.grace_ms)}"
    return f"{window.kind.upper()} (SIZE {duration_text(window.size_ms)}{advance}{retention}{grace})"


def duration_text(milliseconds: int) -> str:
    """In the largest unit that says it exactly."""
    if milliseconds == 0:
        return "0 SECONDS"
    unit = next(unit for unit in reversed(UNIT_MS) if milliseconds % UNIT_MS[unit] == 0)
    amount = milliseconds // UNIT_MS[unit]
    return f"{amount} {unit}{'S' if amount != 1 else ''}"
