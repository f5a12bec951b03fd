"""Streams, tables and groups. Each step gives a new one; nothing happens until `to` or `collect`.

A chain is one SELECT. Where SQL would need a second one (grouping what is grouped, joining what is filtered), `to`
gives the first one a name, and the chain goes on from there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal, Self

from headrace.errors import UsageError
from headrace.fluent.columns import Column, Written, identifier, written
from headrace.fluent.pipeline import register
from headrace.sql.clauses import (
    Identifier,
    JoinClause,
    Property,
    Query,
    Relation,
    SelectAll,
    SelectItem,
    SourceKind,
    WindowClause,
    WithinClause,
)
from headrace.sql.expressions import Call, Comparison, Dereference, Expression, Logical, Name, OrderItem
from headrace.sql.expressions import Literal as Constant
from headrace.sql.flatten import has_table_function
from headrace.sql.parser import parse_columns
from headrace.sql.parser.relation import duration_from
from headrace.sql.print_statements import print_query, print_statement
from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.sql.walk import rebuild

Value = str | int | bool | float


@dataclass(frozen=True, slots=True)
class _Chain:
    query: Query

    def __str__(self) -> str:
        """The SELECT it is so far."""
        return print_query(self.query)

    def _plain(self) -> bool:
        """Nothing but a source, or a join of some."""
        return self.query == Query((SelectAll(),), self.query.relation)

    def _columns(self) -> dict[str, Expression]:
        """What the columns of the SELECT list stand for, by name."""
        found: dict[str, Expression] = {}
        for item in self.query.items:
            if isinstance(item, SelectItem):
                name = item.alias.name if item.alias else _implied(item.expression)
                if name is not None:
                    found[name] = item.expression
        return found

    def _over(self, expression: Expression) -> Expression:
        """An expression over this chain's columns, as one over those of its source."""
        columns = self._columns()

        def inline(part: Expression) -> Expression:
            if isinstance(part, Name) and part.source is None and part.name in columns:
                return columns[part.name]
            return rebuild(part, inline)

        found = inline(expression)
        if has_table_function(found) and not has_table_function(expression):
            raise _needs_name("what flat_map made")
        return found

    def _items(self, columns: tuple[Written, ...], named: Mapping[str, Written]) -> tuple[SelectItem, ...]:
        # A column that stood for something else keeps its name.
        plain = [(written(one), None) for one in columns]
        items = [SelectItem(self._over(node), _kept(node, self._over(node))) for node, _ in plain]
        items += [SelectItem(self._over(written(one)), identifier(name)) for name, one in named.items()]
        return tuple(items)

    def collect(self, **options: Any) -> Any:
        """What it gives now, as an Arrow table: `headrace.sql` of its text, with the same options."""
        return import_module("headrace.frames").sql(f"{self};", **options)

    def order_by(self, *columns: Written, descending: bool = False) -> Self:
        """For `collect`."""
        order = tuple(OrderItem(self._over(written(one)), descending) for one in columns)
        return replace(self, query=replace(self.query, order_by=order))

    def limit(self, rows: int) -> Self:
        """For `collect`."""
        return replace(self, query=replace(self.query, limit=rows))


