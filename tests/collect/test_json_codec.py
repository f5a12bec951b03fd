"""JSON events → columns: what fits, what does not, and in which words."""

from __future__ import annotations

import base64
import datetime
import json
import math
from decimal import Decimal as Number
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.config import CollectSettings, TopicTimes
from headrace.log.base import SchemaVersion, TimestampColumn, Topic, TopicSpec
from headrace.log.codecs.event_time import EventTimeBounds, TimeBounds
from headrace.log.codecs.json_codec import Decoded, JsonCodec
from headrace.log.codecs.json_encode import rows_to_json, to_json, value_to_json
from headrace.log.codecs.json_values import Mismatch, Reader
from headrace.log.codecs.times import compile_pattern, parse_iso
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

NOW = 1_794_744_000_000  # 2026-11-15T12:00:00Z
DAY = 86_400_000
BOUNDS = TimeBounds(DAY)


def topic(*columns: Column, key: tuple[Column, ...] = (), timestamp: TimestampColumn | None = None) -> Topic:
    spec = TopicSpec("events", key=key, value=columns, timestamp=timestamp)
    return Topic(1, spec, (SchemaVersion(1, key, columns),))


def decode(target: Topic, *events: Any, ids: str | None = None) -> Decoded:
    codec = JsonCodec(target)
    sent = [json.dumps(event).encode() for event in events]
    read = [codec.decoder.decode(event) for event in sent]
    return codec.decode(read, sent.__getitem__, NOW, BOUNDS, None if ids is None else lambda row: f"{ids}/{row}")


def rows(decoded: Decoded) -> list[dict[str, Any]]:
    return [] if decoded.batch is None else decoded.batch.to_pylist()


PAGEVIEWS = topic(
    Column("PAGEID", VARCHAR),
    Column("VIEWTIME", TIMESTAMP),
    key=(Column("USERID", VARCHAR),),
    timestamp=TimestampColumn("VIEWTIME"),
)


def test_fields_find_their_columns_in_any_case() -> None:
    decoded = decode(PAGEVIEWS, {"userid": "a", "PageId": "/x"}, {"USERID": "b", "pageid": "/y"})
    assert rows(decoded) == [{"USERID": "a", "PAGEID": "/x"}, {"USERID": "b", "PAGEID": "/y"}]


def test_an_exact_name_wins_over_one_in_another_case() -> None:
    quoted = topic(Column("PAGEID", VARCHAR), Column("pageId", VARCHAR))
    decoded = decode(quoted, {"pageId": "quoted", "pageid": "plain"})
    assert rows(decoded) == [{"pageId": "quoted", "PAGEID": "plain"}]


def test_a_field_given_twice_is_rejected() -> None:
    decoded = decode(PAGEVIEWS, {"userid": "a", "USERID": "b"})
    assert decoded.rejected == {0: "`userid` is given twice, as `userid` and `USERID`"}


def test_one_bad_event_spoils_no_other() -> None:
    decoded = decode(
        PAGEVIEWS, {"userid": "a"}, {"userid": 7}, "hello", {"userid": "b"}, None, {"viewtime": "yesterday"}
    )
    assert [row["USERID"] for row in rows(decoded)] == ["a", "b"]
    assert decoded.rejected == {
        1: "`userid` must be a string, got 7",
        2: 'an event must be a JSON object, got "hello"',
        4: "an event must be a JSON object, got null",
        5: '`viewtime` must be a timestamp (ISO 8601 or milliseconds), got "yesterday"',
    }


def test_undeclared_fields_are_kept_exactly_as_sent() -> None:
    codec = JsonCodec(PAGEVIEWS)
    sent = b'{"userid": "a", "price": 1.10, "big": 123456789012345678901234567890, "deep": {"a": [1, {"b":null}]}}'
    decoded = codec.decode([codec.decoder.decode(sent)], lambda row: sent, NOW, BOUNDS)
    [row] = rows(decoded)
    assert row["$rest"] == '{"price":1.10,"big":123456789012345678901234567890,"deep":{"a": [1, {"b":null}]}}'


def test_what_a_struct_does_not_declare_is_kept_too() -> None:
    address = topic(Column("ADDRESS", Struct((("CITY", VARCHAR),))))
    decoded = decode(address, {"address": {"city": "Basel", "zip": "4051"}}, {"address": {"City": "Bern"}})
    assert rows(decoded) == [
        {"ADDRESS": {"CITY": "Basel"}, "$rest": '{"address":{"city": "Basel", "zip": "4051"}}'},
        {"ADDRESS": {"CITY": "Bern"}, "$rest": None},
    ]


def test_an_event_without_fields_is_an_event() -> None:
    decoded = decode(PAGEVIEWS, {}, {})
    assert decoded.batch is not None
    assert decoded.batch.num_rows == 2


