"""A plan over a bounded part of the log, in Python, row by row: what Spark computes, said a second time, for few rows.

It is the reference for "why this number?", for repairs, and for checking that stream equals batch; so it follows the
words of `sql.plan`, not the way `process/` goes. Each row knows the records it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import ColumnRef
from headrace.sql.functions import function_of
from headrace.sql.plan import (
    Aggregate,
    Filter,
    FlatMap,
    Join,
    Named,
    PartitionBy,
    PersistentQuery,
    PlanNode,
    Project,
    Rename,
    Scan,
    is_table,
    walk,
)
from headrace.views.aggregates import Late, aggregate_stream, aggregate_table, would_belong
from headrace.views.joins import join_rows
from headrace.views.reading import Reader
from headrace.views.traced import EVERYTHING, Bounds, Traced, Wanted, key_of


@dataclass(slots=True)
class Evaluation:
    """One evaluation of a plan: what it reads from, and what came too late on the way."""

    reader: Reader
    late: list[Late] = field(default_factory=list)
    """What windows refused."""
    left_out: list[Traced] | None = None
    """If it is asked for: what the WHERE of a GROUP BY over a stream refused, of the groups that were asked for."""

    def rows(self, node: PlanNode, wanted: Wanted = EVERYTHING) -> list[Traced]:
        """The node's rows in order of arrival; of a table its changes."""
        match node:
            case Scan():
                return self.reader.read(node.source, wanted)
            case Rename():
                return self._renamed(node, wanted)
            case Filter():
                return _filtered(node, self.rows(node.input, wanted))
            case FlatMap():
                names = {column.name: column.name for column in node.input.columns}
                return _flattened(node, self.rows(node.input, wanted.only(names)))
            case PartitionBy():
                names = {column.name: column.name for column in node.input.columns} | _plain_names(node.key)
                return _computed(node.key, self.rows(node.input, wanted.only(names)))
            case Project():
                return _projected(node, self.rows(node.input, wanted.only(_plain_names(node.key + node.value))))
            case Join():
                return join_rows(node, wanted, self.rows, self.reader)
            case Aggregate():
                return self._aggregated(node, wanted)

    def _renamed(self, node: Rename, wanted: Wanted) -> list[Traced]:
        before = [column.name for column in node.input.columns]
        names = dict(zip(node.names, before, strict=True))
        found = self.rows(node.input, wanted.only(names))
        return [replace(row, values={new: row.values[old] for new, old in names.items()}) for row in found]

    def _aggregated(self, node: Aggregate, wanted: Wanted) -> list[Traced]:
        below = wanted.only(_plain_names(node.keys))
        if node.over == "table":
            return aggregate_table(node, self.rows(node.input, below), wanted, self.reader)
        rows = self._admitted(node, _in_window(node, below), wanted)
        return aggregate_stream(node, rows, wanted, self.late, self.reader)

    def _admitted(self, node: Aggregate, below: Wanted, wanted: Wanted) -> list[Traced]:
        if self.left_out is None or not isinstance(node.input, Filter):
            return self.rows(node.input, below)
        rows = self.rows(node.input.input, below)
        passed = _filtered(node.input, rows)
        kept = {id(row) for row in passed}
        self.left_out += (row for row in rows if id(row) not in kept and would_belong(node, row, wanted))
        return passed


def _in_window(node: Aggregate, wanted: Wanted) -> Wanted:
    """Of the input only what lies in the window that was asked for. A session may have been put together from before
    and after; whatever belongs to its key counts."""
    window = node.window
    if window is None or window.kind == "session" or wanted.since is None or wanted.until is None:
        return Wanted(wanted.columns)
    joins = [below for below in walk(node.input) if isinstance(below, Join)]
    reach = sum(max(join.within.before_ms, join.within.after_ms) for join in joins if join.within is not None)
    closes = None if joins else wanted.until + window.grace_ms
    return Wanted(wanted.columns, max(0, wanted.since - reach), wanted.until, closes)


