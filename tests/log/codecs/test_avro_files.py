"""Avro's container files: ours are read by others, others' by us, and damage or a bomb is noticed."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any, Literal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError, TooLarge
from headrace.log.codecs.avro_files import open_container, write_container
from headrace.log.codecs.avro_loading import load_schema
from headrace.types import BIGINT, VARCHAR, Column
from tests.log.codecs.random_columns import batches, simple_types

Batch = tuple[tuple[Column, ...], pa.RecordBatch]
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}


def read(body: bytes, most: int = 1 << 20) -> list[Any]:
    container = open_container(body)
    schema = load_schema(container.schema).parsed
    found = []
    for block in container.blocks(most):
        stream = io.BytesIO(block.data)
        found += [fastavro.schemaless_reader(stream, schema, None) for _ in range(block.count)]
    return found


def written(records: list[Any], codec: Any = "null", **options: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, SCHEMA, records, codec=codec, **options)
    return stream.getvalue()


@given(batches(simple_types()), st.sampled_from(["null", "deflate"]))
@settings(max_examples=40, deadline=None)
def test_fastavro_reads_what_we_write(drawn: Batch, codec: Literal["null", "deflate"]) -> None:
    columns, batch = drawn
    body = write_container(columns, [batch, batch], codec)
    found = list(fastavro.reader(io.BytesIO(body)))
    assert len(found) == 2 * batch.num_rows
    for row, record in zip(batch.to_pylist() * 2, found, strict=True):
        assert isinstance(record, dict)
        for column in columns:
            if str(column.type) != "TIME":
                assert record[column.name] == row[column.name]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_we_read_what_fastavro_writes(codec: str) -> None:
    records = [{"n": number, "s": "x" * number} for number in range(300)]
    body = written(records, codec, sync_interval=500, metadata={"who": "fastavro"})
    assert read(body) == records
    assert json.loads(open_container(body).schema)["name"] == "R"


def test_snappy_is_read_and_checked() -> None:
    body = written([{"n": 1, "s": "aaaaaaaaaaaaaaaa"}])
    container = open_container(body)
    [block] = container.blocks(1000)
    packed = pa.compress(block.data, "snappy", asbytes=True) + zlib.crc32(block.data).to_bytes(4, "big")
    header = body[: container.start].replace(b"\x08null", b"\x0csnappy")
    assert read(header + bytes([2, len(packed) * 2]) + packed + container.sync) == [{"n": 1, "s": "a" * 16}]
    broken = packed[:-1] + bytes([packed[-1] ^ 1])
    with pytest.raises(HeadraceError, match="checksum"):
        read(header + bytes([2, len(broken) * 2]) + broken + container.sync)


def test_a_bomb_is_not_set_off() -> None:
    body = written([{"n": 1, "s": "a" * 10_000_000}], "deflate")
    assert len(body) < 20_000
    with pytest.raises(TooLarge):
        read(body, 1_000_000)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damage_is_an_error_and_nothing_else(data: st.DataObject) -> None:
    body = bytearray(written([{"n": number, "s": "x"} for number in range(20)], "deflate", sync_interval=60))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    try:
        container = open_container(bytes(body[:cut]))
        for block in container.blocks(1 << 16):
            assert len(block.data) <= 1 << 16
    except HeadraceError:
        pass


def test_an_empty_file_is_a_file() -> None:
    body = write_container((Column("A", BIGINT), Column("B", VARCHAR)), [])
    assert list(fastavro.reader(io.BytesIO(body))) == []
    assert read(body) == []
