"""Staged rows and the topics they go to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import UsageError
from headrace.log.base import ROUTE, Route
from headrace.log.writing.prepare import Prepared, Preparer


def route_rows(routes: Sequence[Route], preparers: Sequence[Preparer], batch: pa.RecordBatch) -> Iterator[Prepared]:
    """One part per route that has rows. A null or missing `$route` is route 0."""
    number = batch.schema.get_field_index(ROUTE)
    if number < 0:
        chosen = None
    else:
        column = batch.column(number)
        chosen = column.fill_null(0).to_numpy() if column.null_count else column.to_numpy()
        if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < len(routes):
            raise UsageError(f"`$route` names a route that is not there, there are {len(routes)}")
    for index, (route, preparer) in enumerate(zip(routes, preparers, strict=True)):
        if chosen is None:
            rows = batch if index == 0 else batch.slice(0, 0)
        else:
            wanted = np.flatnonzero(chosen == index)
            rows = batch if len(wanted) == batch.num_rows else batch.take(pa.array(wanted))
        if rows.num_rows:
            prepared = preparer.prepare(_rename(route, rows), None)
            ordered = route.order is not None and prepared.digests is None
            yield replace(prepared, order=_order(route, rows)) if ordered else prepared


def _order(route: Route, rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    number = rows.schema.get_field_index(route.order or "")
    if number < 0 or not pa.types.is_integer(rows.schema.field(number).type):
        raise UsageError(f"route to `{route.topic}`: the stream has no column `{route.order}` of whole numbers")
    # A row without a number stays where its task has it.
    found: np.ndarray[Any, np.dtype[np.int64]] = rows.column(number).fill_null(0).cast(pa.int64()).to_numpy()
    return found


def _rename(route: Route, rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = {}
    for ours, theirs in route.columns.items():
        number = rows.schema.get_field_index(theirs)
        if number < 0:
            raise UsageError(f"route to `{route.topic}`: the stream has no column `{theirs}`")
        columns[ours] = rows.column(number)
    return pa.RecordBatch.from_pydict(columns)
