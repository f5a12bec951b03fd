"""Records without a key: no table has a row for them, and no GROUP BY counts them. How many there are, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import ColumnRef
from headrace.sql.functions.arrays import hashable
from headrace.sql.plan import Aggregate, Named, scanned
from headrace.types import display_name
from headrace.views.evaluate import Evaluation
from headrace.views.reading import Reader
from headrace.views.subject import Subject
from headrace.views.traced import Origin, Traced, Wanted


@dataclass(frozen=True, slots=True)
class Keyless:
    """Records whose key is NULL, as it was asked for."""

    columns: tuple[str, ...]
    """Those that are NULL, as people see them."""
    grouped: bool
    """Whether it is a GROUP BY that leaves them out, or the table."""
    count: int
    newest: Origin | None

    def __str__(self) -> str:
        who = "a GROUP BY counts none without" if self.grouped else "no table has a row without"
        return f"{self.count:,} of the records have no `{'`, `'.join(self.columns)}`, and {who}"


def is_null(value: Any) -> bool:
    """NULL, or the word for it: whoever asks by text has no other."""
    return value is None or (isinstance(value, str) and value.lower() == "null")


def keyless_records(reader: Reader, subject: Subject, key: Mapping[str, Any]) -> Keyless:
    asked = {name: None if is_null(value) else value for name, value in key.items()}
    aggregate = subject.aggregate
    rows = _of_table(reader, subject, asked) if aggregate is None else _of_groups(reader, subject, aggregate, asked)
    origins = [origin for row in rows if not row.gone for origin in row.origins[-1:]]
    columns = tuple(display_name(name) for name, value in asked.items() if value is None)
    newest = max(origins, key=lambda origin: origin.arrival, default=None)
    return Keyless(columns, aggregate is not None, len(origins), newest)


def _of_groups(reader: Reader, subject: Subject, aggregate: Aggregate, asked: Mapping[str, Any]) -> list[Traced]:
    handed = _handed(subject.query.root.key, subject, asked)
    keys = [(named, handed[named.name]) for named in aggregate.keys if named.name in handed]
    wanted = _wanted({named.expression.name: value for named, value in keys if isinstance(named.expression, ColumnRef)})
    compute = [(compile_expression(named.expression), hashable(value)) for named, value in keys]
    rows = Evaluation(reader).rows(aggregate.input, wanted)
    return [row for row in rows if all(hashable(each(row.values)) == value for each, value in compute)]


def _of_table(reader: Reader, subject: Subject, asked: Mapping[str, Any]) -> list[Traced]:
    """As a stream it has them."""
    source = scanned(subject.query.root)[0]
    ours = {column.name for column in source.key}
    handed = _handed(subject.query.root.key, subject, asked)
    wanted = _wanted({name: value for name, value in handed.items() if name in ours})
    return reader.read(replace(source, kind="stream"), wanted) if wanted.columns else []


def _handed(named: tuple[Named, ...], subject: Subject, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked of the sink's key, by the names it has below."""
    pairs = zip(named, subject.source.key, strict=True)
    return {one.expression.name: asked[c.name] for one, c in pairs if isinstance(one.expression, ColumnRef)}


def _wanted(values: Mapping[str, Any]) -> Wanted:
    return Wanted({name: frozenset({hashable(value)}) for name, value in values.items()})
