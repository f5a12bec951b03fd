"""Pull queries: what a table holds now, or a stream's records so far.

Over a table the store finds candidate rows; what it could not check, sort or compute is done here, over one row at a
time. A query costs memory for its answer, not for what it looks at.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Any, TypeAlias

from headrace.deliver.ask.budget import Budget
from headrace.deliver.ask.ordering import sort_key
from headrace.deliver.ask.run import ask_rows
from headrace.deliver.base import Address, Answer, Delivery
from headrace.deliver.records import stream_rows
from headrace.errors import NotFound
from headrace.sql.ask_plan import AskQuery
from headrace.sql.expressions import ColumnRef, Expression
from headrace.sql.plan import Ordering, PullQuery
from headrace.sql.walk import walk
from headrace.store.base import Position, ViewStore
from headrace.store.json_rows import to_json_rows
from headrace.store.readers import too_late
from headrace.store.rows import names_of, over_rows, project_rows
from headrace.types import Column

Row: TypeAlias = tuple[Any, ...]
Compute: TypeAlias = Callable[[Row], Any]

MAX_BYTES = 256 * 1024 * 1024
"""For what a question holds at once, unless somebody says otherwise."""
ROWS_PER_LOOK = 256
"""Rows between two looks at the clock."""


def pull(
    delivery: Delivery,
    query: PullQuery | AskQuery,
    deadline_s: float = 10.0,
    max_rows: int = 10_000,
    max_bytes: int = MAX_BYTES,
) -> Answer:
    """At most `max_rows` rows; `truncated` if there are more. `DeadlineExceeded` after `deadline_s` seconds."""
    started = time.monotonic()
    found = pull_rows(delivery, query, deadline_s, max_rows, max_bytes)
    answer = answer_of(found)
    return replace(answer, took_ms=(time.monotonic() - started) * 1000)


def answer_of(found: Pulled, took_ms: float = 0.0) -> Answer:
    """As JSON has it."""
    alone = found.reads[0] if len(found.reads) == 1 else None
    return Answer(
        columns=found.columns,
        rows=to_json_rows(found.columns, found.rows),
        view=alone.name if alone is not None and alone.version is not None else None,
        version=alone.version if alone is not None else None,
        position=alone.position if alone is not None else None,
        truncated=found.truncated,
        took_ms=took_ms,
        reads=found.reads,
    )


@dataclass(frozen=True, slots=True)
class Pulled:
    """An answer before it is JSON: values are the evaluator's."""

    columns: tuple[Column, ...]
    rows: list[Row]
    truncated: bool
    reads: tuple[Address, ...]


def pull_rows(
    delivery: Delivery, query: PullQuery | AskQuery, deadline_s: float, max_rows: int, max_bytes: int = MAX_BYTES
) -> Pulled:
    # One more than may be shown tells whether there are more.
    most = max_rows + 1
    if isinstance(query, AskQuery):
        columns = query.columns
        rows, found = ask_rows(delivery, query, Budget(deadline_s, max_bytes), most)
        reads = tuple(found)
    else:
        prepared = prepare(query)
        columns = prepared.answer
        most = most if query.limit is None else min(query.limit, most)
        rows, address = _look(delivery, prepared, deadline_s, most)
        reads = (address,)
    return Pulled(columns, rows[:max_rows], len(rows) > max_rows, reads)


def _look(delivery: Delivery, prepared: Prepared, seconds: float, most: int) -> tuple[list[Row], Address]:
    name = prepared.query.source.name
    if prepared.query.source.kind == "table":
        rows, position, version = _pull_table(delivery, prepared, seconds, most)
        return rows, Address(name, version, position)
    rows, position = _pull_stream(delivery, prepared, time.monotonic() + seconds, most)
    return rows, Address(name, None, position)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query, compiled once."""

    query: PullQuery
    answer: tuple[Column, ...]
    needed: tuple[Column, ...]
    """What must be read of the source: for the items, the order and the predicate."""
    project: Callable[[Row], Row] | None
    """None if a row that was read is already the answer's."""
    store_order: tuple[tuple[str, bool], ...] | None
    """The order, if it is by columns only, so that a store can do it."""
    sort_key: Compute | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.needed)


