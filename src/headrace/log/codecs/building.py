"""Values that were read → Arrow columns; what does not fit is an error of its row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.log.codecs.avro_shapes import Convert
from headrace.log.codecs.json_values import Mismatch
from headrace.log.schema import arrow_type
from headrace.types import Column, Timestamp, display_name


def put_together(batches: list[pa.RecordBatch], places: pa.Array) -> dict[str, pa.Array]:
    """Columns whose rows are those of the batches, in the order of `places`."""
    table = pa.Table.from_batches(batches).combine_chunks().take(places)
    return {name: table.column(name).combine_chunks() for name in table.column_names}


def build(column: Column, values: list[Any], convert: Convert | None, errors: dict[int, str]) -> pa.Array:
    """A column of what was read; what does not fit is an error of its row."""
    arrow = arrow_type(column.type)
    through = pa.int64() if isinstance(column.type, Timestamp) else arrow
    try:
        converted = values if convert is None else [None if value is None else convert(value) for value in values]
        return _viewed(pa.array(converted, through), arrow)
    except (Mismatch, pa.ArrowException, OverflowError, TypeError, ValueError):
        return _viewed(
            pa.array([_one(column, v, convert, row, errors) for row, v in enumerate(values)], through), arrow
        )


def _viewed(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    return array if array.type == arrow else array.view(arrow)


def _one(column: Column, value: Any, convert: Convert | None, row: int, errors: dict[int, str]) -> Any:
    if value is None or row in errors:
        return None
    name = display_name(column.name)
    try:
        found = value if convert is None else convert(value)
        through = pa.int64() if isinstance(column.type, Timestamp) else arrow_type(column.type)
        pa.array([found], through)
        return found
    except Mismatch as mismatch:
        errors[row] = f"`{name}{mismatch.path}` {mismatch.message}"
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        errors[row] = f"`{name}` does not fit into {column.type}"
    return None
