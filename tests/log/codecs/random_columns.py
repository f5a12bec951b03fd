"""Random columns of all types and nestings, with random rows, for what must give back what it was given."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.log.schema import arrow_type
from headrace.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    TIME,
    TIMESTAMP,
    VARCHAR,
    Array,
    Column,
    DataType,
    Decimal,
    Map,
    Struct,
)

SIMPLE: list[DataType] = [BOOLEAN, INTEGER, BIGINT, DOUBLE, VARCHAR, BYTES, DATE, TIME, TIMESTAMP]
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def simple_types() -> st.SearchStrategy[DataType]:
    decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))
    return st.sampled_from(SIMPLE) | decimals


def types(map_keys: st.SearchStrategy[DataType] | None = None) -> st.SearchStrategy[DataType]:
    """`map_keys`: what a MAP's keys may be; VARCHAR by default."""
    keys = st.just(VARCHAR) if map_keys is None else map_keys

    def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
        fields = st.lists(inner, min_size=1, max_size=3).map(
            lambda found: Struct(tuple((f"F{place}", type_) for place, type_ in enumerate(found)))
        )
        return inner.map(Array) | st.tuples(keys, inner).map(lambda pair: Map(*pair)) | fields

    return st.recursive(simple_types(), nested, max_leaves=5)


def values(type_: DataType) -> st.SearchStrategy[Any]:
    """Values as Arrow takes them; not null."""
    match type_:
        case Decimal(precision, scale):
            top = 10**precision - 1
            return st.integers(-top, top).map(lambda n: decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=76)))
        case Array(element):
            return st.lists(st.none() | values(element), max_size=3)
        case Map(key, value):
            pairs = st.tuples(values(key), st.none() | values(value))
            return st.lists(pairs, max_size=3, unique_by=lambda pair: pair[0])
        case Struct(fields):
            return st.fixed_dictionaries({name: st.none() | values(inner) for name, inner in fields})
        case _:
            return _SIMPLE[type_]


_SIMPLE: dict[DataType, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    INTEGER: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
    VARCHAR: TEXT,
    BYTES: st.binary(max_size=12),
    DATE: st.dates(),
    TIME: st.integers(0, 86_399_999),
    TIMESTAMP: st.datetimes(timezones=st.just(datetime.UTC)).map(
        lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    ),
}


@st.composite
def batches(
    draw: st.DrawFn, of: st.SearchStrategy[DataType], max_columns: int = 4
) -> tuple[tuple[Column, ...], pa.RecordBatch]:
    """Columns of types drawn from `of`, and up to four rows of them."""
    found = draw(st.lists(of, min_size=1, max_size=max_columns))
    columns = tuple(Column(f"C{place}", type_) for place, type_ in enumerate(found))
    rows = draw(st.integers(0, 4))
    arrays = [
        pa.array([draw(st.none() | values(column.type)) for _ in range(rows)], arrow_type(column.type))
        for column in columns
    ]
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])
    return columns, pa.RecordBatch.from_arrays(arrays, schema=schema)
