"""JSON, DELIMITED, KAFKA, NONE and RAW payloads: what is written is read again, and what cannot be read says why."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import UsageError
from headrace.log.codecs.base import Codec, FormatOptions
from headrace.log.codecs.delimited import Delimited
from headrace.log.codecs.formats import make_codec
from headrace.log.codecs.json_encode import row_to_json, to_json
from headrace.log.schema import arrow_type
from headrace.types import BIGINT, BYTES, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, Array, Column, Decimal, Struct
from tests.log.codecs.random_columns import batches, simple_types, types

Batch = tuple[tuple[Column, ...], pa.RecordBatch]
ORDERS = (Column("ID", BIGINT), Column("PAGE", VARCHAR), Column("TOTAL", DOUBLE))


def codec(format_: str, *columns: Column, **options: Any) -> Codec:
    return make_codec(format_, "orders", columns, options=FormatOptions(**options))


def read(codec: Codec, *payloads: bytes | None) -> tuple[list[dict[str, Any]], dict[int, str]]:
    decoded = codec.decode(pa.array(payloads, pa.binary()))
    return decoded.batch.to_pylist(), dict(decoded.errors)


def written(codec: Codec, **columns: list[Any]) -> list[bytes | None]:
    given = {column.name: pa.array(columns[column.name], arrow_type(column.type)) for column in codec.columns}
    payloads: list[bytes | None] = codec.encode(pa.record_batch(given)).payloads.to_pylist()
    return payloads


@given(batches(types()), st.booleans())
@settings(max_examples=150, deadline=None)
def test_json_gives_back_what_it_was_given(drawn: Batch, wrapped: bool) -> None:
    columns, batch = drawn
    codec = make_codec("JSON", "t", columns, options=FormatOptions(wrap_single_value=wrapped))
    decoded = codec.decode(codec.encode(batch).payloads)
    assert not decoded.errors
    assert decoded.batch.equals(batch)


@given(batches(types()))
@settings(max_examples=100, deadline=None)
def test_json_is_written_as_everywhere_else(drawn: Batch) -> None:
    columns, batch = drawn
    rows = [[row[column.name] for column in columns] for row in batch.to_pylist()]
    expected = [to_json(row_to_json(columns, row)) for row in rows]
    assert make_codec("JSON", "t", columns).encode(batch).payloads.to_pylist() == expected


@given(batches(simple_types()), st.sampled_from([",", "TAB", "SPACE", "|", "x"]))
@settings(max_examples=150, deadline=None)
def test_delimited_gives_back_all_but_the_empty_text(drawn: Batch, delimiter: str) -> None:
    columns, batch = drawn
    codec = make_codec("DELIMITED", "t", columns, options=FormatOptions(delimiter=delimiter))
    decoded = codec.decode(codec.encode(batch).payloads)
    assert not decoded.errors
    expected = [
        {name: None if value in ("", b"") else value for name, value in row.items()} for row in batch.to_pylist()
    ]
    assert decoded.batch.to_pylist() == expected


@given(batches(st.sampled_from([INTEGER, BIGINT, DOUBLE, VARCHAR, BYTES, TIMESTAMP]), max_columns=1))
@settings(max_examples=150, deadline=None)
def test_kafka_gives_back_what_it_was_given(drawn: Batch) -> None:
    columns, batch = drawn
    codec = make_codec("KAFKA", "t", columns, "key")
    decoded = codec.decode(codec.encode(batch).payloads)
    assert not decoded.errors
    assert decoded.batch.equals(batch)


@given(st.lists(st.none() | st.binary(max_size=40), max_size=6), st.sampled_from(["JSON", "DELIMITED", "KAFKA", "RAW"]))
@settings(max_examples=200, deadline=None)
def test_hostile_payloads_are_errors_of_their_rows(payloads: list[bytes | None], format_: str) -> None:
    columns = {"KAFKA": (Column("N", BIGINT),), "RAW": (Column("B", BYTES),)}.get(format_, ORDERS)
    decoded = make_codec(format_, "t", columns).decode(pa.array(payloads, pa.binary()))
    assert decoded.batch.num_rows == len(payloads)
    for row in decoded.errors:
        assert payloads[row] is not None
        assert set(decoded.batch.slice(row, 1).to_pylist()[0].values()) == {None}


def test_json_finds_fields_in_any_case_and_keeps_what_nobody_declared() -> None:
    codec = make_codec("JSON", "orders", ORDERS, keep_rest=True)
    decoded = codec.decode(pa.array([b'{"Id":1,"page":"/a","coupon":"X" }', b'{"id":2}', None], pa.binary()))
    assert decoded.batch.to_pylist() == [
        {"ID": 1, "PAGE": "/a", "TOTAL": None},
        {"ID": 2, "PAGE": None, "TOTAL": None},
        {"ID": None, "PAGE": None, "TOTAL": None},
    ]
    assert decoded.rest is not None
    assert decoded.rest.to_pylist() == ['{"coupon":"X"}', None, None]


def test_a_bad_json_payload_spoils_no_other() -> None:
    rows, errors = read(
        codec("JSON", *ORDERS), b'{"id":1}', b'{"id":"x"}', b"{", b"[]", b'{"id":1,"ID":2}', b"\xff", b'{"id":3}\n'
    )
    assert [row["ID"] for row in rows] == [1, None, None, None, None, None, 3]
    assert errors == {
        1: '`id` must be an integer, got "x"',
        2: "the payload is not valid JSON: input data was truncated",
        3: "a JSON object is expected, got []",
        4: "`id` is given twice, as `id` and `ID`",
        5: "the payload is not valid JSON: invalid character (byte 0)",
    }


def test_delimited_follows_ksqldbs_rules() -> None:
    pipe = codec("DELIMITED", *ORDERS, delimiter="|")
    assert written(pipe, ID=[1, None], PAGE=['a|"b"', None], TOTAL=[0.5, float("nan")]) == [
        b'1|"a|""b"""|0.5',
        b"||NaN",
    ]
    rows, errors = read(pipe, b"1|a|2", b"1|a", b"x|a|2", b'1|"a', b'|""|', b'7|"a\nb"|1e3', b"1|a|2|3")
    assert rows[0] == {"ID": 1, "PAGE": "a", "TOTAL": 2.0}
    assert rows[4] == {"ID": None, "PAGE": None, "TOTAL": None}
    assert rows[5] == {"ID": 7, "PAGE": "a\nb", "TOTAL": 1000.0}
    assert errors == {
        1: "3 fields are expected, the payload has 2",
        2: '`id` must be an integer, got "x"',
        3: "the quotes of field 2 do not match",
        6: "3 fields are expected, the payload has 4",
    }


