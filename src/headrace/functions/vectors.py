"""Functions that take and give arrays: many rows in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.functions.arrow_values import from_values, to_values
from headrace.functions.compiled import Compiled, Failure, FunctionFailed, time_limit
from headrace.functions.values import Misfit
from headrace.log.schema import arrow_type


def call_one(compiled: Compiled, values: Sequence[Any]) -> Any:
    """A single row, as arrays of one."""
    arrays = [from_values([value], type_) for value, type_ in zip(values, compiled.types, strict=True)]
    found, failures = call_arrays(compiled, arrays, 1)
    if failures:
        raise FunctionFailed(failures[0])
    return to_values(found, compiled.result)[0]


def call_arrays(compiled: Compiled, arrays: Sequence[pa.Array], rows: int) -> tuple[pa.Array, list[Failure]]:
    """The result, null where the function failed or an argument is null that must not be."""
    wanted = _wanted(compiled, arrays)
    if wanted is None:
        return _call(compiled, arrays, rows)
    places = pc.indices_nonzero(wanted)
    found, failures = _call(compiled, [array.filter(wanted) for array in arrays], len(places))
    # Each row's place among those that were called; none for the others.
    back = pa.array([None] * rows, pa.int64()) if not len(places) else _places(wanted)
    return found.take(back), failures


def _wanted(compiled: Compiled, arrays: Sequence[pa.Array]) -> pa.Array | None:
    described = compiled.function.described
    strict = [a for place, a in enumerate(arrays) if a.null_count and not described.takes_null(place)]
    wanted = None
    for array in strict:
        wanted = array.is_valid() if wanted is None else pc.and_(wanted, array.is_valid())
    return wanted


def _places(wanted: pa.Array) -> pa.Array:
    numbers = pc.subtract(pc.cumulative_sum(wanted.cast(pa.int64())), 1)
    return pc.if_else(wanted, numbers, pa.scalar(None, pa.int64()))


def _call(compiled: Compiled, arrays: Sequence[pa.Array], rows: int) -> tuple[pa.Array, list[Failure]]:
    if rows == 0:
        return pa.nulls(0, arrow_type(compiled.result)), []
    try:
        with time_limit(compiled.seconds * max(1.0, rows / 1000)):
            return _result(compiled, compiled.body(*_given(compiled, arrays)), rows), []
    except Exception as error:
        if rows == 1:
            values = [to_values(array, type_)[0] for array, type_ in zip(arrays, compiled.types, strict=True)]
            return pa.nulls(1, arrow_type(compiled.result)), [compiled.failed(error, values).failure]
    # Some row is to blame: halves, until it is found, so that the others do not pay for it.
    half = rows // 2
    parts = [
        _call(compiled, [array.slice(at, size) for array in arrays], size)
        for at, size in ((0, half), (half, rows - half))
    ]
    return pa.concat_arrays([part for part, _ in parts]), [failure for _, failed in parts for failure in failed]


def _given(compiled: Compiled, arrays: Sequence[pa.Array]) -> list[Any]:
    if compiled.function.described.style == "arrow":
        return list(arrays)
    return [array.to_pandas() for array in arrays]


def _result(compiled: Compiled, found: Any, rows: int) -> pa.Array:
    type_ = arrow_type(compiled.result)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if isinstance(found, pa.Scalar):
        found = pa.repeat(found, rows)
    if not isinstance(found, pa.Array):
        if not hasattr(found, "__len__"):
            raise Misfit(found, compiled.result)
        found = pa.array(found, type_, from_pandas=True)
    if len(found) != rows:
        raise ValueError(f"gave {len(found)} values for {rows} rows")
    return found if found.type == type_ else found.cast(type_)
