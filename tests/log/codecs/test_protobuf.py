"""PROTOBUF and JSON_SR payloads through a real registry: round trips, other people's schemas, and hostile bytes."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.codecs.base import Codec, FormatOptions
from headrace.log.codecs.formats import make_codec
from headrace.log.codecs.json_sr import columns_of_json_schema, json_schema
from headrace.log.codecs.proto_files import ProtoFiles
from headrace.log.codecs.proto_types import columns_of_proto, proto_schema
from headrace.log.codecs.proto_vector_writing import ProtoVectorWriter
from headrace.log.codecs.proto_vectors import ProtoVectors
from headrace.log.codecs.protobuf import ProtobufCodec, ProtoWriter, read_indexes, write_indexes
from headrace.log.registry.base import Reference, Schema
from headrace.log.registry.registry import Registry
from headrace.log.registry.schemas import RegistrySchemas
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
from tests.log.codecs.random_columns import batches, simple_types, types
from tests.log.support import open_owner

Batch = tuple[tuple[Column, ...], pa.RecordBatch]
names = itertools.count()
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Kind { NEW = 0; OLD = 1; }
message Address { string zip = 1; }
message Order {
  int64 id = 1;
  Kind kind = 2;
  map<string, int32> counts = 3;
  repeated string tags = 4;
  Address home = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.StringValue note = 7;
  message Line { uint64 n = 1; }
  repeated Line lines = 8;
}
"""
ORDER_COLUMNS = (
    Column("ID", BIGINT),
    Column("KIND", VARCHAR),
    Column("COUNTS", Map(VARCHAR, INTEGER)),
    Column("TAGS", Array(VARCHAR)),
    Column("HOME", Struct((("ZIP", VARCHAR),))),
    Column("AT", TIMESTAMP),
    Column("NOTE", VARCHAR),
    Column("LINES", Array(Struct((("N", BIGINT),)))),
)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    log = open_owner(tmp_path_factory.mktemp("log"))
    yield Registry(log)
    log.close()


def codec(registry: Registry, format_: str, topic: str, *columns: Column, **options: Any) -> Codec:
    return make_codec(format_, topic, columns, "value", FormatOptions(**options), RegistrySchemas(registry))


def as_protobuf_keeps_it(value: Any, type_: DataType) -> Any:
    """Arrays and maps that are null come back empty."""
    match type_:
        case Array(element):
            return [as_protobuf_keeps_it(item, element) for item in value or []]
        case Map(key, item):
            return [(as_protobuf_keeps_it(k, key), as_protobuf_keeps_it(v, item)) for k, v in value or []]
        case Struct(fields):
            return None if value is None else {name: as_protobuf_keeps_it(value[name], t) for name, t in fields}
        case _:
            return value


def has_null_element(value: Any, type_: DataType) -> bool:
    match type_:
        case Array(element):
            return any(item is None or has_null_element(item, element) for item in value or [])
        case Map(key, item):
            return any(has_null_element(k, key) or has_null_element(v, item) for k, v in value or [])
        case Struct(fields):
            return value is not None and any(has_null_element(value[name], t) for name, t in fields)
        case _:
            return False


@pytest.mark.slow
def test_all_types_and_nestings_come_back(registry: Registry) -> None:
    @given(batches(types(simple_types().filter(lambda type_: type_ != DOUBLE))))
    @settings(max_examples=60, deadline=None)
    def run(drawn: Batch) -> None:
        columns, batch = drawn
        codec_ = codec(registry, "PROTOBUF", f"all{next(names)}", *columns)
        encoded = codec_.encode(batch)
        rows = batch.to_pylist()
        unwritable = {
            row for row, values in enumerate(rows) if any(has_null_element(values[c.name], c.type) for c in columns)
        }
        assert set(encoded.errors) == unwritable
        back = codec_.decode(encoded.payloads)
        assert not back.errors
        for row, found in enumerate(back.batch.to_pylist()):
            if row not in unwritable:
                assert found == {c.name: as_protobuf_keeps_it(rows[row][c.name], c.type) for c in columns}

    run()


def test_json_sr_gives_back_what_it_was_given(registry: Registry) -> None:
    @given(batches(types()), st.booleans())
    @settings(max_examples=60, deadline=None)
    def run(drawn: Batch, wrapped: bool) -> None:
        columns, batch = drawn
        codec_ = codec(registry, "JSON_SR", f"json{next(names)}", *columns, wrap_single_value=wrapped)
        back = codec_.decode(codec_.encode(batch).payloads)
        assert not back.errors
        assert back.batch.equals(batch)

    run()


