"""Keys go where Kafka's own producers would put them."""

from __future__ import annotations

import datetime
import decimal
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import SystemClock
from headrace.log.base import Append, SchemaVersion, Topic, TopicSpec
from headrace.log.kafka.encode import Encoder
from headrace.log.registry.schemas import RegistrySchemas
from headrace.log.schema import arrow_type
from headrace.log.writing.partitioning import murmur2, partition_of, partition_rows, rows_in_turn
from headrace.log.writing.prepare import Preparer
from headrace.types import BIGINT, BOOLEAN, DATE, INTEGER, TIME, TIMESTAMP, VARCHAR, Array, Column, Decimal
from tests.log.support import batch, numbers, open_owner, put

INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (32, 64))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    """The vectors of Kafka's own test."""
    assert murmur2(key) == expected % 2**32


def partitions(column: pa.Array, count: int = 7, key_format: str = "KAFKA") -> list[int]:
    chosen = partition_rows([column], ["K"], key_format, count, 0)
    return [chosen] if isinstance(chosen, int) else [int(number) for number in chosen]


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=30), st.integers(0, 3), st.integers(2, 50))
def test_bytes(keys: list[bytes], skipped: int, count: int) -> None:
    """All at once or one by one, in a slice or not."""
    column = pa.array([b"xyz"] * skipped + keys, pa.binary()).slice(skipped)
    assert partitions(column, count) == [partition_of(key, count) for key in keys]
    assert [partitions(column.slice(row, 1), count)[0] for row in range(len(keys))] == partitions(column, count)


@given(st.lists(st.text(max_size=20), min_size=1, max_size=20))
def test_text_is_utf8(keys: list[str]) -> None:
    assert partitions(pa.array(keys)) == [partition_of(key.encode(), 7) for key in keys]


@pytest.mark.parametrize(
    ("type_", "form", "values"),
    [(pa.int32(), ">i", INT32), (pa.int64(), ">q", INT64), (pa.float64(), ">d", st.floats(allow_nan=False))],
    ids=str,
)
@given(data=st.data())
def test_numbers_are_big_endian(
    type_: pa.DataType, form: str, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    keys = data.draw(st.lists(values, min_size=1, max_size=20))
    assert partitions(pa.array(keys, type_)) == [partition_of(struct.pack(form, key), 7) for key in keys]


def test_timestamps_are_milliseconds() -> None:
    moment = datetime.datetime(2026, 11, 15, 13, 59, 0, 123_456, datetime.UTC)
    column = pa.array([moment, moment], pa.timestamp("us", tz="UTC"))
    milliseconds = int(moment.timestamp()) * 1000 + 123
    assert set(partitions(column)) == {partition_of(struct.pack(">q", milliseconds), 7)}


def test_several_columns_are_json() -> None:
    columns = [pa.array(["a", "b"]), pa.array([1, None])]
    chosen = partition_rows(columns, ["X", "Y"], "KAFKA", 7, 0)
    assert not isinstance(chosen, int)
    assert chosen.tolist() == [partition_of(key, 7) for key in (b'{"X":"a","Y":1}', b'{"X":"b","Y":null}')]


def test_a_json_key_is_json() -> None:
    assert partitions(pa.array(["a", "b"]), key_format="JSON") == [partition_of(key, 7) for key in (b'"a"', b'"b"')]


def test_rows_without_a_key_go_in_turn() -> None:
    assert partitions(pa.array(["a", None, "a", None], pa.utf8()))[1::2] == [0, 1]
    assert partition_rows([pa.array([None], pa.utf8())], ["K"], "KAFKA", 7, 12) == 5
    in_turn = rows_in_turn(5, 3, 2)
    assert not isinstance(in_turn, int)
    assert in_turn.tolist() == [2, 0, 1, 2, 0]


KEYS = [
    (("A", VARCHAR), ["x", "", "é", None]),
    (("A", BIGINT), [1, -1, 2**40, None]),
    (("A", INTEGER), [1, -1, 0]),
    (("A", TIMESTAMP), [1_000, 5_000_000, None]),
    (("A", DATE), [datetime.date(2026, 1, 1), None]),
    (("A", TIME), [0, 86_399_999]),
    (("A", BOOLEAN), [True, False, None]),
    (("A", Decimal(9, 2)), [decimal.Decimal("1.50"), None]),
    (("A", Array(VARCHAR)), [["a", "b"], []]),
]


@pytest.mark.parametrize("key_format", ["KAFKA", "JSON"])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(("column", "values"), KEYS, ids=lambda value: str(value)[:20])
def test_both_logs_place_a_key_alike(column: Any, values: list[Any], several: bool, key_format: str) -> None:
    key = (Column(*column), Column("B", VARCHAR)) if several else (Column(*column),)
    spec = TopicSpec("t", key=key, partitions=17, key_format=key_format)
    topic = Topic(1, spec, (SchemaVersion(1, key, ()),))
    arrays = {"A": pa.array(values, arrow_type(column[1]))} | ({"B": ["b"] * len(values)} if several else {})
    batch = pa.record_batch(arrays)
    locally = Preparer(topic, SystemClock()).prepare(batch, None).partitions
    on_kafka = Encoder(topic, "t", SystemClock(), None).encode(batch, None).partitions
    assert np.broadcast_to(locally, len(values)).tolist() == on_kafka


@pytest.mark.parametrize("format_", ["AVRO", "PROTOBUF", "JSON_SR"])
@pytest.mark.parametrize("columns", [1, 2])
def test_keys_with_a_schema_go_where_kafka_would_have_them(tmp_path: Path, format_: str, columns: int) -> None:
    """The bytes that are hashed begin with the schema's id, so the local log asks its registry for one too."""
    key = (Column("USERID", VARCHAR), Column("REGION", BIGINT))[:columns]
    spec = TopicSpec("orders", key, (Column("N", BIGINT),), partitions=7, key_format=format_)
    users = [f"user {number}" for number in range(50)]
    rows: dict[str, Any] = {"USERID": users, "REGION": list(range(50))}
    named = {column.name: rows[column.name] for column in key}
    log = open_owner(tmp_path / "log")
    topic = log.create_topic(spec)
    put(log, "orders", N=list(range(50)), **named)
    one = {name: values[:1] for name, values in named.items()}
    [single] = put(log, "orders", N=[50], **one).positions
    found = {n: partition for partition in range(7) for n in numbers(log, "orders", partition)}
    on_kafka = Encoder(topic, "orders", SystemClock(), RegistrySchemas.of_log(log))
    expected = on_kafka.encode(batch(N=list(range(50)), **named), None).partitions
    assert [found[n] for n in range(50)] == expected
    assert len(set(expected)) > 1
    assert single[0] == expected[0]
    log.close()


def test_a_key_s_schema_is_registered_before_its_only_partition_is_split(tmp_path: Path) -> None:
    """Rows on their way are placed again in the commit thread, which cannot wait for a registration."""
    log = open_owner(tmp_path / "log", linger_ms=20.0)
    log.create_topic(TopicSpec("orders", (Column("USERID", VARCHAR),), (Column("N", BIGINT),), key_format="AVRO"))
    waiting = [log.append([Append("orders", batch(USERID=[f"u{n}"], N=[n]))]) for n in range(10)]
    assert log.split_partition("orders", 0) == (1, 2)
    waiting += [log.append([Append("orders", batch(USERID=[f"u{n}"], N=[n]))]) for n in range(10)]
    for future in waiting:
        future.result(60)
    everywhere = [numbers(log, "orders", partition) for partition in range(3)]
    assert sorted(n for part in everywhere for n in part) == sorted([*range(10), *range(10)])
    log.close()
