"""AVRO payloads through a real registry: round trips, evolution, ksqlDB's schemas, and hostile bytes."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import UsageError
from headrace.log.codecs.avro import AvroCodec
from headrace.log.codecs.avro_loading import load_schema
from headrace.log.codecs.avro_reader import AvroReader
from headrace.log.codecs.avro_types import avro_schema, columns_of_avro
from headrace.log.codecs.avro_vector_writing import VectorWriter
from headrace.log.codecs.avro_vectors import VectorReader
from headrace.log.codecs.avro_writer import AvroWriter
from headrace.log.codecs.base import FormatOptions
from headrace.log.codecs.formats import make_codec
from headrace.log.registry.base import Schema
from headrace.log.registry.registry import Registry
from headrace.log.registry.schemas import RegistrySchemas
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
    Decimal,
    Map,
    Struct,
)
from tests.log.codecs.random_columns import SIMPLE, batches, simple_types, types
from tests.log.support import open_owner

Batch = tuple[tuple[Column, ...], pa.RecordBatch]
names = itertools.count()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    log = open_owner(tmp_path_factory.mktemp("log"))
    yield Registry(log)
    log.close()


def codec(registry: Registry, topic: str, *columns: Column, **options: Any) -> AvroCodec:
    return AvroCodec(topic, columns, RegistrySchemas(registry), options=FormatOptions(**options))


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    """What another producer would send."""
    stream = io.BytesIO(struct.pack(">bI", 0, schema_id))
    stream.seek(5)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)}


def test_all_types_and_nestings_come_back(registry: Registry) -> None:
    keys = simple_types().filter(lambda type_: type_ != DOUBLE)

    @given(batches(types(keys)), st.booleans())
    @settings(max_examples=60, deadline=None)
    def run(drawn: Batch, wrapped: bool) -> None:
        columns, batch = drawn
        codec_ = codec(registry, f"all{next(names)}", *columns, wrap_single_value=wrapped)
        encoded = codec_.encode(batch)
        assert not encoded.errors
        back = codec_.decode(encoded.payloads)
        assert not back.errors
        assert back.batch.to_pylist() == batch.to_pylist()

    run()


def test_what_fastavro_reads_is_what_was_written(registry: Registry) -> None:
    """Another reader, with the registered schema and its logical types, sees the same values."""

    @given(batches(simple_types()))
    @settings(max_examples=60, deadline=None)
    def run(drawn: Batch) -> None:
        columns, batch = drawn
        topic = f"other{next(names)}"
        payloads = codec(registry, topic, *columns).encode(batch).payloads.to_pylist()
        if not payloads:
            return
        one = registry.version(f"{topic}-value", None)
        schema = fastavro.parse_schema(json.loads(registry.schema(one.id).text))
        for payload, row in zip(payloads, batch.to_pylist(), strict=True):
            assert payload[:5] == struct.pack(">bI", 0, one.id)
            found: Any = fastavro.schemaless_reader(io.BytesIO(payload[5:]), schema, None)
            for column in columns:
                if column.type == TIME and row[column.name] is not None:
                    found[column.name] = _milliseconds(found[column.name])
            assert found == row

    run()


@given(batches(simple_types(), max_columns=5), st.data())
@settings(max_examples=200, deadline=None)
def test_all_rows_at_once_are_read_like_each_alone(drawn: Batch, data: st.DataObject) -> None:
    """With bytes changed, cut and added: what numpy reads is what fastavro reads, or is left to it. Only text that
    nobody asks for is not looked at: fastavro refuses a record for it."""
    columns, batch = drawn
    schema = load_schema(avro_schema(columns))
    payloads = AvroWriter(columns, schema).encode(batch, b"head!").payloads.to_pylist()
    for row, payload in enumerate(payloads):
        changed = bytearray(payload)
        for _ in range(data.draw(st.integers(0, 2))):
            changed[data.draw(st.integers(5, len(changed) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.sampled_from([None, None, None, 5, -1]))
        payloads[row] = bytes(changed)[:cut] + data.draw(st.sampled_from([b"", b"", b"x"]))
    wanted = columns[: data.draw(st.integers(1, len(columns)))]
    reader = AvroReader(wanted, schema)
    together = reader.decode(pa.array([b"before", *payloads, b"after"], pa.binary()).slice(1, len(payloads)), 5)
    alone = reader.decode_each(payloads, 5)
    unread = {
        row
        for row, why in alone.errors.items()
        if wanted != columns and row not in together.errors and why == "text in the record is not UTF-8"
    }
    assert together.errors == {row: why for row, why in alone.errors.items() if row not in unread}
    # As text, because what is not a number is not equal to itself.
    for row, (one, other) in enumerate(zip(together.batch.to_pylist(), alone.batch.to_pylist(), strict=True)):
        assert row in unread or str(one) == str(other)


@given(batches(st.sampled_from(SIMPLE), max_columns=5))
@settings(max_examples=100, deadline=None)
def test_all_rows_at_once_are_written_like_each_alone(drawn: Batch) -> None:
    columns, batch = drawn
    schema = load_schema(avro_schema(columns))
    assert VectorWriter.make(columns, schema.record, schema.types) is not None
    writer = AvroWriter(columns, schema)
    assert writer.encode(batch, b"head!").payloads.equals(writer.encode_each(batch, b"head!").payloads)


def test_flat_records_are_read_all_at_once() -> None:
    columns = [Column(f"C{place}", type_) for place, type_ in enumerate((*SIMPLE, Decimal(9, 2)))]
    schema = load_schema(avro_schema(columns))
    assert VectorReader.make(columns, schema.record, schema.types) is not None
    nested = load_schema(avro_schema([Column("A", Array(BIGINT))]))
    assert VectorReader.make([Column("A", Array(BIGINT))], nested.record, nested.types) is None


def _milliseconds(time: datetime.time) -> int:
    return ((time.hour * 60 + time.minute) * 60 + time.second) * 1000 + time.microsecond // 1000


def test_hostile_bytes_are_errors_of_their_rows(registry: Registry) -> None:
    columns = (
        Column("A", BIGINT),
        Column("B", VARCHAR),
        Column("C", Decimal(9, 2)),
        Column("D", Array(Struct((("X", VARCHAR),)))),
        Column("E", Map(VARCHAR, TIMESTAMP)),
        Column("F", DATE),
    )
    codec_ = codec(registry, "hostile", *columns)
    good = codec_.encode(pa.RecordBatch.from_pylist([{}], schema=_schema(columns))).payloads.to_pylist()[0]

    @given(st.lists(st.binary(max_size=60).map(lambda tail: good[:5] + tail) | st.binary(max_size=9), max_size=5))
    @settings(max_examples=150, deadline=None)
    def run(payloads: list[bytes]) -> None:
        found = codec_.decode(pa.array([*payloads, good], pa.binary()))
        assert found.batch.num_rows == len(payloads) + 1
        assert len(payloads) not in found.errors
        for row in found.errors:
            assert set(found.batch.slice(row, 1).to_pylist()[0].values()) == {None}

    run()


def _schema(columns: tuple[Column, ...]) -> pa.Schema:
    from headrace.log.schema import arrow_type

    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


def test_a_short_payload_can_not_claim_much(registry: Registry) -> None:
    codec_ = codec(registry, "claims", Column("A", BYTES), Column("B", Array(BIGINT)))
    head = codec_.encode(pa.record_batch({"A": pa.array([b""]), "B": pa.array([[1]], pa.list_(pa.int64()))}))
    start = head.payloads.to_pylist()[0][:5]
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    found = codec_.decode(pa.array([start + b"\x02" + huge, start + b"\x00\x02" + huge, start], pa.binary()))
    assert found.errors == dict.fromkeys(range(3), "the record ends too early")


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]},
            "contains itself",
        ),
        (record({"name": "a", "type": {"type": "array", "items": "null"}}), "take no bytes"),
        (
            record(
                {"name": "a", "type": {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}}
            ),
            "take no bytes",
        ),
    ],
)
def test_schemas_that_could_be_used_against_us_are_not_read(registry: Registry, schema: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        load_schema(json.dumps(schema))
    registry.settings.set_config("unsafe-value", "NONE")
    one = registry.register("unsafe-value", Schema(json.dumps(schema)))
    found = codec(registry, "unsafe", Column("A", BIGINT)).decode(
        pa.array([struct.pack(">bI", 0, one.id) + b"\x02" * 100_000], pa.binary())
    )
    assert reason in found.errors[0]


def test_old_records_are_resolved_to_the_newest_schema(registry: Registry) -> None:
    old = record({"name": "id", "type": "int"}, {"name": "note", "type": "string"})
    new = record(
        {"name": "id", "type": "long"},
        {"name": "country", "type": "string", "default": "CH"},
        {"name": "remark", "type": "string", "aliases": ["note"]},
    )
    first = registry.register("evolved-value", Schema(json.dumps(old)))
    second = registry.register("evolved-value", Schema(json.dumps(new)))
    columns = (Column("ID", BIGINT), Column("COUNTRY", VARCHAR), Column("REMARK", VARCHAR))
    payloads = [
        framed(first.id, old, {"id": 1, "note": "a"}),
        None,
        framed(second.id, new, {"id": 1 << 40, "country": "DE", "remark": "b"}),
        framed(first.id, old, {"id": 2, "note": "c"}),
        b"\0\0\0\xff\xff",
        b"{}",
    ]
    found = codec(registry, "evolved", *columns).decode(pa.array(payloads, pa.binary()))
    assert found.batch.to_pylist() == [
        {"ID": 1, "COUNTRY": "CH", "REMARK": "a"},
        {"ID": None, "COUNTRY": None, "REMARK": None},
        {"ID": 1 << 40, "COUNTRY": "DE", "REMARK": "b"},
        {"ID": 2, "COUNTRY": "CH", "REMARK": "c"},
        {"ID": None, "COUNTRY": None, "REMARK": None},
        {"ID": None, "COUNTRY": None, "REMARK": None},
    ]
    assert found.errors == {
        4: "written with schema 65535: schema 65535 not found",
        5: "the payload has 2 bytes: a zero byte and a schema's id of four bytes come first",
    }


def test_units_are_those_of_the_writer(registry: Registry) -> None:
    registry.settings.set_config("units-value", "NONE")
    micros = record({"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}})
    millis = record({"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}})
    first = registry.register("units-value", Schema(json.dumps(micros)))
    second = registry.register("units-value", Schema(json.dumps(millis)))
    moment = datetime.datetime(2026, 11, 15, 12, 0, 0, 1000, datetime.UTC)
    payloads = [framed(first.id, micros, {"at": moment}), framed(second.id, millis, {"at": moment})]
    found = codec(registry, "units", Column("AT", TIMESTAMP)).decode(pa.array(payloads, pa.binary()))
    assert found.batch.to_pylist() == [{"AT": moment}, {"AT": moment}]


def test_somebody_elses_schema_is_written_with_if_it_fits(registry: Registry) -> None:
    theirs = record(
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "source", "type": "string", "default": "sql"},
        {"name": "props", "type": {"type": "map", "values": "long"}},
    )
    one = registry.register("theirs-value", Schema(json.dumps(theirs)))
    columns = (Column("ID", BIGINT), Column("KIND", VARCHAR), Column("PROPS", Map(VARCHAR, BIGINT)))
    codec_ = codec(registry, "theirs", *columns)
    encoded = codec_.encode(
        pa.RecordBatch.from_pylist(
            [
                {"ID": 1, "KIND": "NEW", "PROPS": [("a", 1)]},
                {"ID": 2, "KIND": "ODD", "PROPS": []},
                {"ID": None, "KIND": "OLD", "PROPS": []},
            ],
            schema=_schema(columns),
        )
    )
    assert encoded.errors == {
        1: "`kind` is not a symbol of the enum: ODD",
        2: "`id` is null, which the schema does not allow",
    }
    payload = encoded.payloads.to_pylist()[0]
    assert payload[:5] == struct.pack(">bI", 0, one.id)
    read = fastavro.schemaless_reader(io.BytesIO(payload[5:]), fastavro.parse_schema(theirs), None)
    assert read == {"id": 1, "kind": "NEW", "source": "sql", "props": {"a": 1}}


def test_the_schema_is_the_one_ksqldb_registers() -> None:
    columns = [
        Column("ID", BIGINT),
        Column("TOTAL", Decimal(9, 2)),
        Column("AT", TIMESTAMP),
        Column("TAGS", Array(VARCHAR)),
        Column("M", Map(VARCHAR, INTEGER)),
        Column("S", Struct((("X", DOUBLE),))),
    ]
    assert json.loads(avro_schema(columns)) == {
        "type": "record",
        "name": "KsqlDataSourceSchema",
        "namespace": "io.confluent.ksql.avro_schemas",
        "fields": [
            {"name": "ID", "type": ["null", "long"], "default": None},
            {
                "name": "TOTAL",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
                "default": None,
            },
            {"name": "AT", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
            {"name": "TAGS", "type": ["null", {"type": "array", "items": ["null", "string"]}], "default": None},
            {
                "name": "M",
                "type": [
                    "null",
                    {
                        "type": "array",
                        "items": {
                            "type": "record",
                            "name": "KsqlDataSourceSchema_M",
                            "fields": [
                                {"name": "key", "type": ["null", "string"], "default": None},
                                {"name": "value", "type": ["null", "int"], "default": None},
                            ],
                            "connect.internal.type": "MapEntry",
                        },
                    },
                ],
                "default": None,
            },
            {
                "name": "S",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "KsqlDataSourceSchema_S",
                        "fields": [{"name": "X", "type": ["null", "double"], "default": None}],
                    },
                ],
                "default": None,
            },
        ],
    }


def test_columns_are_inferred_from_a_schema() -> None:
    columns = [
        Column("A", BOOLEAN),
        Column("B", INTEGER),
        Column("C", Decimal(9, 2)),
        Column("D", DATE),
        Column("E", TIME),
        Column("F", TIMESTAMP),
        Column("G", Array(Map(VARCHAR, BYTES))),
        Column("H", Struct((("X", DOUBLE), ("Y", Array(VARCHAR))))),
    ]
    assert columns_of_avro(avro_schema(columns)) == columns
    assert columns_of_avro('"long"') == [Column("ROWVAL", BIGINT)]
    with pytest.raises(UsageError, match="several types"):
        columns_of_avro(json.dumps(record({"name": "a", "type": ["int", "string"]})))


def test_a_key_of_one_column_is_bare(registry: Registry) -> None:
    codec_ = make_codec("AVRO", "keyed", (Column("ID", BIGINT),), "key", schemas=RegistrySchemas(registry))
    encoded = codec_.encode(pa.record_batch({"ID": pa.array([1, None])}))
    assert registry.schema(registry.version("keyed-key", None).id).text == '"long"'
    assert [payload and payload[5:] for payload in encoded.payloads.to_pylist()] == [b"\x02", None]
    assert codec_.decode(encoded.payloads).batch.to_pylist() == [{"ID": 1}, {"ID": None}]


def test_decimals_are_exact_or_not_at_all(registry: Registry) -> None:
    theirs = record({"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}})
    one = registry.register("digits-value", Schema(json.dumps(theirs)))
    values = ["1.5000", "1.2345", "99999999.00"]
    payloads = [framed(one.id, theirs, {"d": decimal.Decimal(value)}) for value in values]
    found = codec(registry, "digits", Column("D", Decimal(6, 2))).decode(pa.array(payloads, pa.binary()))
    assert found.batch.to_pylist()[0] == {"D": decimal.Decimal("1.50")}
    assert found.errors == {1: "`d` has more than 2 decimals", 2: "`d` does not fit into DECIMAL(6, 2)"}
