"""Avro bodies as events: container files, and records as Confluent's serializers frame them."""

from __future__ import annotations

import datetime
import io
import json
import struct
from typing import Any

import fastavro
import httpx

from tests.server.running import Running

VIEW = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "userid", "type": "string"},
        {"name": "pageid", "type": ["null", "string"], "default": None},
        {"name": "viewtime", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "referrer", "type": ["null", "string"], "default": None},
    ],
}
AT = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)


def view(number: int, **more: Any) -> dict[str, Any]:
    return {"userid": f"u{number}", "pageid": "/a", "viewtime": AT, "referrer": None} | more


def send(server: Running, body: bytes, kind: str = "application/avro", **headers: str) -> httpx.Response:
    return server.send("pageviews", body, headers={"content-type": kind, **headers})


def container(records: list[dict[str, Any]], schema: Any = VIEW, codec: Any = "deflate") -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, schema, records, codec=codec)
    return stream.getvalue()


def test_a_container_file_is_many_events(server: Running) -> None:
    answer = send(server, container([view(number, referrer="/x" if number else None) for number in range(100)]))
    assert answer.status_code == 200
    assert (answer.json()["accepted"], answer.json()["rejected"]) == (100, [])
    events = [event for event in server.events("pageviews") if event["key"]["userid"] in ("u0", "u1")]
    assert sorted(event["time_ms"] for event in events) == [1_794_744_000_000] * 2
    assert {json.dumps(event["rest"]) for event in events} == {'{"referrer": null}', '{"referrer": "/x"}'}


def test_a_framed_record_is_one_event(server: Running) -> None:
    registered = server.http.post("/registry/subjects/pageviews-value/versions", json={"schema": json.dumps(VIEW)})
    stream = io.BytesIO()
    stream.write(struct.pack(">bI", 0, registered.json()["id"]))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(VIEW), view(7))
    answer = send(server, stream.getvalue(), "application/vnd.confluent.avro", **{"idempotency-key": "k"})
    assert answer.json()["accepted"] == 1
    assert send(server, stream.getvalue(), **{"idempotency-key": "k"}).json()["duplicates"] == 1


def test_what_cannot_be_read_is_a_dead_letter_with_its_bytes(server: Running) -> None:
    for body, reason in (
        (b"\0\0\0\x99\x99abc", "the event is written with schema 39321: schema 39321 not found"),
        (b"hello", "the event is neither an Avro file nor framed with a schema's id"),
        (
            container([view(1)])[:-20],
            "the event is in an Avro file that cannot be read on: the Avro file ends too early",
        ),
    ):
        answer = send(server, body)
        assert answer.status_code == 422
        [rejected] = answer.json()["rejected"]
        assert rejected["reason"].startswith(reason)


def test_records_before_the_damage_are_taken(server: Running) -> None:
    stream = io.BytesIO()
    fastavro.writer(stream, VIEW, [view(50 + number) for number in range(10)], sync_interval=1)
    body = stream.getvalue()[:-1]
    answer = send(server, body).json()
    assert answer["accepted"] == 9
    assert [rejected["index"] for rejected in answer["rejected"]] == [9]


def test_fields_of_the_wrong_type_are_rejected_alone(server: Running) -> None:
    other = {"type": "record", "name": "V", "fields": [{"name": "userid", "type": ["string", "int"]}]}
    answer = send(server, container([{"userid": "a"}, {"userid": 7}], other)).json()
    assert answer["accepted"] == 1
    assert answer["rejected"][0]["reason"] == "`userid` must be a string, got 7"
