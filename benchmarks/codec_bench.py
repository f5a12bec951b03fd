"""Codecs, to and from Arrow, in batches of 10,000 page views: against the libraries they stand on doing their part
alone, records to Python's own objects and back."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from benchmarks.measure import Measure
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.codecs.avro_loading import load_schema
from headrace.log.codecs.avro_types import avro_schema
from headrace.log.codecs.base import Codec
from headrace.log.codecs.formats import make_codec
from headrace.log.codecs.proto_files import ProtoFiles
from headrace.log.codecs.proto_types import proto_schema
from headrace.log.local.open import LocalLog
from headrace.log.registry.registry import Registry
from headrace.log.registry.schemas import RegistrySchemas
from headrace.log.schema import arrow_type
from headrace.types import BIGINT, DOUBLE, TIMESTAMP, VARCHAR, Array, Column

ROWS = 10_000
FLAT = (
    Column("USERID", VARCHAR),
    Column("PAGEID", VARCHAR),
    Column("N", BIGINT),
    Column("PRICE", DOUBLE),
    Column("VIEWTIME", TIMESTAMP),
)
NESTED = (*FLAT, Column("TAGS", Array(VARCHAR)))


def run(quick: bool = False) -> list[Measure]:
    seconds = 0.2 if quick else 2.0
    with tempfile.TemporaryDirectory() as folder:
        log = LocalLog(Path(folder), LogSettings(min_free_bytes=1), SystemClock())
        schemas = RegistrySchemas(Registry(log))
        try:
            return [
                measure
                for name, columns in (("flat", FLAT), ("with an array", NESTED))
                for format_ in ("JSON", "AVRO", "PROTOBUF", "DELIMITED")
                if not (format_ == "DELIMITED" and columns is NESTED)
                for measure in _format(
                    format_,
                    make_codec(format_, name.replace(" ", "-") + format_, columns, schemas=schemas),
                    name,
                    seconds,
                )
            ]
        finally:
            log.close()


def _format(format_: str, codec: Codec, name: str, seconds: float) -> list[Measure]:
    batch = _batch(codec.columns)
    payloads = codec.encode(batch).payloads
    read, write, library = _alone(format_, codec, batch, payloads.to_pylist())
    measures = []
    for what, ours, theirs in (
        ("read", lambda: codec.decode(payloads), read),
        ("write", lambda: codec.encode(batch), write),
    ):
        value, baseline = _rate(ours, seconds), _rate(theirs, seconds)
        measures.append(Measure(f"{format_} {what}, {name}", value, "records/s", baseline, library))
    return measures


def _batch(columns: tuple[Column, ...]) -> pa.RecordBatch:
    values: dict[str, list[Any]] = {
        "USERID": [f"user_{row % 1000}" for row in range(ROWS)],
        "PAGEID": [f"/page/{row % 77}" for row in range(ROWS)],
        "N": [row * 37 for row in range(ROWS)],
        "PRICE": [row / 7 for row in range(ROWS)],
        "VIEWTIME": [1_794_744_000_000_000 + row * 1000 for row in range(ROWS)],
        "TAGS": [["a", "b"][: row % 3] for row in range(ROWS)],
    }
    return pa.record_batch({column.name: pa.array(values[column.name], arrow_type(column.type)) for column in columns})


def _alone(
    format_: str, codec: Codec, batch: pa.RecordBatch, payloads: list[bytes]
) -> tuple[Callable[[], Any], Callable[[], Any], str]:
    """What the library does by itself: payloads → Python objects, and back."""
    match format_:
        case "AVRO":
            schema = load_schema(avro_schema(codec.columns)).parsed
            records = [fastavro.schemaless_reader(io.BytesIO(payload[5:]), schema, None) for payload in payloads]
            return (
                lambda: [fastavro.schemaless_reader(io.BytesIO(payload[5:]), schema, None) for payload in payloads],
                lambda: [_written(schema, record) for record in records],
                "fastavro alone",
            )
        case "PROTOBUF":
            message = GetMessageClass(ProtoFiles(proto_schema(codec.columns)).message())
            messages = [message.FromString(payload[6:]) for payload in payloads]
            return (
                lambda: [message.FromString(payload[6:]) for payload in payloads],
                lambda: [one.SerializeToString() for one in messages],
                "protobuf alone, fields untouched",
            )
        case "DELIMITED":
            rows = [payload.decode().split(",") for payload in payloads]
            return (
                lambda: [payload.decode().split(",") for payload in payloads],
                lambda: [",".join(row).encode() for row in rows],
                "split and join",
            )
        case _:
            decoder, encoder = msgspec.json.Decoder(), msgspec.json.Encoder()
            objects = [decoder.decode(payload) for payload in payloads]
            return (
                lambda: [decoder.decode(payload) for payload in payloads],
                lambda: [encoder.encode(one) for one in objects],
                "msgspec alone",
            )


def _written(schema: Any, record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, record)
    return stream.getvalue()


def _rate(work: Callable[[], Any], seconds: float) -> float:
    """Records a second: the best round, because whoever else is on the machine only makes it slower."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return ROWS / best