def test_ids_come_from_the_event_or_from_the_request() -> None:
    decoded = decode(PAGEVIEWS, {"userid": "a"}, {"userid": "b", "$id": "mine"}, {"userid": 7}, ids="K")
    assert [row["$id"] for row in rows(decoded)] == ["K/0", "mine"]
    assert decoded.ids == {2: "K/2"}


@pytest.mark.parametrize("bad", [7, "", "x" * 2000, ["a"]])
def test_an_id_is_a_string_of_reasonable_length(bad: Any) -> None:
    decoded = decode(PAGEVIEWS, {"userid": "a", "$id": bad})
    assert decoded.rejected[0].startswith("`$id` ")


def test_headers_are_strings() -> None:
    decoded = decode(PAGEVIEWS, {"userid": "a", "$headers": {"trace": "ü"}}, {"$headers": {"n": 1}})
    assert rows(decoded)[0]["$headers"] == [("trace", "ü".encode())]
    assert decoded.rejected == {1: '`$headers` must be an object of strings, got {"n":1}'}


def test_a_tombstone_keeps_only_the_key() -> None:
    decoded = decode(PAGEVIEWS, {"userid": "a", "pageid": 7, "$tombstone": True}, {"userid": "b", "pageid": "/x"})
    assert rows(decoded) == [
        {"USERID": "a", "PAGEID": None, "$tombstone": True},
        {"USERID": "b", "PAGEID": "/x", "$tombstone": False},
    ]


# Event time


def test_event_time_is_the_column_then_the_field_then_now() -> None:
    decoded = decode(
        PAGEVIEWS,
        {"viewtime": "2026-11-15T11:00:00.5Z", "$time": 5},
        {"viewtime": None, "$time": "2026-11-15T10:00:00+01:00"},
        {"userid": "a"},
    )
    assert [row["$time"] for row in rows(decoded)] == [NOW - 3_599_500, NOW - 3 * 3_600_000, NOW]


def test_without_any_time_the_owner_stamps_arrival() -> None:
    assert "$time" not in rows(decode(PAGEVIEWS, {"userid": "a"}))[0]


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (-1, "`viewtime` is before 1970, which no event time may be"),
        ("1969-12-31T23:59:59.9999Z", "`viewtime` is before 1970, which no event time may be"),
        (
            NOW + DAY + 1,
            "`viewtime` is too far ahead of the clock: 2026-11-16T12:00:00.001Z is after 2026-11-16T12:00:00.000Z",
        ),
        (
            NOW // 1000,
            "`viewtime` is 1970-01-21T18:32:24.000Z: seconds? Event times are milliseconds; multiplied by 1000 it is "
            "2026-11-15T12:00:00.000Z",
        ),
    ],
)
def test_times_that_cannot_be(time: Any, reason: str) -> None:
    decoded = decode(PAGEVIEWS, {"viewtime": NOW + DAY}, {"viewtime": time})
    assert decoded.rejected == {1: reason}
    assert [row["$time"] for row in rows(decoded)] == [NOW + DAY]