@dataclass(frozen=True, slots=True)
class _Source(_Chain):
    """What streams and tables share."""

    kind: SourceKind

    def filter(self, predicate: Written) -> Self:
        """Keep the rows, or after an aggregate the groups, for which it is true."""
        node = self._over(written(predicate))
        if self.query.group_by:
            return replace(self, query=replace(self.query, having=_both(self.query.having, node)))
        return replace(self, query=replace(self.query, where=_both(self.query.where, node)))

    def select(self, *columns: Written, **named: Written) -> Self:
        """These columns, in this order: `select("userid", loud=fn.ucase("pageid"))`."""
        return replace(self, query=replace(self.query, items=self._items(columns, named)))

    map = select

    def as_(self, alias: str) -> Self:
        """Another name for it in a join, whose columns are then `alias.column`."""
        if not self._plain() or self.query.relation.joins:
            raise UsageError("only a stream or table by its name can be called something else")
        return replace(self, query=replace(self.query, relation=replace(self.query.relation, alias=identifier(alias))))

    def join(self, other: _Source, on: Written, *, within: str | None = None, grace: str | None = None) -> Self:
        """Rows that match; of two streams `within` a time of each other."""
        return self._join("inner", other, on, within, grace)

    def left_join(self, other: _Source, on: Written, *, within: str | None = None, grace: str | None = None) -> Self:
        return self._join("left", other, on, within, grace)

    def right_join(self, other: _Source, on: Written, *, within: str | None = None, grace: str | None = None) -> Self:
        return self._join("right", other, on, within, grace)

    def outer_join(self, other: _Source, on: Written, *, within: str | None = None, grace: str | None = None) -> Self:
        return self._join("full", other, on, within, grace)

    def _join(
        self,
        kind: Literal["inner", "left", "right", "full"],
        other: _Source,
        on: Written,
        within: str | None,
        grace: str | None,
    ) -> Self:
        if not self._plain() or not other._plain() or other.query.relation.joins:
            raise _needs_name("what is joined")
        near = None
        if within is not None:
            near = WithinClause(duration_from(within), None, None if grace is None else duration_from(grace))
        right = other.query.relation
        clause = JoinClause(kind, right.source, written(on), right.alias, near)
        relation = replace(self.query.relation, joins=(*self.query.relation.joins, clause))
        return replace(self, query=replace(self.query, relation=relation))

    def group_by(self, *columns: Written) -> Grouped:
        if self.query.group_by:
            raise _needs_name("what is grouped")
        if self.query.partition_by:
            raise UsageError(
                "key_by and group_by cannot both be there", hint="group_by alone moves rows to their group"
            )
        keys = tuple(self._over(written(column)) for column in columns)
        names = [written(column) for column in columns]
        items = tuple(SelectItem(key, _kept(name, key)) for key, name in zip(keys, names, strict=True))
        return Grouped(replace(self.query, group_by=keys, items=items), self.query)

    def to(
        self,
        name: str,
        *,
        emit: Literal["changes", "final"] | None = None,
        every: str | None = None,
        **properties: Value,
    ) -> Self:
        """Let it run on, as a stream or table of that name: CREATE … AS SELECT. Returns that one, to go on from.

        `properties` are those of WITH: `kafka_topic="…"`, `partitions=4`, `value_format="AVRO"`."""
        shown: Literal["changes", "final"] | None = emit or ("changes" if every else None)
        query = replace(self.query, emit=shown, every=None if every is None else duration_from(every))
        target = identifier(name)
        statement = CreateAsSelect(self.kind, target, query, _properties(properties))
        register(print_statement(statement), sys._getframe(1))
        return replace(self, query=_read(target))

    through = to


@dataclass(frozen=True, slots=True)
class Stream(_Source):
    kind: SourceKind = "stream"

    def flat_map(self, *columns: Written, **named: Written) -> Stream:
        """As `select`, where a table function such as `fn.explode` makes several rows of one."""
        return self.select(*columns, **named)

    def key_by(self, *columns: Written) -> Stream:
        """Another key: PARTITION BY."""
        moved = tuple(self._over(written(column)) for column in columns)
        return replace(self, query=replace(self.query, partition_by=moved))

    def branch(self, *predicates: Written) -> tuple[Stream, ...]:
        """A stream for each predicate, and one for the rest: a row goes where the first one is true."""
        found: list[Stream] = []
        rest = self
        for predicate in predicates:
            found.append(rest.filter(predicate))
            untrue = Comparison("IS DISTINCT FROM", written(predicate), Constant(True))
            rest = rest.filter(Column(untrue))
        return (*found, rest)


@dataclass(frozen=True, slots=True)
class Table(_Source):
    kind: SourceKind = "table"


