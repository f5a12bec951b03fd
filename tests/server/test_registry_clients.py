"""Confluent's own clients, unmodified, against the registry of a running server."""

from __future__ import annotations

import datetime
import decimal
import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from headrace.log.codecs.proto_files import ProtoFiles
from tests.server.running import Running, running_server

RECORDS = 10_000
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "page", "type": ["null", "string"], "default": None},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
ORDER_JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "page": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}
ORDER_PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  string page = 2;
  repeated string tags = 3;
  google.protobuf.Timestamp at = 4;
  message Line { string name = 1; double price = 2; }
  repeated Line lines = 5;
}
"""


@pytest.fixture
def client(server: Running) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"http://127.0.0.1:{server.port}/registry"}) as client:
        yield client


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "page": None if number % 3 == 0 else f"/p{number}",
        "total": decimal.Decimal(number).scaleb(-2),
        "at": datetime.datetime(2026, 11, 15, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=number),
        "tags": ["a"] * (number % 4),
    }


def test_avro_both_ways(client: SchemaRegistryClient) -> None:
    context = value_of("avro-orders")
    write = AvroSerializer(client, json.dumps(ORDER))
    read = AvroDeserializer(client)
    sent = [order(number) for number in range(RECORDS)]
    payloads = [write(one, context) for one in sent]
    assert [read(payload, context) for payload in payloads] == sent
    assert client.get_versions("avro-orders-value") == [1]
    latest = client.get_latest_version("avro-orders-value")
    assert payloads[0][:5] == struct.pack(">bi", 0, latest.schema_id)


def test_json_both_ways(client: SchemaRegistryClient) -> None:
    context = value_of("json-orders")
    write = JSONSerializer(json.dumps(ORDER_JSON), client)
    read = JSONDeserializer(json.dumps(ORDER_JSON), schema_registry_client=client)
    sent = [{"id": number, "page": f"/p{number}"} for number in range(RECORDS)]
    assert [read(write(one, context), context) for one in sent] == sent
    assert client.get_latest_version("json-orders-value").schema.schema_type == "JSON"


def test_protobuf_both_ways(client: SchemaRegistryClient) -> None:
    context = value_of("proto-orders")
    message = GetMessageClass(ProtoFiles(ORDER_PROTO).message())
    write = ProtobufSerializer(message, client)
    read = ProtobufDeserializer(message, schema_registry_client=client)
    sent = [message(id=number, page=f"/p{number}", tags=["x"] * (number % 3)) for number in range(RECORDS)]
    for one in sent:
        one.lines.add(name="a", price=0.5)
    assert [read(write(one, context), context) for one in sent] == sent
    latest = client.get_latest_version("proto-orders-value")
    assert latest.schema.schema_type == "PROTOBUF"
    assert "message Order" in (latest.schema.schema_str or "")


def test_an_incompatible_schema_is_a_409_that_says_why(client: SchemaRegistryClient) -> None:
    client.register_schema("refused-value", Schema(json.dumps(ORDER), "AVRO"))
    worse = ORDER | {"fields": [*ORDER["fields"], {"name": "country", "type": "string"}]}
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("refused-value", Schema(json.dumps(worse), "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert "the field `country` is not in what was written and has no default" in refused.value.error_message
    assert client.test_compatibility("refused-value", Schema(json.dumps(worse), "AVRO")) is False


def test_ids_versions_and_lookups(client: SchemaRegistryClient) -> None:
    one, two = Schema('"string"', "AVRO"), Schema('["null","string"]', "AVRO")
    first = client.register_schema("ids-value", one)
    assert client.register_schema("ids-value", Schema('{"type": "string"}', "AVRO")) == first
    assert client.register_schema("ids-key", one) == first
    second = client.register_schema("ids-value", two)
    assert second > first
    assert client.get_schema(first).schema_str == '"string"'
    assert client.get_versions("ids-value") == [1, 2]
    assert client.lookup_schema("ids-value", two).version == 2
    assert client.get_version("ids-value", 1).schema_id == first
    assert {"ids-value", "ids-key"} <= set(client.get_subjects())
    assert sorted(client.get_subjects_by_schema_id(first)) == ["ids-key", "ids-value"]
    assert [(one.subject, one.version) for one in client.get_schema_versions(second)] == [("ids-value", 2)]
    assert sorted(client.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]


def test_deleting_softly_and_for_good(client: SchemaRegistryClient) -> None:
    client.register_schema("gone-value", Schema('"string"', "AVRO"))
    client.register_schema("gone-value", Schema('["null","string"]', "AVRO"))
    assert client.delete_version("gone-value", 1) == 1
    assert client.get_versions("gone-value") == [2]
    assert client.delete_subject("gone-value") == [2]
    assert "gone-value" not in client.get_subjects()
    assert "gone-value" in client.get_subjects(deleted=True)
    assert client.delete_subject("gone-value", permanent=True) == [1, 2]
    assert "gone-value" not in client.get_subjects(deleted=True)
    with pytest.raises(SchemaRegistryError) as missing:
        client.get_latest_version("gone-value")
    assert (missing.value.http_status_code, missing.value.error_code) == (404, 40401)


def test_references_are_followed(client: SchemaRegistryClient) -> None:
    address = {"type": "record", "name": "shop.Address", "fields": [{"name": "zip", "type": "string"}]}
    client.register_schema("address", Schema(json.dumps(address), "AVRO"))
    person = {"type": "record", "name": "shop.Person", "fields": [{"name": "home", "type": "shop.Address"}]}
    schema = Schema(json.dumps(person), "AVRO", [SchemaReference("shop.Address", "address", 1)])
    id_ = client.register_schema("people-value", schema)
    assert client.get_referenced_by("address", 1) == [id_]
    context = value_of("people")
    write, read = AvroSerializer(client, schema), AvroDeserializer(client)
    assert read(write({"home": {"zip": "8000"}}, context), context) == {"home": {"zip": "8000"}}
    with pytest.raises(SchemaRegistryError) as used:
        client.delete_subject("address")
    assert used.value.error_code == 42206


def test_levels_and_modes(client: SchemaRegistryClient) -> None:
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility("levels-value", "FULL_TRANSITIVE")
    assert client.get_compatibility("levels-value") == "FULL_TRANSITIVE"
    with pytest.raises(SchemaRegistryError) as wrong:
        client.set_compatibility("levels-value", "SIDEWAYS")
    assert (wrong.value.http_status_code, wrong.value.error_code) == (422, 42203)
    assert client.get_global_mode() == "READWRITE"
    assert client.update_mode("levels-value", "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as locked:
        client.register_schema("levels-value", Schema('"string"', "AVRO"))
    assert locked.value.error_code == 42205
    assert client.delete_mode("levels-value") == "READONLY"
    client.register_schema("levels-value", Schema('"string"', "AVRO"))
    assert client.get_contexts() == ["."]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "subjects/nobody/versions", None, 404, 40401),
        ("GET", "subjects/known-value/versions/7", None, 404, 40402),
        ("GET", "subjects/known-value/versions/x", None, 422, 42202),
        ("GET", "schemas/ids/999999", None, 404, 40403),
        ("POST", "subjects/known-value", {"schema": '"int"'}, 404, 40403),
        ("POST", "subjects/known-value/versions", {"schema": "{"}, 422, 42201),
        ("POST", "subjects/known-value/versions", {"schema": '"int"', "schemaType": "XML"}, 422, 42201),
        ("POST", "subjects/known-value/versions", {"schema": "message {", "schemaType": "PROTOBUF"}, 422, 42201),
        ("POST", "subjects/known-value/versions", {"schema": '{"type":"x"}', "schemaType": "JSON"}, 422, 42201),
        ("POST", "subjects/known-value/versions", {"schema": '"int"'}, 409, 409),
        ("PUT", "config", {"compatibility": "UP"}, 422, 42203),
        ("PUT", "mode", {"mode": "FAST"}, 422, 42204),
        ("GET", "config/nobody", None, 404, 40408),
        ("DELETE", "subjects/known-value?permanent=true", None, 404, 40405),
    ],
)
def test_errors_have_confluents_numbers(
    server: Running, method: str, path: str, body: Any, status: int, code: int
) -> None:
    server.http.post("/registry/subjects/known-value/versions", json={"schema": '"string"'})
    answer = server.http.request(method, f"/registry/{path}", json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    assert answer.json()["message"]


def test_a_refusal_names_the_streams_and_views_it_spared(server: Running) -> None:
    sql = "CREATE TABLE per_page AS SELECT pageid, COUNT(*) AS n FROM pageviews GROUP BY pageid;"
    assert server.http.post("/v1/statements", json={"sql": sql}).status_code == 200
    path = "/registry/subjects/pageviews-value/versions"
    schema = {"type": "record", "name": "View", "fields": [{"name": "pageid", "type": "string"}]}
    assert server.http.post(path, json={"schema": json.dumps(schema)}).status_code == 200
    worse = schema | {"fields": [{"name": "pageid", "type": "int"}]}
    refused = server.http.post(path, json={"schema": json.dumps(worse)})
    assert refused.status_code == 409
    assert refused.json()["breaks"] == ["stream `pageviews`", "query CTAS_PER_PAGE_1", "view `per_page`"]
    assert "it would have broken stream `pageviews`" in refused.json()["message"]
    check = server.http.post(
        "/registry/compatibility/subjects/pageviews-value/versions/latest?verbose=true",
        json={"schema": json.dumps(worse)},
    ).json()
    assert check["is_compatible"] is False
    assert check["breaks"][0] == "stream `pageviews`"


def test_schemas_outlive_the_server_and_keys_guard_them(tmp_path: Any) -> None:
    reads, writes = "reader-0123456789", "writer-0123456789"
    keys = f'[auth]\nkeys = [{{ key = "{reads}" }}, {{ key = "{writes}", role = "write" }}]\n'
    with running_server(tmp_path, keys, key=writes) as running:
        url = f"http://127.0.0.1:{running.port}/registry"
        with SchemaRegistryClient({"url": url, "basic.auth.user.info": f"me:{writes}"}) as client:
            id_ = client.register_schema("kept-value", Schema('"string"', "AVRO"))
            with pytest.raises(SchemaRegistryError) as refused:
                client.delete_subject("kept-value")
            assert refused.value.http_status_code == 403
        with (
            SchemaRegistryClient({"url": url}) as stranger,
            pytest.raises(SchemaRegistryError) as unknown,
        ):
            stranger.get_subjects()
        assert unknown.value.http_status_code == 401
    with running_server(tmp_path, keys, key=reads) as running:
        found = running.http.get("/registry/subjects/kept-value/versions/latest").json()
        assert (found["id"], found["version"], found["schema"]) == (id_, 1, '"string"')