def test_a_topic_takes_the_times_that_its_settings_say() -> None:
    bounds = EventTimeBounds(
        CollectSettings(
            earliest_event_time="2000-01-01T01:00:00+01:00",
            topics={"archive": TopicTimes(earliest_event_time="1970-01-01"), "live": TopicTimes(max_future_seconds=1)},
        )
    )
    year_2000 = 946_684_800_000
    assert bounds.of("events").refuse(year_2000, NOW) is None
    refused = "is too far back: 1999-12-31T23:59:59.999Z is before 2000-01-01T00:00:00.000Z"
    assert bounds.of("events").refuse(year_2000 - 1, NOW) == bounds.of("live").refuse(year_2000 - 1, NOW) == refused
    assert bounds.of("archive").refuse(NOW // 1000, NOW) is None
    assert bounds.of("events").refuse(NOW + 1001, NOW) is None
    assert "ahead of the clock" in (bounds.of("live").refuse(NOW + 1001, NOW) or "")


def test_seconds_are_refused_and_real_times_of_any_year_are_not() -> None:
    bounds = TimeBounds(DAY)
    years = [f"{year}-01-01T00:00:00Z" for year in (1971, 1980, 1990, 2026)]
    assert all(
        bounds.refuse(int(datetime.datetime.fromisoformat(year).timestamp() * 1000), NOW) is None for year in years
    )
    assert all(
        "seconds?" in (bounds.refuse(int(datetime.datetime.fromisoformat(year).timestamp()), NOW) or "")
        for year in years[2:]
    )
    assert bounds.refuse(0, NOW) is None


def test_bigint_and_formatted_text_can_be_the_event_time() -> None:
    millis = topic(Column("AT", BIGINT), timestamp=TimestampColumn("AT"))
    assert rows(decode(millis, {"at": 1000}))[0]["$time"] == 1000
    text = topic(Column("AT", VARCHAR), timestamp=TimestampColumn("AT", "dd/MM/yyyy HH:mm:ss"))
    decoded = decode(text, {"at": "15/11/2026 12:00:00"}, {"at": "2026-11-15"})
    assert rows(decoded)[0]["$time"] == NOW
    assert decoded.rejected == {1: '`at` must be a timestamp, got "2026-11-15"'}
    iso = topic(Column("AT", VARCHAR), timestamp=TimestampColumn("AT"))
    assert rows(decode(iso, {"at": "2026-11-15T12:00:00Z"}))[0]["$time"] == NOW


@pytest.mark.parametrize(
    ("pattern", "text", "seconds"),
    [
        ("yyyy-MM-dd'T'HH:mm:ssX", "1970-01-01T02:00:00+02", 0),
        ("yyyyMMddHHmmssSSS", "19700101000001500", 1.5),
        ("d MMM yy h:mm a", "2 Jan 70 1:05 PM", 3_155_760_000 - 0 + 0),
        ("EEE, dd MMM yyyy HH:mm:ss Z", "Thu, 01 Jan 1970 00:00:09 +0000", 9),
    ],
)
def test_patterns_of_java(pattern: str, text: str, seconds: float) -> None:
    parsed = compile_pattern(pattern)(text)
    assert parsed is not None
    if "yy h" in pattern:
        assert datetime.datetime.fromtimestamp(parsed / 1e6, datetime.UTC).isoformat() == "2070-01-02T13:05:00+00:00"
    else:
        assert parsed == seconds * 1_000_000


# Types


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (BOOLEAN, True, True),
        (INTEGER, -(2**31), -(2**31)),
        (BIGINT, 2**63 - 1, 2**63 - 1),
        (DOUBLE, 3, 3.0),
        (DOUBLE, 2**60 + 1, float(2**60 + 1)),
        (Decimal(6, 2), "12.5", Number("12.50")),
        (Decimal(4, 2), -1, Number("-1.00")),
        (Decimal(4, 2), 0, Number("0.00")),
        (VARCHAR, "a\x00b", "a\x00b"),
        (BYTES, base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
        (DATE, "2026-02-28", datetime.date(2026, 2, 28)),
        (DATE, 1, datetime.date(1970, 1, 2)),
        (TIME, "23:59:59.999", 86_399_999),
        (TIMESTAMP, 1, datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, datetime.UTC)),
        (TIMESTAMP, "2026-11-15", datetime.datetime(2026, 11, 15, tzinfo=datetime.UTC)),
        (TIMESTAMP, "2026-11-15T12:00:00.123456789Z", datetime.datetime(2026, 11, 15, 12, 0, 0, 123456, datetime.UTC)),
        (Array(INTEGER), [1, None, 3], [1, None, 3]),
        (Map(VARCHAR, DOUBLE), {"a": 1, "b": None}, [("a", 1.0), ("b", None)]),
        (Map(BIGINT, BOOLEAN), {"7": True}, [(7, True)]),
        (Struct((("A", Array(DATE)),)), {"a": ["1970-01-01"]}, {"A": [datetime.date(1970, 1, 1)]}),
    ],
)
def test_values_that_fit(type_: DataType, value: Any, expected: Any) -> None:
    assert rows(decode(topic(Column("V", type_)), {"v": value}, {"v": None})) == [{"V": expected}, {"V": None}]