@dataclass(frozen=True, slots=True)
class Grouped(_Chain):
    """Groups, of which something is to be computed. `before` is what was grouped."""

    before: Query

    def _columns(self) -> dict[str, Expression]:
        return _Chain(self.before)._columns()

    def windowed_by(
        self,
        *,
        tumbling: str | None = None,
        hopping: tuple[str, str] | None = None,
        session: str | None = None,
        grace: str | None = None,
        retention: str | None = None,
    ) -> Grouped:
        """One of `tumbling="1 minute"`, `hopping=("1 hour", "5 minutes")`, size and advance, `session="30 minutes"`."""
        given = [one for one in (tumbling, hopping, session) if one is not None]
        if len(given) != 1:
            raise UsageError("a window is either tumbling, hopping or a session")
        kept = (
            None if retention is None else duration_from(retention),
            None if grace is None else duration_from(grace),
        )
        if hopping is not None:
            window = WindowClause("hopping", duration_from(hopping[0]), duration_from(hopping[1]), *kept)
        elif tumbling is not None:
            window = WindowClause("tumbling", duration_from(tumbling), None, *kept)
        else:
            window = WindowClause("session", duration_from(session or ""), None, *kept)
        return replace(self, query=replace(self.query, window=window))

    window = windowed_by

    def aggregate(self, **aggregates: Written) -> Table:
        """`aggregate(total=fn.sum("amount"), visitors=fn.count_distinct("userid"))`."""
        items = self._items((), aggregates)
        return Table(replace(self.query, items=(*self.query.items, *items)))

    def count(self, name: str = "count") -> Table:
        return self.aggregate(**{name: Column(Call("COUNT", ()))})

    def reduce(self, name: str, aggregate: Written) -> Table:
        """One aggregate alone: `reduce("dearest", fn.max("amount"))`."""
        return self.aggregate(**{name: aggregate})


def stream(name: str, columns: str | None = None, **properties: Value) -> Stream:
    """A stream that is there; with `columns`, as in SQL, it is declared: CREATE STREAM.

    >>> print(stream("pageviews").filter("pageid LIKE '/p%'").group_by("pageid").count("views"))
    SELECT PAGEID, COUNT(*) AS VIEWS FROM PAGEVIEWS WHERE PAGEID LIKE '/p%' GROUP BY PAGEID
    """
    return Stream(_source("stream", name, columns, properties))


def table(name: str, columns: str | None = None, **properties: Value) -> Table:
    return Table(_source("table", name, columns, properties))


def _source(kind: SourceKind, name: str, columns: str | None, properties: Mapping[str, Value]) -> Query:
    target = identifier(name)
    if columns is not None:
        statement = CreateSource(kind, target, parse_columns(columns), _properties(properties))
        register(print_statement(statement), sys._getframe(2))
    elif properties:
        raise UsageError(
            "only what is declared has properties", hint='give it columns: stream("name", "id BIGINT KEY")'
        )
    return _read(target)


def _read(target: Identifier) -> Query:
    return Query((SelectAll(),), Relation(target))


def _properties(properties: Mapping[str, Value]) -> tuple[Property, ...]:
    return tuple(Property(name.upper(), value) for name, value in properties.items())


def _both(one: Expression | None, other: Expression) -> Expression:
    return other if one is None else Logical("AND", one, other)


def _implied(expression: Expression) -> str | None:
    if isinstance(expression, Name):
        return expression.name
    return expression.field if isinstance(expression, Dereference) else None


def _kept(named: Expression, stands_for: Expression) -> Identifier | None:
    """The name of a column that stands for something else."""
    name = _implied(named)
    return Identifier(name) if name is not None and named != stands_for and _implied(stands_for) != name else None


def _needs_name(what: str) -> UsageError:
    hint = '.to("name") makes a stream or table of it, and goes on from there'
    return UsageError(f"{what} needs a name of its own first", hint=hint)
