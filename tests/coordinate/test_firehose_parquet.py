"""Parquet of any records: each is in the file or named with its reason, and none keeps the others from it."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.coordinate.firehose.parquet import MOST_FIELDS, parquet_file
from headrace.log.base import Topic, TopicSpec
from headrace.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR, Array, Column, Decimal, Map, Struct


def table_of(content: bytes | None) -> pa.Table:
    assert content is not None
    return pq.read_table(io.BytesIO(content))


def rows_of(*records: str | bytes, schema: Topic | None = None) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """What is in the file, and the others."""
    content, rejected = parquet_file([one.encode() if isinstance(one, str) else one for one in records], schema)
    return ([] if content is None else table_of(content).to_pylist()), rejected


DEEP = "[" * 400 + "1" + "]" * 400


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("{}", "{}"),
        ("[{}]", "[{}]"),
        ("9223372036854775808", "9223372036854775808"),
        ("1e400", None),
        (DEEP, DEEP),
        ("[1, [2]]", "[1, [2]]"),
        ('{"x": [{"y": {}}]}', '{"x": [{"y": {}}]}'),
    ],
    ids=["empty", "empties", "large", "infinite", "deep", "mixed", "within"],
)
def test_what_parquet_has_no_type_for_is_text(value: str, text: str | None) -> None:
    """The other columns keep their types, and the other records are in the file."""
    rows, rejected = rows_of('{"n": 1}', f'{{"n": 2, "a": {value}}}')
    assert rows[0]["n"] == 1
    if text is None:
        assert (len(rows), list(rejected)) == (1, [1])
    else:
        assert (rows[1:], rejected) == ([{"n": 2, "a": text}], {})


def test_records_that_disagree_about_a_type_make_it_text() -> None:
    rows, rejected = rows_of('{"n": 1.50, "m": 1}', '{"n": "x", "m": 2}', '{"n": {"a": [1]}, "m": 3}', '{"n": null}')
    assert [row["n"] for row in rows] == ["1.50", "x", '{"a": [1]}', None]
    assert [row["m"] for row in rows] == [1, 2, 3, None], "the other column is of numbers still"
    assert not rejected
    assert [row["n"] for row in rows_of('{"n": 1.5}', '{"n": true}')[0]] == ["1.5", "true"]


def test_names_may_be_anything() -> None:
    record = {"": 1, "a": 2, "A": 3, "a\0b": 4, "é": 5, "a.b": 6}
    assert rows_of(json.dumps(record)) == ([record], {})


def test_what_cannot_be_read_is_named() -> None:
    deep = b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    rows, rejected = rows_of(b'{"a": "\xff"}', deep, b"NaN", b"[]", b"{}", b"", b'{"a": 1}')
    assert rows == [{"a": 1}]
    assert rejected == {
        0: "the record is not UTF-8",
        1: "the record is nested too deeply",
        2: "the record is not valid JSON: invalid character (byte 0)",
        3: "is no JSON object",
        4: "is an object without fields",
        5: "the record is not valid JSON: input data was truncated",
    }


def test_names_that_are_ids_do_not_fill_the_memory() -> None:
    """As many columns as records would be a file of their product."""
    rows, rejected = rows_of(*(f'{{"u{number}": 1}}' for number in range(2 * MOST_FIELDS)))
    assert len(rows) == len(rejected) == MOST_FIELDS
    assert set(rejected.values()) == {
        "its file would have more than 500 columns, as many as there are different fields"
    }
    # Within a field, the field is text.
    rows, rejected = rows_of(*(f'{{"by": {{"u{number}": 1}}}}' for number in range(3 * MOST_FIELDS)))
    assert (rows[7], len(rows), rejected) == ({"by": '{"u7": 1}'}, 3 * MOST_FIELDS, {})


TYPED = Topic(
    1,
    TopicSpec(
        "typed",
        key=(Column("K", VARCHAR),),
        value=(
            Column("N", BIGINT),
            Column("D", Decimal(10, 2)),
            Column("F", DOUBLE),
            Column("B", BOOLEAN),
            Column("L", Array(BIGINT)),
            Column("M", Map(VARCHAR, DOUBLE)),
            Column("S", Struct((("X", BIGINT), ("Y", VARCHAR)))),
        ),
    ),
    (),
)


def test_a_file_has_all_columns_of_its_topic() -> None:
    """Records with none of them are in it too, or nobody would find them anywhere."""
    rows, rejected = rows_of('{"other": 1}', '{"d": 12345678.91}', '{"n": "x"}', schema=TYPED)
    assert [name for row in rows for name in row] == ["K", "N", "D", "F", "B", "L", "M", "S"] * 2
    assert [str(row["D"]) for row in rows] == ["None", "12345678.91"]
    assert list(rejected) == [2]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["9" * 30, "1e99999999999999999999", "x" * 70_000]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.sampled_from("nNdfblms"), inner)
    ),
    max_leaves=12,
)
RECORDS = st.lists(
    st.binary(max_size=30)
    | JSON.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    | st.dictionaries(st.sampled_from(["", "a", "A", "n", "d", "l", "m", "s", "$id", "$time", "$tombstone"]), JSON).map(
        lambda value: json.dumps(value).encode()
    )
    | st.integers(0, 1200).map(lambda depth: b'{"a":' + b"[" * depth + b"{}" + b"]" * depth + b"}"),
    max_size=8,
)


@given(RECORDS, st.sampled_from([None, TYPED]))
@example([b'{"d": 1e9999999999999999999999}'], TYPED)
@example([b'{"d": 1e999999999}', b'{"d": -1E-999999999}'], TYPED)
def test_every_record_is_in_the_file_or_named(records: list[bytes], schema: Topic | None) -> None:
    content, rejected = parquet_file(records, schema)
    written = 0 if content is None else table_of(content).num_rows
    assert written + len(rejected) == len(records)
    assert all(0 <= number < len(records) and reason for number, reason in rejected.items())
