"""Which rows of a view are looked at next: a way through all of them, some at a time, and what changed last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headrace.log.base import NO_STREAM_TIME, Log
from headrace.sql.expressions import ColumnRef, Comparison, Expression, IsNull, Literal, Logical
from headrace.sql.plan import scanned
from headrace.sql.source import WINDOW_COLUMNS, Source
from headrace.store.arrivals import has_arrivals
from headrace.store.base import ViewStore
from headrace.types import BOOLEAN, Array, Column, Map, Struct
from headrace.views.subject import Served, Subject, served_rows


def way_through(source: Source) -> tuple[Column, ...]:
    """Columns whose order tells all rows apart, windows first; without those that a store cannot order."""
    window = WINDOW_COLUMNS if source.window else ()
    return tuple(c for c in (*window, *source.key) if not isinstance(c.type, Array | Map | Struct))


def next_rows(
    log: Log, subject: Subject, store: ViewStore, after: tuple[Any, ...] | None, rows: int
) -> tuple[Served, tuple[Any, ...] | None]:
    """The rows behind that place on the way, those in closed windows only, and the place where they end; None if that
    is the end of the view."""
    columns = way_through(subject.source)
    order = tuple((column.name, False) for column in columns)
    served = served_rows(log, subject, store, None if after is None else behind(columns, after), order, rows)
    last = tuple(served.rows[-1][column.name] for column in columns) if len(served.rows) == rows else None
    # Rows that a store cannot order are passed over rather than looked at for ever.
    return _closed(log, subject, served), last if last != after else None


def newest_rows(log: Log, subject: Subject, store: ViewStore, rows: int) -> Served:
    """Those that changed last; where there are windows, those of the last that are closed."""
    order = (("WINDOWSTART" if subject.source.window else "ROWTIME", True),)
    return _closed(log, subject, served_rows(log, subject, store, None, order, rows))


def behind(columns: Sequence[Column], place: Sequence[Any]) -> Expression | None:
    """That a row comes after this place where rows are ordered by these columns, nulls first."""
    whole: Expression | None = None
    for column, value in reversed(list(zip(columns, place, strict=True))):
        reference, limit = ColumnRef(column.name, type=column.type), Literal(value, type=column.type)
        if isinstance(value, float) and math.isnan(value):
            whole = None  # nothing is greater, and nothing is equal to it
        elif value is None:
            greater: Expression = IsNull(reference, negated=True, type=BOOLEAN)
            whole = greater if whole is None else _or(greater, _and(IsNull(reference, type=BOOLEAN), whole))
        else:
            greater = Comparison(">", reference, limit, type=BOOLEAN)
            equal = Comparison("=", reference, limit, type=BOOLEAN)
            # The first part says what the rest does, but an index serves it.
            from_there = Comparison(">=", reference, limit, type=BOOLEAN)
            whole = greater if whole is None else _and(from_there, _or(greater, _and(equal, whole)))
    return whole


def _and(left: Expression, right: Expression) -> Expression:
    return Logical("AND", left, right, type=BOOLEAN)


def _or(left: Expression, right: Expression) -> Expression:
    return Logical("OR", left, right, type=BOOLEAN)


def _closed(log: Log, subject: Subject, served: Served) -> Served:
    """Without the windows that are still being made."""
    if subject.source.window is None:
        return served
    return Served([row for row in served.rows if _is_closed(log, subject, row)], served.position, served.cut)


def _is_closed(log: Log, subject: Subject, row: dict[str, Any]) -> bool:
    """Whether nothing is added to it any more. A window of a source is that source's to close. On Kafka nobody knows
    cheaply; a window that is still open is right for what its query has read, too."""
    window = subject.aggregate.window if subject.aggregate is not None else None
    if window is None or not has_arrivals(log):
        return True
    topic = scanned(subject.query.root)[0].topic
    stream_time = log.snapshot().stream_times.get(topic, NO_STREAM_TIME)
    gap = window.size_ms if window.kind == "session" else 0
    return bool(row["WINDOWEND"] + gap + window.grace_ms <= stream_time)