@pytest.mark.parametrize(
    ("type_", "value", "reason"),
    [
        (BOOLEAN, 1, "`v` must be true or false, got 1"),
        (INTEGER, True, "`v` must be an integer, got true"),
        (INTEGER, 1.0, "`v` must be an integer, got 1.0"),
        (INTEGER, "1", '`v` must be an integer, got "1"'),
        (INTEGER, 2**31, "`v` does not fit into INTEGER: 2147483648"),
        (BIGINT, 2**63, "`v` does not fit into BIGINT: 9223372036854775808"),
        (DOUBLE, "1.5", '`v` must be a number, got "1.5"'),
        (DOUBLE, 10**400, "`v` does not fit into DOUBLE: 10000000000000000000000000000000000000000000000000000000000…"),
        (Decimal(4, 2), 12.345, "`v` does not fit into DECIMAL(4, 2): 12.345"),
        (Decimal(4, 2), 100, "`v` does not fit into DECIMAL(4, 2): 100"),
        (Decimal(4, 2), "1e999999999", '`v` does not fit into DECIMAL(4, 2): "1e999999999"'),
        (Decimal(4, 2), "NaN", '`v` must be a number, got "NaN"'),
        (BYTES, "not base64!", '`v` must be base64, got "not base64!"'),
        (DATE, "2026-02-30", '`v` must be a date (`YYYY-MM-DD`), got "2026-02-30"'),
        (TIME, "24:00:00", '`v` must be a time of day (`HH:MM:SS`), got "24:00:00"'),
        (TIMESTAMP, 1e12, "`v` must be a timestamp (ISO 8601 or milliseconds), got 1000000000000.0"),
        (TIMESTAMP, 10**18, "`v` must be a timestamp (ISO 8601 or milliseconds), got 1000000000000000000"),
        (Array(INTEGER), [1, "x"], '`v[1]` must be an integer, got "x"'),
        (Map(VARCHAR, INTEGER), {"k": []}, "`v.k` must be an integer, got []"),
        (Map(BIGINT, BOOLEAN), {"x": True}, '`v.x` must be an integer, got "x"'),
        (Struct((("A", Array(DATE)),)), {"a": [7, "no"]}, '`v.a[1]` must be a date (`YYYY-MM-DD`), got "no"'),
        (Struct((("A", INTEGER),)), {"a": 1, "A": 2}, '`v` has the field "A" twice'),
    ],
)
def test_values_that_do_not_fit(type_: DataType, value: Any, reason: str) -> None:
    decoded = decode(topic(Column("V", type_)), {"v": value})
    assert decoded.batch is None
    assert decoded.rejected == {0: reason}


def test_decimals_keep_all_their_digits() -> None:
    sent = b'{"v": 1234567890123456789012345678.12345678}'
    codec = JsonCodec(topic(Column("V", Decimal(38, 8)), Column("D", DOUBLE)))
    decoded = codec.decode([codec.decoder.decode(sent)], lambda row: sent, NOW, BOUNDS)
    assert rows(decoded) == [{"V": Number("1234567890123456789012345678.12345678")}]
    assert to_json(value_to_json(rows(decoded)[0]["V"], Decimal(38, 8))) == b"1234567890123456789012345678.12345678"


# The quick way and the careful way agree

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.datetimes(timezones=st.just(datetime.UTC)).map(lambda moment: moment.isoformat()),
    st.sampled_from(
        ["2026-11-15T12Z", "0000-01-01T00:00:00Z", "2026-11-15 12:00:00-02", "9999-12-31T23:59:59.9999999Z"]
    ),
)


@given(
    type_=st.sampled_from([BOOLEAN, INTEGER, BIGINT, DOUBLE, VARCHAR, TIMESTAMP]),
    values=st.lists(SCALARS, max_size=6),
)
@settings(max_examples=400, deadline=None)
def test_building_a_column_gives_what_converting_each_value_gives(type_: DataType, values: list[Any]) -> None:
    reader = Reader(type_)
    built = reader.build(values)
    if built is not None:
        assert built.to_pylist() == reader.array([reader.convert(value) for value in values]).to_pylist()
    else:
        converted = [_converted(reader, value) for value in values]
        # Giving up is always allowed, but not for plain values of the type.
        assert type_ == TIMESTAMP or Mismatch in converted or any(isinstance(v, int) for v in values) or not values


def _converted(reader: Reader, value: Any) -> Any:
    try:
        return reader.convert(value)
    except Mismatch:
        return Mismatch


@given(st.text(max_size=30))
def test_iso_parsing_never_fails(text: str) -> None:
    parsed = parse_iso(text)
    assert parsed is None or isinstance(parsed, int)


# Out again


def test_rows_as_json() -> None:
    columns = (
        Column("AT", TIMESTAMP),
        Column("DAY", DATE),
        Column("TIME", TIME),
        Column("PRICE", Decimal(6, 2)),
        Column("RAW", BYTES),
        Column("RATIO", DOUBLE),
        Column("TAGS", Map(BIGINT, Array(BYTES))),
        Column("PLACE", Struct((("CITY", VARCHAR), ("SINCE", DATE)))),
    )
    row = (
        1_794_744_000_123_456,
        datetime.date(2026, 11, 15),
        3_723_004,
        Number("12.50"),
        b"\x00\xff",
        math.inf,
        [(7, [b"a", None])],
        {"CITY": "Basel", "SINCE": None},
    )
    [shown] = rows_to_json(columns, [row])
    assert to_json(shown) == (
        b'["2026-11-15T12:00:00.123456Z","2026-11-15","01:02:03.004",12.50,"AP8=",null,{"7":["YQ==",null]},'
        b'{"city":"Basel","since":null}]'
    )
    assert rows_to_json(columns, [(None,) * 8]) == [[None] * 8]
