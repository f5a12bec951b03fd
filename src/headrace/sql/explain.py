"""Plans as text: a tree, the result on top, what it reads at the bottom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.sql.ask_plan import (
    Around,
    AskNode,
    AskQuery,
    Cut,
    Expand,
    Group,
    Pair,
    Read,
    Select,
    Sort,
    Unique,
    Where,
    ask_inputs,
)
from headrace.sql.bind import python_functions
from headrace.sql.clauses import UNIT_MS
from headrace.sql.plan import (
    Aggregate,
    Filter,
    FlatMap,
    Join,
    Named,
    Ordering,
    PartitionBy,
    PersistentQuery,
    PlanNode,
    Project,
    PullQuery,
    PushQuery,
    Rename,
    Scan,
    node_inputs,
)
from headrace.sql.print_statements import print_range
from headrace.sql.printer import print_expression, print_name
from headrace.sql.source import Source, Window
from headrace.types import Column

Plan = PersistentQuery | PushQuery | PullQuery | AskQuery
LABEL = 8
"""How wide the words are that details begin with."""
LABELS = frozenset(
    {"by", "columns", "compute", "format", "headers", "key", "moves", "on", "range", "rows of", "state", "time", "to"}
    | {"topic", "value", "where", "window", "within"}
)


@dataclass(frozen=True, slots=True)
class PlanTree:
    """A plan to be drawn: what a step is, what there is to say about it, and the steps it reads from."""

    title: str
    details: tuple[tuple[str, str], ...]
    """A word such as `key` or `state`, or nothing, and what it says."""
    inputs: tuple[PlanTree, ...] = ()


@dataclass(frozen=True, slots=True)
class _Branch:
    """A heading, its details, and what is below it."""

    lines: list[str]
    below: tuple[_Branch, ...] = ()


def explain(plan: Plan) -> str:
    """What the plan does: keys, windows, state, formats, and where rows move to another partition."""
    return "\n".join([*_tree(_top(plan)), *_functions(plan)])


def plan_tree(plan: Plan) -> PlanTree:
    """The same as a tree."""
    tree = _drawn(_top(plan))
    return replace(tree, details=tree.details + tuple(_detail(line) for line in _functions(plan)))


def _drawn(branch: _Branch) -> PlanTree:
    title, *details = branch.lines
    return PlanTree(title, tuple(map(_detail, details)), tuple(map(_drawn, branch.below)))


def _detail(line: str) -> tuple[str, str]:
    """
    >>> _detail("key     A, B"), _detail("A = 1")
    (('key', 'A, B'), ('', 'A = 1'))
    """
    label, text = line[:LABEL].strip(), line[LABEL:]
    return (label, text) if label in LABELS or not label else ("", line)


def _top(plan: Plan) -> _Branch:
    match plan:
        case PersistentQuery():
            return _Branch(_sink(plan), (_branch(plan.root),))
        case PushQuery():
            runs = "in the server, row by row" if plan.stateless else "as a query on Spark while somebody listens"
            head = f"PUSH QUERY  runs {runs}{_every(plan.every_ms)}{_limit(plan.limit)}"
            return _Branch([head], (_branch(plan.root),))
        case PullQuery():
            return _pull(plan)
        case AskQuery():
            return _Branch(["PULL QUERY", "columns " + _columns(plan.columns)], (_ask(plan.root),))


def _functions(plan: Plan) -> list[str]:
    """The Python functions it calls: the same text with another version is another query."""
    called = python_functions(plan).values()
    return [f"calls {one.name}  {one.kind}, {one.origin}, version {one.version}" for one in called]


def _branch(node: PlanNode) -> _Branch:
    return _Branch(_describe(node), tuple(_branch(below) for below in node_inputs(node)))


def _tree(branch: _Branch) -> list[str]:
    head, *details = branch.lines
    bar = "│  " if branch.below else "   "
    lines = [head, *(bar + detail for detail in details)]
    for index, below in enumerate(branch.below):
        last = index + 1 == len(branch.below)
        first, *rest = _tree(below)
        lines += [("└─ " if last else "├─ ") + first, *(("   " if last else "│  ") + line for line in rest)]
    return lines


def _sink(plan: PersistentQuery) -> list[str]:
    sink = plan.sink
    into = "INSERT INTO " if plan.insert else ""
    return [
        f"{into}{sink.kind.upper()} {print_name(sink.name)}  emits {plan.emit}{_every(plan.every_ms)}"
        + ("" if plan.refresh_ms is None else f", refreshed every {duration_text(plan.refresh_ms)}")
        + (", its batch layer with what came too late" if plan.counts_late else ""),
        *_source_details(sink),
    ]


def _describe(node: PlanNode) -> list[str]:
    match node:
        case Project():
            return _project(node)
        case Filter():
            above = "the changes of groups" if isinstance(node.input, Aggregate) else "rows"
            return [f"FILTER {above}", print_expression(node.predicate)]
        case Aggregate():
            return _aggregate(node)
        case Rename():
            return ["RENAME", "to      " + ", ".join(map(print_name, node.names))]
        case FlatMap():
            return ["FLAT MAP one row per element", "rows of " + _named_list(node.functions)]
        case PartitionBy():
            return ["PARTITION BY", "key     " + _named_list(node.key), _MOVES.format("new key")]
        case Join():
            return _join(node)
        case Scan():
            return [f"SCAN {node.source.kind} {print_name(node.source.name)}", *_source_details(node.source)]


_MOVES = "moves   rows to the partition of their {} (repartition)"
_JOIN_STATE = {
    "stream-stream": "state   rows of both sides, as long as one may match",
    "stream-table": "state   the table's newest row per key",
    "table-table": "state   both tables' newest row per key",
    "foreign-key": "state   both tables' newest row per key, and the left's rows by foreign key",
}


def _join(node: Join) -> list[str]:
    lines = [f"JOIN {node.kind} {node.form}"]
    lines.append(f"on      {print_expression(node.left_key)} = {print_expression(node.right_key)}")
    if node.windowed:
        lines.append("        and the same window")
    if node.key is not None:
        lines.append("key     " + print_name(node.key))
    if node.within is not None:
        before, after = duration_text(node.within.before_ms), duration_text(node.within.after_ms)
        grace = "" if node.within.grace_ms is None else f", GRACE PERIOD {duration_text(node.within.grace_ms)}"
        lines.append(f"within  {before} before, {after} after{grace}")
    return [*lines, _JOIN_STATE[node.form], _MOVES.format("join key")]


def _project(node: Project) -> list[str]:
    lines = ["PROJECT"]
    if node.key:
        lines.append("key     " + _named_list(node.key))
    return [*lines, "value   " + _named_list(node.value)]


def _aggregate(node: Aggregate) -> list[str]:
    window = f"window  {window_text(node.window)}" if node.window else "window  none: groups are kept for ever"
    state = "state   one row per group" + (" and window" if node.window else "")
    if node.over == "table":
        state += ", and the table's newest row per key: an old value is taken out before the new one is added"
    moves = _MOVES.format("group")
    lines = ["AGGREGATE", "by      " + _named_list(node.keys), "compute " + _named_list(node.aggregates)]
    return [*lines, window, state, moves]


def _pull(plan: PullQuery) -> _Branch:
    source = plan.source
    reads = "LOOK UP table" if source.kind == "table" else "SCAN stream"
    branch = _Branch([f"{reads} {print_name(source.name)}", *_source_details(source)])
    if plan.predicate is not None:
        branch = _Branch(["FILTER rows", print_expression(plan.predicate)], (branch,))
    if plan.order:
        branch = _Branch([f"SORT by {_orderings(plan.order)}"], (branch,))
    return _Branch(["PULL QUERY" + _limit(plan.limit), "columns " + _named_list(plan.items)], (branch,))


def _ask(node: AskNode) -> _Branch:
    return _Branch(_describe_ask(node), tuple(_ask(below) for below in ask_inputs(node)))


def _describe_ask(node: AskNode) -> list[str]:
    match node:
        case Read():
            lines = [f"READ {node.source.kind} {print_name(node.source.name)}", "columns " + _columns(node.wanted)]
            lines += [f"range   {print_range(node.range)}"] if node.range is not None else []
            return lines + ([f"where   {print_expression(node.predicate)}"] if node.predicate is not None else [])
        case Where():
            return ["FILTER rows", print_expression(node.predicate)]
        case Pair():
            return [f"PAIR {node.kind}", f"on      {print_expression(node.condition)}"]
        case Expand():
            return ["FLAT MAP one row per element", "rows of " + _named_list(node.functions)]
        case Group():
            window = [f"window  {window_text(node.window)}"] if node.window else []
            lines = ["GROUP", "by      " + (_named_list(node.keys) or "nothing: one group")]
            return [*lines, "compute " + _named_list(node.aggregates), *window]
        case Around():
            return ["OVER", "compute " + _named_list(node.functions)]
        case Select():
            return ["SELECT", "columns " + _named_list(node.items)]
        case Unique():
            return ["DISTINCT"]
        case Sort():
            return [f"SORT by {_orderings(node.order)}"]
        case Cut():
            return [f"CUT{_limit(node.limit)}" + (f", after {node.offset}" if node.offset else "")]


def _orderings(order: Sequence[Ordering]) -> str:
    return ", ".join(print_expression(one.expression) + (" DESC" if one.descending else "") for one in order)


def _every(milliseconds: int | None) -> str:
    return "" if milliseconds is None else f", every {duration_text(milliseconds)}"


def _limit(limit: int | None) -> str:
    return "" if limit is None else f", until {limit} rows"


def _source_details(source: Source) -> list[str]:
    headers = ", ".join(map(str, (header.column for header in source.headers)))
    lines = [
        f"topic   {source.topic}, {source.partitions} partition{'s' if source.partitions != 1 else ''}",
        f"format  key {source.key_format}, value {source.value_format}",
        "key     " + (_columns(source.key) or "none"),
        "value   " + (_columns(source.value) or "none"),
        *([f"headers {headers}"] if headers else []),
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
    size = ("" if window.kind == "session" else "SIZE ") + duration_text(window.size_ms)
    return f"{window.kind.upper()} ({size}{advance}{retention}{grace})"


def duration_text(milliseconds: int) -> str:
    """In the largest unit that says it exactly."""
    if milliseconds == 0:
        return "0 SECONDS"
    unit = next(unit for unit in reversed(UNIT_MS) if milliseconds % UNIT_MS[unit] == 0)
    amount = milliseconds // UNIT_MS[unit]
    return f"{amount} {unit}{'S' if amount != 1 else ''}"