def test_an_end_of_line_is_quoted_so_that_other_readers_do_not_stop_there() -> None:
    assert written(codec("DELIMITED", *ORDERS), ID=[1], PAGE=["a\nb"], TOTAL=[2.0]) == [b'1,"a\nb",2.0']


@given(batches(simple_types()), st.sampled_from([",", "TAB", "|"]))
@settings(max_examples=100, deadline=None)
def test_delimited_columns_are_written_like_each_row_alone(drawn: Batch, delimiter: str) -> None:
    columns, batch = drawn
    delimited = Delimited(columns, delimiter)
    assert delimited.encode(batch).payloads.equals(delimited.encode_each(batch).payloads)


def test_kafka_numbers_are_big_endian() -> None:
    number = codec("KAFKA", Column("N", INTEGER))
    assert written(number, N=[1, None, -2]) == [struct.pack(">i", 1), None, struct.pack(">i", -2)]
    rows, errors = read(number, b"\0\0\0\7", b"\0", None, b"\0\0\0\x08")
    assert [row["N"] for row in rows] == [7, None, None, 8]
    assert errors == {1: "INTEGER is 4 bytes, the payload has 1"}


def test_a_slice_of_a_batch_is_read_from_its_own_place() -> None:
    payloads = pa.array([struct.pack(">q", number) for number in range(10)], pa.binary()).slice(4, 3)
    assert codec("KAFKA", Column("N", BIGINT)).decode(payloads).batch.to_pylist() == [{"N": 4}, {"N": 5}, {"N": 6}]


@pytest.mark.parametrize(
    ("format_", "columns", "message"),
    [
        ("KAFKA", ORDERS, "holds one column"),
        ("KAFKA", (Column("D", Decimal(4, 2)),), "cannot hold `d`"),
        ("DELIMITED", (Column("A", Array(BIGINT)),), "cannot hold `a`"),
        ("NONE", ORDERS, "no columns"),
        ("RAW", (Column("S", Struct((("A", BIGINT),))),), "BYTES"),
        ("MORSE", ORDERS, "no format `MORSE`"),
    ],
)
def test_a_format_says_what_it_cannot_hold(format_: str, columns: tuple[Column, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_codec(format_, "t", columns)
