"""What names an expression may use, and errors that point into the statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.errors import SqlError
from headrace.sql.expressions import Name, Span
from headrace.sql.script import Script, did_you_mean, nearest
from headrace.sql.source import PSEUDO_COLUMNS, WINDOW_COLUMNS, Source, Sources
from headrace.sql.statements import Identifier
from headrace.types import Column, DataType, display_name

SYSTEM_COLUMNS = frozenset(column.name for column in PSEUDO_COLUMNS + WINDOW_COLUMNS)
# Milliseconds in a BIGINT, which may be compared with a timestamp written as text.
TIME_COLUMNS = frozenset({"ROWTIME", "WINDOWSTART", "WINDOWEND"})


@dataclass(frozen=True, slots=True)
class Scope:
    """`qualifiers` are the names a column may be qualified with; `variables` the parameters of lambdas around."""

    script: Script
    columns: Mapping[str, DataType]
    qualifiers: frozenset[str] = frozenset()
    variables: Mapping[str, DataType] = field(default_factory=dict)

    def column(self, name: Name) -> DataType:
        """The type of the column a name means; `SqlError` if it means none."""
        if name.source is not None and name.source not in self.qualifiers:
            hint = did_you_mean(name.source, self.qualifiers, self._known_qualifier(), display_name)
            if name.source in self.columns:
                hint = f"a field of a struct is written `{display_name(name.source)}->{display_name(name.name)}`"
            raise self.error(f"`{display_name(name.source)}` is not a stream or table of this query", name.span, hint)
        if name.name not in self.columns:
            raise self.unknown_column(name.name, name.span)
        return self.columns[name.name]

    def _known_qualifier(self) -> str | None:
        return f"here it is `{display_name(next(iter(self.qualifiers)))}`" if len(self.qualifiers) == 1 else None

    def unknown_column(self, name: str, span: Span | None) -> SqlError:
        if not self.columns:
            return self.error("only constants can stand here", span)
        if name in ("WINDOWSTART", "WINDOWEND"):
            message = f"{name} is there only for windowed tables, and in the SELECT of a windowed GROUP BY"
            return self.error(message, span)
        shown = [display_name(column) for column in self.columns if column not in SYSTEM_COLUMNS]
        known = f"columns are {', '.join(shown)}" if len(shown) <= 12 else None
        return self.error(
            f"column `{display_name(name)}` does not exist", span, did_you_mean(name, self.columns, known, display_name)
        )

    def error(self, message: str, span: Span | None, hint: str | None = None) -> SqlError:
        return self.script.error(message, span, hint)


def source_scope(script: Script, source: Source, alias: Identifier | None) -> Scope:
    qualifiers = frozenset({alias.name} if alias else {source.name})
    return Scope(script, columns_by_name(source.all_columns), qualifiers)


def columns_by_name(columns: Iterable[Column]) -> dict[str, DataType]:
    return {column.name: column.type for column in columns}


def find_source(script: Script, sources: Sources, wanted: Identifier) -> Source:
    """The stream or table of that name; `SqlError` if there is none."""
    found = sources.source(wanted.name)
    if found is not None:
        return found
    names = [source.name for source in sources.sources()]
    likely = nearest(wanted.name, names)
    kind = next((source.kind for source in sources.sources() if source.name == likely), "stream")
    hint = did_you_mean(wanted.name, names, f"SHOW {kind.upper()}S; lists all", display_name)
    raise script.error(f"stream or table `{display_name(wanted.name)}` does not exist", wanted.span, hint)
