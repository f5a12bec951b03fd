"""What is appended is what is read, for every type, with nulls, however it was cut; and stamped the same."""

from __future__ import annotations

import datetime
import decimal
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.base import Append, TopicSpec
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
from tests.log.support import VIEWS, batch, manual_clock, open_owner, rows

VALUES: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (BOOLEAN, st.booleans()),
    (INTEGER, st.integers(-(2**31), 2**31 - 1)),
    (BIGINT, st.integers(-(2**63), 2**63 - 1)),
    (DOUBLE, st.floats(allow_nan=False)),
    (Decimal(9, 2), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: decimal.Decimal(n).scaleb(-2))),
    (VARCHAR, st.text(max_size=12)),
    (BYTES, st.binary(max_size=12)),
    (DATE, st.dates()),
    (TIME, st.integers(0, 86_399_999)),
    (TIMESTAMP, st.datetimes(timezones=st.just(datetime.UTC))),
    (Array(BIGINT), st.lists(st.none() | st.integers(0, 9), max_size=3)),
    (Map(VARCHAR, BIGINT), st.dictionaries(st.text(max_size=3), st.none() | st.integers(0, 9), max_size=3)),
    (
        Struct((("A", BIGINT), ("B", Array(VARCHAR)))),
        st.fixed_dictionaries({"A": st.none() | st.integers(0, 9), "B": st.none() | st.lists(st.text(max_size=3))}),
    ),
]
SPEC = TopicSpec(
    "all",
    key=(Column("KEY", VARCHAR),),
    value=tuple(Column(f"C{number}", type_) for number, (type_, _) in enumerate(VALUES)),
    partitions=3,
)
ROW = st.fixed_dictionaries(
    {"KEY": st.none() | st.text(max_size=4)}
    | {f"C{number}": st.none() | values for number, (_, values) in enumerate(VALUES)}
)


def as_batch(found: list[dict[str, Any]]) -> pa.RecordBatch:
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in SPEC.key + SPEC.value])
    arrays = [
        pa.array(
            [
                list(row[f.name].items()) if isinstance(row[f.name], dict) and pa.types.is_map(f.type) else row[f.name]
                for row in found
            ],
            f.type,
        )
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(ROW, min_size=1, max_size=6), min_size=1, max_size=5))
def test_every_type_comes_back(batches: list[list[dict[str, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = open_owner(Path(folder) / "log", segment_bytes=4000)
        log.create_topic(SPEC)
        for part in batches:
            log.append([Append("all", as_batch(part))]).result(30)
        for _ in range(2):
            found = sorted(rows(log, "all"), key=lambda row: row["$arrival"])
            wanted = [row for part in batches for row in part]
            assert [{name: row[name] for name in wanted[0]} for row in found] == wanted
            # And the same again after opening it anew.
            log.close()
            log = open_owner(Path(folder) / "log")
        log.close()


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 1000)), min_size=1, max_size=40),
    st.lists(st.integers(1, 10), min_size=1, max_size=40),
)
def test_stamps_do_not_depend_on_how_batches_were_cut(events: list[tuple[str, int]], sizes: list[int]) -> None:
    """In one batch, in some, and record by record: the same places, arrival numbers and stream times."""
    results = []
    for cuts in ([len(events)], sizes, [1]):
        with tempfile.TemporaryDirectory() as folder:
            log = open_owner(Path(folder) / "log", manual_clock(), linger_ms=1.0)
            log.create_topic(VIEWS)
            futures, first, number = [], 0, 0
            while first < len(events):
                part = events[first : first + cuts[number % len(cuts)]]
                columns: dict[str, list[Any]] = {"USERID": [e[0] for e in part], "time_": [e[1] for e in part]}
                futures.append(log.append([Append("pageviews", batch(**columns))]))
                first, number = first + len(part), number + 1
            for future in futures:
                future.result(30)
            results.append(rows(log, "pageviews"))
            log.close()
    assert results[0] == results[1] == results[2]
    largest = -1
    for row in sorted(results[0], key=lambda row: row["$arrival"]):
        assert row["$stream_time"] == largest
        largest = max(largest, row["$time"])


def test_a_batch_larger_than_a_frame_becomes_several(tmp_path: Path) -> None:
    log = open_owner(tmp_path / "log")
    log.create_topic(VIEWS)
    text = "x" * 1000
    columns: dict[str, list[Any]] = {"USERID": ["u"] * 30_000, "PAGEID": [text] * 30_000, "N": list(range(30_000))}
    log.append([Append("pageviews", batch(**columns), 0)]).result(60)
    found = list(log.read("pageviews", 0, 0, columns=["N", "$arrival"]))
    assert len(found) >= 4
    assert [n for records in found for n in records.batch.column(0).to_pylist()] == list(range(30_000))
    assert [n for records in found for n in records.batch.column(1).to_pylist()] == list(range(30_000))
    log.close()
