"""What running a statement gives back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.sql.api import PlanTree
from headrace.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR, Column, DataType, display_name


@dataclass(frozen=True, slots=True)
class StatementResult:
    """As in the HTTP API's Result object. `kind` is `created`, `exists`, `dropped`, `inserted`, `terminated`, `table`
    (with `columns` and `rows`) or `text` (with `text`)."""

    statement: str
    kind: str
    message: str = ""
    columns: tuple[Column, ...] | None = None
    rows: tuple[tuple[Any, ...], ...] | None = None
    text: str | None = None
    query_id: str | None = None
    plan: PlanTree | None = None
    """Of EXPLAIN: what `text` says, to be drawn."""
    token: str | None = None
    """Of INSERT: what a read takes as `after`, to include the rows."""

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"statement": self.statement, "kind": self.kind, "message": self.message}
        if self.columns is not None:
            body["columns"] = [{"name": display_name(column.name), "type": str(column.type)} for column in self.columns]
        if self.rows is not None:
            body["rows"] = [list(row) for row in self.rows]
        if self.text is not None:
            body["text"] = self.text
        if self.query_id is not None:
            body["query_id"] = self.query_id
        return body


def table_result(
    statement: str, names: Sequence[str], rows: Iterable[Sequence[Any]], empty: str = ""
) -> StatementResult:
    """A table; the columns' types are those of its values."""
    kept = tuple(tuple(row) for row in rows)
    columns = tuple(Column(name.upper(), _type_of([row[i] for row in kept])) for i, name in enumerate(names))
    return StatementResult(statement, "table", "" if kept else empty, columns, kept)


def _type_of(values: list[Any]) -> DataType:
    present = [value for value in values if value is not None]
    for python, sql in ((bool, BOOLEAN), (int, BIGINT), (float, DOUBLE)):
        if present and all(isinstance(value, python) for value in present):
            return sql
    return VARCHAR