@pytest.mark.parametrize("format_", ["PROTOBUF", "JSON_SR"])
def test_hostile_bytes_are_errors_of_their_rows(registry: Registry, format_: str) -> None:
    columns = (Column("A", BIGINT), Column("B", VARCHAR), Column("C", Array(Struct((("X", DATE),)))))
    codec_ = codec(registry, format_, f"hostile-{format_}", *columns)
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    good = codec_.encode(pa.RecordBatch.from_pylist([{"A": 1}], schema=schema)).payloads.to_pylist()[0]

    @given(st.lists(st.binary(max_size=60).map(lambda tail: good[:5] + tail) | st.binary(max_size=9), max_size=5))
    @settings(max_examples=150, deadline=None)
    def run(payloads: list[bytes]) -> None:
        found = codec_.decode(pa.array([*payloads, good], pa.binary()))
        assert found.batch.num_rows == len(payloads) + 1
        assert len(payloads) not in found.errors
        for row in found.errors:
            assert set(found.batch.slice(row, 1).to_pylist()[0].values()) == {None}

    run()


def test_somebody_elses_messages_are_read_and_written(registry: Registry) -> None:
    one = registry.register("shop-value", Schema(ORDER, "PROTOBUF"))
    message = GetMessageClass(ProtoFiles(ORDER).message((1,)))
    sent = message(id=7, kind=1, tags=["a", "b"], counts={"x": 1})
    sent.home.zip = "8000"
    sent.at.seconds, sent.at.nanos = 1, 5000
    sent.note.value = "hi"
    sent.lines.add(n=3)
    payload = struct.pack(">bI", 0, one.id) + write_indexes([1]) + sent.SerializeToString()
    codec_ = codec(registry, "PROTOBUF", "shop", *ORDER_COLUMNS, full_name="shop.Order")
    found = codec_.decode(pa.array([payload, payload[:5] + b"\x02\x12", payload[:5]], pa.binary()))
    row = {
        "ID": 7,
        "KIND": "OLD",
        "COUNTS": [("x", 1)],
        "TAGS": ["a", "b"],
        "HOME": {"ZIP": "8000"},
        "AT": datetime.datetime(1970, 1, 1, 0, 0, 1, 5, datetime.UTC),
        "NOTE": "hi",
        "LINES": [{"N": 3}],
    }
    assert found.batch.to_pylist()[0] == row
    assert found.errors == {
        1: "the schema has no message number [9]",
        2: "the payload ends before its message",
    }
    assert codec_.encode(found.batch.slice(0, 1)).payloads.to_pylist() == [payload]


def test_fields_are_known_by_number_when_they_are_renamed(registry: Registry) -> None:
    old = 'syntax = "proto3"; message A { int64 id = 1; string note = 2; }'
    new = 'syntax = "proto3"; message A { int64 id = 1; string remark = 2; int32 extra = 3; }'
    first = registry.register("renamed-value", Schema(old, "PROTOBUF"))
    registry.register("renamed-value", Schema(new, "PROTOBUF"))
    message = GetMessageClass(ProtoFiles(old).message())(id=1, note="x")
    payload = struct.pack(">bI", 0, first.id) + b"\0" + message.SerializeToString()
    columns = (Column("ID", BIGINT), Column("REMARK", VARCHAR), Column("EXTRA", INTEGER))
    found = codec(registry, "PROTOBUF", "renamed", *columns).decode(pa.array([payload], pa.binary()))
    assert found.batch.to_pylist() == [{"ID": 1, "REMARK": "x", "EXTRA": 0}]


def test_imports_are_found_through_references(registry: Registry) -> None:
    registry.register("base", Schema('syntax = "proto3"; package b; message Base { string s = 1; }', "PROTOBUF"))
    text = 'syntax = "proto3"; import "base.proto"; message A { b.Base base = 1; }'
    registry.register("uses-value", Schema(text, "PROTOBUF", (Reference("base.proto", "base", 1),)))
    codec_ = codec(registry, "PROTOBUF", "uses", Column("BASE", Struct((("S", VARCHAR),))))
    batch = pa.RecordBatch.from_pylist([{"BASE": {"S": "x"}}])
    assert codec_.decode(codec_.encode(batch).payloads).batch.to_pylist() == [{"BASE": {"S": "x"}}]


