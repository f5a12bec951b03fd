"""What names an expression may use, and errors that point into the statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.errors import SqlError
from headrace.nearest import did_you_mean, nearest
from headrace.sql.clauses import Identifier
from headrace.sql.expressions import ColumnRef, Expression, Name, Span
from headrace.sql.script import Script
from headrace.sql.source import PSEUDO_COLUMNS, WINDOW_COLUMNS, Source, Sources
from headrace.types import Column, DataType, display_name

SYSTEM_COLUMNS = frozenset(column.name for column in PSEUDO_COLUMNS + WINDOW_COLUMNS)
# Milliseconds in a BIGINT, which may be compared with a timestamp written as text.
TIME_COLUMNS = frozenset({"ROWTIME", "WINDOWSTART", "WINDOWEND"})


@dataclass(frozen=True, slots=True)
class Side:
    """A source of the query under the name its columns are qualified with. `names` says what each of its columns is
    called in the plan."""

    alias: str
    source: Source
    names: Mapping[str, str]

    def columns(self, persistent: bool) -> tuple[Column, ...]:
        """What `*` means. A sink has system columns of its own."""
        source = self.source
        if not persistent:
            return source.columns
        return source.key + source.value + tuple(header.column for header in source.headers)


@dataclass(frozen=True, slots=True)
class Scope:
    """`columns` are those of the plan's node below; `sides` the sources names are looked up in (without any, a name is
    one of `columns`), and beside them the
    `extra` columns no source has (a join's ROWKEY, a window's bounds), by what they are called in the plan. `variables`
    are the parameters of lambdas around."""

    script: Script
    columns: Mapping[str, DataType]
    sides: tuple[Side, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, DataType] = field(default_factory=dict)
    types: Mapping[str, DataType] = field(default_factory=dict)
    over: bool = False
    """Whether OVER may stand here: in the SELECT list and the ORDER BY of a pull query."""

    @property
    def joined(self) -> bool:
        return len(self.sides) > 1

    def column(self, name: Name) -> ColumnRef:
        """The column a name means; `SqlError` if it means none, or several."""
        if name.source is not None:
            return self._of(self.side(name.source, name.span, name.name), name)
        if name.name in self.extra:
            internal = self.extra[name.name]
            return ColumnRef(internal, type=self.columns[internal], span=name.span)
        if not self.sides and name.name in self.columns:
            return ColumnRef(name.name, type=self.columns[name.name], span=name.span)
        having = [side for side in self.sides if name.name in side.names]
        if not having:
            raise self.unknown_column(name.name, name.span)
        if len(having) > 1:
            shown = display_name(name.name)
            could = " or ".join(f"`{display_name(side.alias)}.{shown}`" for side in having)
            raise self.error(f"column `{shown}` is ambiguous", name.span, f"write {could}")
        return self._of(having[0], name)

    def _of(self, side: Side, name: Name) -> ColumnRef:
        if name.name not in side.names:
            raise self.unknown_column(name.name, name.span, side)
        internal = side.names[name.name]
        return ColumnRef(internal, type=self.columns[internal], span=name.span)

    def side(self, alias: str, span: Span | None, column: str | None = None) -> Side:
        """The source of that name; `column` is what was wanted of it."""
        found = next((side for side in self.sides if side.alias == alias), None)
        if found is not None:
            return found
        known = [side.alias for side in self.sides]
        otherwise = f"here it is `{display_name(known[0])}`" if len(known) == 1 else None
        hint = did_you_mean(alias, known, otherwise, display_name)
        if column is not None and any(alias in side.names for side in self.sides):
            hint = f"a field of a struct is written `{display_name(alias)}->{display_name(column)}`"
        raise self.error(f"`{display_name(alias)}` is not a stream or table of this query", span, hint)

    def unknown_column(self, name: str, span: Span | None, side: Side | None = None) -> SqlError:
        if not self.columns:
            return self.error("only constants can stand here", span, self._text_hint(name, span))
        if name in ("WINDOWSTART", "WINDOWEND"):
            message = f"{name} is there only for windowed sources, and in the SELECT of a windowed GROUP BY"
            return self.error(message, span)
        known = {column for one in ((side,) if side else self.sides) for column in one.names} | set(self.extra)
        known |= set() if self.sides else set(self.columns)
        shown = [display_name(column) for column in self._in_order(known) if column not in SYSTEM_COLUMNS]
        columns = f"columns are {', '.join(shown)}" if len(shown) <= 12 else None
        hint = self._text_hint(name, span) or did_you_mean(name, known, columns, display_name)
        return self.error(f"column `{display_name(name)}` does not exist", span, hint)

    def _text_hint(self, name: str, span: Span | None) -> str | None:
        """For a name in double quotes, which in other places are around text."""
        if span is None or not self.script.text.startswith('"', self.script.offset(span)):
            return None
        return f"double quotes are around names; text is in single ones:  '{name}'"

    def _in_order(self, known: set[str]) -> list[str]:
        every = [column for side in self.sides for column in side.names] + sorted(self.extra) + list(self.columns)
        return [column for column in dict.fromkeys(every) if column in known]

    def error(self, message: str, span: Span | None, hint: str | None = None) -> SqlError:
        return self.script.error(message, span, hint)


def typed(expression: Expression, scope: Scope) -> Expression:
    """The resolved expression, refused if it is a bare NULL."""
    if expression.type is None:
        raise scope.error(
            "the type of NULL is not known here", expression.span, "write CAST(NULL AS VARCHAR), or another type"
        )
    return expression


def columns_by_name(columns: Iterable[Column]) -> dict[str, DataType]:
    return {column.name: column.type for column in columns}


def find_source(script: Script, sources: Sources, wanted: Identifier) -> Source:
    """The source a name means; `SqlError` naming the nearest if there is none."""
    found = sources.source(wanted.name)
    if found is not None:
        return found
    names = [source.name for source in sources.sources()]
    likely = nearest(wanted.name, names)
    kind = next((source.kind for source in sources.sources() if source.name == likely), "stream")
    hint = did_you_mean(wanted.name, names, f"SHOW {kind.upper()}S; lists all", display_name)
    raise script.error(f"stream or table `{display_name(wanted.name)}` does not exist", wanted.span, hint)