@lru_cache(maxsize=512)
def prepare(query: PullQuery) -> Prepared:
    parts = [item.expression for item in query.items] + [ordering.expression for ordering in query.order]
    names = dict.fromkeys(name for part in parts + _predicate(query) for name in _column_names(part))
    columns = {column.name: column for column in reversed(query.source.all_columns)}
    needed = tuple(columns[name] for name in names)
    return Prepared(
        query=query,
        answer=tuple(item.column for item in query.items),
        needed=needed,
        project=_projection([item.expression for item in query.items], needed),
        store_order=_store_order(query.order),
        sort_key=sort_key(query.order, names_of(needed)) if query.order else None,
    )


def _predicate(query: PullQuery) -> list[Expression]:
    return [] if query.predicate is None else [query.predicate]


def _column_names(expression: Expression) -> list[str]:
    return [part.name for part in walk(expression) if isinstance(part, ColumnRef)]


def _projection(items: Sequence[Expression], needed: tuple[Column, ...]) -> Callable[[Row], Row] | None:
    names = [item.name if isinstance(item, ColumnRef) else None for item in items]
    if names == [column.name for column in needed]:
        return None
    if None not in names and len(names) > 1:
        return itemgetter(*(next(at for at, c in enumerate(needed) if c.name == name) for name in names))
    return project_rows(items, names_of(needed))


def _store_order(order: tuple[Ordering, ...]) -> tuple[tuple[str, bool], ...] | None:
    by_column = [(o.expression.name, o.descending) for o in order if isinstance(o.expression, ColumnRef)]
    return tuple(by_column) if len(by_column) == len(order) else None


def _pull_table(delivery: Delivery, prepared: Prepared, seconds: float, most: int) -> tuple[list[Row], Position, int]:
    view = delivery.views.of_source(prepared.query.source)
    try:
        return _scan(view, prepared, seconds, most)
    except NotFound:
        # Closed under us: if it was replaced (filled again, a new version), the answer is there.
        serving = delivery.views.of_source(prepared.query.source)
        if serving is view:
            raise
        return _scan(serving, prepared, seconds, most)


def _scan(view: ViewStore, prepared: Prepared, seconds: float, most: int) -> tuple[list[Row], Position, int]:
    end = time.monotonic() + seconds
    in_store = prepared.store_order is not None
    limit = most if in_store else None
    with view.scan(prepared.names, prepared.query.predicate, prepared.store_order or (), limit, seconds) as scan:
        rows = scan.rows
        if scan.residual is not None:
            matches = matcher(scan.residual, prepared.needed)
            rows = (row for row in _in_time(rows, end, seconds) if matches(row) is True)
        found = list(islice(rows, most)) if in_store else _first(_in_time(rows, end, seconds), prepared, most)
        return _projected(found, prepared), scan.position, view.version


@lru_cache(maxsize=512)
def matcher(predicate: Expression, columns: tuple[Column, ...]) -> Compute:
    return over_rows(predicate, names_of(columns))


def _pull_stream(delivery: Delivery, prepared: Prepared, end: float, most: int) -> tuple[list[Row], Position]:
    query = prepared.query
    seconds = end - time.monotonic()
    # Without order and predicate the first rows are the answer: no need to read many more.
    at_a_time = min(most, 20_000) if query.predicate is None and prepared.sort_key is None else 20_000
    position, rows = stream_rows(delivery.log, query.source, prepared.needed, at_a_time)
    rows = _in_time(rows, end, seconds)
    if query.predicate is not None:
        matches = matcher(query.predicate, prepared.needed)
        rows = (row for row in rows if matches(row) is True)
    found = list(islice(rows, most)) if prepared.sort_key is None else _first(rows, prepared, most)
    return _projected(found, prepared), position


def _first(rows: Iterable[Row], prepared: Prepared, most: int) -> list[Row]:
    assert prepared.sort_key is not None
    return heapq.nsmallest(most, rows, key=prepared.sort_key)


def _projected(rows: list[Row], prepared: Prepared) -> list[Row]:
    return rows if prepared.project is None else [prepared.project(row) for row in rows]


def _in_time(rows: Iterable[Row], end: float, seconds: float) -> Iterator[Row]:
    for number, row in enumerate(rows):
        if number % ROWS_PER_LOOK == 0 and time.monotonic() > end:
            raise too_late(seconds)
        yield row