FLAT: list[DataType] = [BOOLEAN, INTEGER, BIGINT, DOUBLE, VARCHAR, BYTES, TIMESTAMP]


@pytest.mark.slow
def test_all_rows_at_once_are_read_like_each_alone(registry: Registry) -> None:
    """With bytes changed, cut and added: what numpy reads is what protobuf reads, or is left to it."""

    @given(batches(st.sampled_from(FLAT), max_columns=20), st.data())
    @settings(max_examples=120, deadline=None)
    def run(drawn: Batch, data: st.DataObject) -> None:
        columns, batch = drawn
        codec_ = codec(registry, "PROTOBUF", f"fast{next(names)}", *columns)
        assert isinstance(codec_, ProtobufCodec)
        payloads = codec_.encode(batch).payloads.to_pylist()
        for row, payload in enumerate(payloads):
            changed = bytearray(payload)
            for _ in range(data.draw(st.integers(0, 2))):
                changed[data.draw(st.integers(5, len(changed) - 1))] = data.draw(st.integers(0, 255))
            cut = data.draw(st.sampled_from([None, None, None, 5, -1]))
            payloads[row] = bytes(changed)[:cut] + data.draw(st.sampled_from([b"", b"", b"x"]))
        array = pa.array([b"before", *payloads, b"after"], pa.binary()).slice(1, len(payloads))
        together, alone = codec_.decode(array), codec_.decode_each(array)
        assert together.errors == alone.errors
        # As text, because what is not a number is not equal to itself.
        assert str(together.batch.to_pylist()) == str(alone.batch.to_pylist())

    run()


@given(batches(st.sampled_from(FLAT), max_columns=20))
@settings(max_examples=100, deadline=None)
def test_all_rows_at_once_are_written_like_each_alone(drawn: Batch) -> None:
    columns, batch = drawn
    files = ProtoFiles(proto_schema(columns))
    assert ProtoVectorWriter.make(columns, files.message()) is not None
    writer = ProtoWriter(columns, files, FormatOptions())
    assert writer.encode(batch, b"head!").payloads.equals(writer.encode_each(batch, b"head!").payloads)


def test_flat_messages_are_read_all_at_once() -> None:
    columns = [Column(f"C{place}", type_) for place, type_ in enumerate(FLAT * 3)]
    assert ProtoVectors.make(columns, ProtoFiles(proto_schema(columns)).message()) is not None
    plain = ProtoFiles('syntax = "proto3"; message A { int64 n = 1; string s = 2; uint32 u = 3; }').message()
    assert ProtoVectors.make([Column("S", VARCHAR)], plain) is not None
    assert ProtoVectors.make([], ProtoFiles(ORDER).message((1,))) is None


@given(st.lists(st.integers(0, 1 << 20), min_size=1, max_size=5))
def test_places_of_messages_come_back(indexes: list[int]) -> None:
    assert read_indexes(write_indexes(indexes), 0) == (tuple(indexes), len(write_indexes(indexes)))


def test_columns_are_inferred() -> None:
    columns = [
        Column("A", BOOLEAN),
        Column("B", INTEGER),
        Column("C", Decimal(9, 2)),
        Column("D", DATE),
        Column("E", TIME),
        Column("F", TIMESTAMP),
        Column("G", Array(BYTES)),
        Column("H", Struct((("X", DOUBLE), ("Y", Array(VARCHAR))))),
        Column("I", Map(VARCHAR, BIGINT)),
    ]
    assert columns_of_proto(proto_schema(columns)) == columns
    assert columns_of_json_schema(json_schema(tuple(columns))) == columns
    assert columns_of_proto(ORDER, full_name="shop.Order") == list(ORDER_COLUMNS)


def test_json_sr_writes_times_as_ksqldb_does(registry: Registry) -> None:
    columns = (Column("D", DATE), Column("AT", TIMESTAMP), Column("T", TIME), Column("N", Decimal(6, 2)))
    codec_ = codec(registry, "JSON_SR", "times", *columns)
    row = {
        "D": datetime.date(1970, 1, 3),
        "AT": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
        "T": 5,
        "N": decimal.Decimal("1.50"),
    }
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    [payload] = codec_.encode(pa.RecordBatch.from_pylist([row], schema=schema)).payloads.to_pylist()
    assert payload[5:] == b'{"D":2,"AT":1000,"T":5,"N":1.50}'
    assert json.loads(registry.schema(registry.version("times-value", None).id).text)["properties"]["AT"]["oneOf"]
