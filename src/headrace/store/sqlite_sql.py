"""Statements for one view's file, printed by sqlglot: names are quoted by it, values are always parameters.

The rows are in the table `rows`, a column for each of the source's; `meta` has one row, with the position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from headrace.errors import UsageError
from headrace.sql.source import Source
from headrace.store.pushdown import Condition, Field, Operation, Parameter
from headrace.store.sqlite_values import affinity
from headrace.types import Column

LIKE_FUNCTION = "headrace_like"

_BINARY: dict[str, type[exp.Expression]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
    "IS": exp.NullSafeEQ,
    "IS NOT": exp.NullSafeNEQ,
}


@dataclass(frozen=True)
class Layout:
    """A source's columns and what they are called in the file. SQLite's names ignore case, SQL's quoted ones do not."""

    source: Source

    @cached_property
    def columns(self) -> dict[str, Column]:
        return {column.name: column for column in reversed(self.source.all_columns)}

    @cached_property
    def names(self) -> dict[str, str]:
        taken: set[str] = set()
        names: dict[str, str] = {}
        for name in (column.name for column in self.source.all_columns):
            plain = name.replace("\0", "")
            candidates = (plain, *(f"{plain}:{number}" for number in range(2, len(taken) + 3)))
            unique = next(candidate for candidate in candidates if candidate.lower() not in taken)
            taken.add(unique.lower())
            names.setdefault(name, unique)
        return names

    @cached_property
    def key(self) -> tuple[str, ...]:
        """Names of the columns that identify a row."""
        if not self.source.key:
            raise UsageError(f"table `{self.source.name}` has no key", hint="declare a column as PRIMARY KEY")
        window = ("WINDOWSTART", "WINDOWEND") if self.source.window else ()
        return tuple(column.name for column in self.source.key) + window

    def column(self, name: str) -> exp.Column:
        return exp.column(exp.to_identifier(self.names[name], quoted=True))

    def create(self) -> list[str]:
        """The table of rows. Its primary key is an ordinary unique index: SQLite lets such columns be null, as ours
        may be."""
        columns = ", ".join(f"{self._sql(name)} {affinity(column.type)}" for name, column in self._in_order())
        key = ", ".join(self._sql(name) for name in self.key)
        statements = [f"CREATE TABLE rows ({columns}, PRIMARY KEY ({key}))"]
        if self.source.window:
            statements.append(f"CREATE INDEX rows_by_window ON rows ({self._sql('WINDOWSTART')})")
        elif self.source.row_ttl_ms is not None:
            statements.append(f"CREATE INDEX rows_by_time ON rows ({self._sql('ROWTIME')})")
        return statements

    def add(self, names: Iterable[str]) -> list[str]:
        """What gives the table further columns."""
        return [f"ALTER TABLE rows ADD COLUMN {self._sql(name)} {affinity(self.columns[name].type)}" for name in names]

    def expire(self, column: str) -> str:
        """What is as old as the parameter, or older."""
        return f"DELETE FROM rows WHERE {self._sql(column)} <= ?"

    @cached_property
    def upsert(self) -> str:
        names = [name for name, _ in self._in_order()]
        columns, values = ", ".join(map(self._sql, names)), ", ".join("?" * len(names))
        key = ", ".join(map(self._sql, self.key))
        sets = ", ".join(f"{self._sql(name)} = excluded.{self._sql(name)}" for name in names if name not in self.key)
        return f"INSERT INTO rows ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {sets}"

    @cached_property
    def delete(self) -> str:
        """By key. `IS`, because a key column may be null; an index serves it as well as `=`."""
        return "DELETE FROM rows WHERE " + " AND ".join(f"{self._sql(name)} IS ?" for name in self.key)

    def find(self, columns: Sequence[str], keys: int) -> str:
        """Keys and columns of the rows with so many keys, none of which has a null."""
        wanted = ", ".join(map(self._sql, (*self.key, *columns)))
        key, one = ", ".join(map(self._sql, self.key)), ", ".join("?" * len(self.key))
        return f"SELECT {wanted} FROM rows WHERE ({key}) IN (VALUES {', '.join([f'({one})'] * keys)})"

    def select(
        self, columns: Sequence[str], condition: Condition | None, order: Sequence[tuple[str, bool]], limited: bool
    ) -> str:
        """Constants are `:p0`, `:p1` and so on, the limit is `:limit`."""
        wanted = [self.column(name) for name in columns] or [exp.null()]
        query = exp.select(*wanted).from_("rows")
        if condition is not None:
            query = query.where(self._condition(condition))
        if order:
            query = query.order_by(
                *(exp.Ordered(this=self.column(name), desc=down, nulls_first=not down) for name, down in order)
            )
        if limited:
            query = query.limit(exp.Placeholder(this="limit"))
        text: str = query.sql(dialect="sqlite")
        return text

    def _in_order(self) -> list[tuple[str, Column]]:
        return [(name, self.columns[name]) for name in self.names]

    def _sql(self, name: str) -> str:
        text: str = self.column(name).sql(dialect="sqlite")
        return text

    def _condition(self, condition: Condition) -> exp.Expression:
        match condition:
            case Field(name, real):
                return exp.cast(self.column(name), "REAL") if real else self.column(name)
            case Parameter(number):
                return exp.Placeholder(this=f"p{number}")
            case Operation(operator, operands):
                return exp.paren(_operation(operator, [self._condition(operand) for operand in operands]))


def _operation(operator: str, operands: list[exp.Expression]) -> exp.Expression:
    first = operands[0]
    match operator:
        case "AND":
            return exp.and_(*operands)
        case "OR":
            return exp.or_(*operands)
        case "NOT":
            return exp.Not(this=first)
        case "IS NULL":
            return exp.Is(this=first, expression=exp.null())
        case "IN":
            return exp.In(this=first, expressions=operands[1:])
        case "BETWEEN":
            return exp.Between(this=first, low=operands[1], high=operands[2])
        case "PREFIX":
            return exp.and_(
                exp.GTE(this=first, expression=operands[1]), exp.LT(this=first.copy(), expression=operands[2])
            )
        case "LIKE":
            return exp.Anonymous(this=LIKE_FUNCTION, expressions=operands)
        case _:
            return _BINARY[operator](this=first, expression=operands[1])
