"""Streams whose formats have schemas: declared ones are registered, missing columns are found, raw topics are read."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import httpx
import pyarrow as pa
import pytest

from headrace.log.base import Append, TopicSpec
from headrace.log.codecs.base import FormatOptions
from headrace.log.codecs.formats import make_codec
from headrace.types import BIGINT, VARCHAR, Array, Column
from tests.server.running import Running


def run(server: Running, sql: str) -> httpx.Response:
    return server.http.post("/v1/statements", json={"sql": sql})


def query(server: Running, sql: str) -> list[list[Any]]:
    answer = server.http.post("/v1/query", json={"sql": sql})
    assert answer.status_code == 200, answer.text
    rows: list[list[Any]] = answer.json()["rows"]
    return rows


def registered(server: Running, subject: str) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get(f"/registry/subjects/{subject}/versions/latest").json()
    return found


def test_declaring_a_stream_registers_its_schema(server: Running) -> None:
    sql = "CREATE STREAM orders (id BIGINT KEY, page VARCHAR) WITH (KAFKA_TOPIC='orders', FORMAT='AVRO');"
    assert run(server, sql).status_code == 200
    assert registered(server, "orders-key")["schema"] == '"long"'
    fields = json.loads(registered(server, "orders-value")["schema"])["fields"]
    assert fields == [{"name": "PAGE", "type": ["null", "string"], "default": None}]
    fastavro.parse_schema(json.loads(registered(server, "orders-value")["schema"]))


@pytest.mark.parametrize("format_", ["PROTOBUF", "JSON_SR"])
def test_so_do_the_other_formats(server: Running, format_: str) -> None:
    name = f"t_{format_.lower()}"
    assert run(server, f"CREATE STREAM {name} (a BIGINT, b ARRAY<VARCHAR>) WITH (VALUE_FORMAT='{format_}');").is_success
    assert registered(server, f"{name.upper()}-value")["schemaType"] == {"JSON_SR": "JSON"}.get(format_, format_)


def test_an_incompatible_declaration_is_refused_and_leaves_nothing(server: Running) -> None:
    theirs = {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "int"}]}
    path = "/registry/subjects/taken-value/versions"
    assert server.http.post(path, json={"schema": json.dumps(theirs)}).status_code == 200
    answer = run(server, "CREATE STREAM taken (a VARCHAR) WITH (KAFKA_TOPIC='taken', VALUE_FORMAT='AVRO');")
    assert answer.status_code == 409
    assert "incompatible with an earlier one of subject `taken-value`" in answer.json()["error"]["message"]
    assert "taken" not in {source["name"] for source in server.http.get("/v1/sources").json()["sources"]}


def test_columns_that_are_left_out_come_from_the_registry(server: Running) -> None:
    schema = {
        "type": "record",
        "name": "Sale",
        "fields": [
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
    server.http.post("/registry/subjects/sales-value/versions", json={"schema": json.dumps(schema)})
    sql = "CREATE STREAM sales (id VARCHAR KEY) WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='AVRO', PARTITIONS=1);"
    assert run(server, sql).status_code == 200
    columns = server.http.get("/v1/topics/sales").json()["columns"]
    assert [(column["name"], column["type"]) for column in columns] == [
        ("id", "VARCHAR"),
        ("amount", "DECIMAL(9, 2)"),
        ("tags", "ARRAY<VARCHAR>"),
    ]
    assert server.send("sales", {"id": "a", "amount": 1.5, "tags": ["x"]}).json()["accepted"] == 1
    assert query(server, "SELECT id, amount, tags FROM sales;") == [["a", 1.5, ["x"]]]


COLUMNS = (Column("N", BIGINT), Column("NAME", VARCHAR), Column("TAGS", Array(VARCHAR)))


@pytest.mark.parametrize("format_", ["AVRO", "PROTOBUF", "PROTOBUF_NOSR", "JSON_SR", "JSON", "DELIMITED"])
def test_a_raw_topic_is_read_in_the_streams_format(server: Running, format_: str) -> None:
    topic = f"raw-{format_.lower()}"
    columns = COLUMNS[:2] if format_ == "DELIMITED" else COLUMNS
    log = server.services.log
    log.create_topic(TopicSpec(topic, kind="raw"))
    codec = make_codec(format_, topic, columns, "value", FormatOptions(delimiter="|"), log.schemas)
    batch = pa.record_batch(
        {
            "N": pa.array([1, 2]),
            "NAME": pa.array(["a|b", None]),
            "TAGS": pa.array([["x"], []], pa.list_(pa.string())),
        }
    )
    payloads = pa.array([*codec.encode(batch).payloads.to_pylist(), b"\xff\xff broken", None], pa.binary())
    keys = pa.array([b"k1", b"k2", b"k3", b"k4"], pa.binary())
    log.append([Append(topic, pa.record_batch({"KEY": keys, "VALUE": payloads}))]).result(60)
    declared = "k VARCHAR KEY, n BIGINT, name VARCHAR" + ("" if format_ == "DELIMITED" else ", tags ARRAY<VARCHAR>")
    name = topic.replace("-", "_")
    extra = ", VALUE_DELIMITER='|'" if format_ == "DELIMITED" else ""
    sql = f"CREATE STREAM {name} ({declared}) WITH (KAFKA_TOPIC='{topic}', VALUE_FORMAT='{format_}'{extra});"
    assert run(server, sql).status_code == 200
    rows = query(server, f"SELECT k, n, name FROM {name};")
    assert rows[:2] == [["k1", 1, "a|b"], ["k2", 2, None]]
    assert ["k3", None, None] in rows


def test_schemas_can_be_asserted(server: Running) -> None:
    made = server.http.post("/registry/subjects/asserted-value/versions", json={"schema": '"string"'}).json()
    assert run(server, f"ASSERT SCHEMA SUBJECT 'asserted-value' ID {made['id']};").status_code == 200
    assert run(server, f"ASSERT SCHEMA ID {made['id']};").status_code == 200
    assert run(server, "ASSERT NOT EXISTS SCHEMA SUBJECT 'nobody';").status_code == 200
    wrong = run(server, "ASSERT SCHEMA SUBJECT 'asserted-value' ID 9999 TIMEOUT 1 MILLISECONDS;")
    assert wrong.status_code == 400
    assert wrong.json()["error"]["message"] == "schema 9999 of subject `asserted-value` does not exist"