def _plain_names(named: Sequence[Named]) -> dict[str, str]:
    """Output → input, where a column is only handed on."""
    return {one.name: one.expression.name for one in named if isinstance(one.expression, ColumnRef)}


def _filtered(node: Filter, rows: list[Traced]) -> list[Traced]:
    """A table's row that does not pass is gone from it."""
    predicate = compile_expression(node.predicate)
    if not is_table(node.input):
        return [row for row in rows if not row.gone and predicate(row.values) is True]
    return [row if row.gone or predicate(row.values) is True else replace(row, gone=True) for row in rows]


def _flattened(node: FlatMap, rows: list[Traced]) -> list[Traced]:
    found = []
    lists = [_list_of(named.expression) for named in node.functions]
    names = [named.name for named in node.functions]
    for row in rows:
        if row.gone:
            continue
        made = [each(row.values) for each in lists]
        for place in range(max((len(one) for one in made), default=0)):
            more = {name: one[place] if place < len(one) else None for name, one in zip(names, made, strict=True)}
            found.append(replace(row, values={**row.values, **more}))
    return found


def _list_of(call: Any) -> Callable[[Any], list[Any]]:
    arguments = [compile_expression(argument) for argument in call.arguments]
    function = function_of(call)
    assert function is not None
    evaluate = function.evaluate

    def rows_of(values: Any) -> list[Any]:
        try:
            return evaluate(*(argument(values) for argument in arguments)) or []
        except Exception:
            # As in Spark: a table function that fails gives no rows.
            return []

    return rows_of


def _computed(named: Sequence[Named], rows: list[Traced]) -> list[Traced]:
    functions = [(one.name, compile_expression(one.expression)) for one in named]
    return [replace(row, values={**row.values, **{name: f(row.values) for name, f in functions}}) for row in rows]


def _projected(node: Project, rows: list[Traced]) -> list[Traced]:
    """A deletion keeps its key; its values are null, whatever the expressions would make of nulls."""
    keys = [(named.name, compile_expression(named.expression)) for named in node.key]
    values = [(named.name, compile_expression(named.expression)) for named in node.value]
    found = []
    for row in rows:
        made = {name: compute(row.values) for name, compute in keys}
        made |= {name: None if row.gone else compute(row.values) for name, compute in values}
        found.append(replace(row, values=made))
    return found


@dataclass(frozen=True)
class Question:
    """Rows of a query's sink: those with this key, and in this window, or all."""

    query: PersistentQuery
    key: tuple[Any, ...] | None = None
    """By the sink's key columns, each made `hashable`."""
    window: Bounds | None = None
    keys: frozenset[tuple[Any, ...]] | None = None
    """Several keys, instead of one."""

    @cached_property
    def wanted(self) -> Wanted:
        names = [named.name for named in self.query.root.key]
        asked = self.keys if self.key is None else frozenset({self.key})
        columns = {} if asked is None else {name: frozenset(one[at] for one in asked) for at, name in enumerate(names)}
        if self.window is None:
            return Wanted(columns)
        return Wanted(columns, *self.window)

    def includes(self, row: Traced) -> bool:
        key = key_of(row.values, tuple(named.name for named in self.query.root.key))
        here = key == self.key if self.key is not None else self.keys is None or key in self.keys
        return here and (self.window is None or row.window is None or row.window == self.window)


def answer(evaluation: Evaluation, question: Question) -> list[Traced]:
    """What the sink holds of it: of a table the newest row of each key that is still there, of a stream its records.
    The values are by the sink's own column names."""
    query = question.query
    found = [row for row in evaluation.rows(query.root, question.wanted) if question.includes(row)]
    if query.sink.kind == "table":
        names = tuple(named.name for named in query.root.key)
        newest = {(key_of(row.values, names), row.window): row for row in found}
        found = [row for row in newest.values() if not row.gone]
    ours = [named.name for named in query.root.key + query.root.value]
    theirs = [column.name for column in query.sink.key + query.sink.value]
    pairs = list(zip(theirs, ours, strict=True))
    return [replace(row, values={name: row.values[own] for name, own in pairs}) for row in found]
