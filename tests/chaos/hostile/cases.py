"""Requests that mean no good: made from well-formed ones of every protocol, each case from its own seed."""

from __future__ import annotations

import base64
import gzip
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.collect.prometheus import write_request
from tests.chaos.hostile.collectors import RULED


@dataclass(frozen=True, slots=True)
class Case:
    kind: str
    """The collector it is for."""
    attack: str
    method: str
    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


JSON = {"Content-Type": "application/json"}
AMAZON = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "Kinesis_20131202.PutRecords"}
AMAZON_KEY = "AWS4-HMAC-SHA256 Credential=a/20261116/us-east-1/kinesis/aws4_request, SignedHeaders=host, Signature=0"
ORDER = {"id": "7", "total": 3, "moment": "2026-11-16T12:00:00Z", "price": 12.5, "tags": ["a", "b"], "who": {"n": 1}}


def bytes_of(value: Any) -> bytes:
    return json.dumps(value).encode()


def _plain(chance: random.Random) -> Case:
    events = [ORDER | {"$id": str(chance.random())} for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.3:
        lines = b"\n".join(map(bytes_of, events))
        return Case("http", "", "POST", "/v1/topics/http/events", lines, {"Content-Type": "application/x-ndjson"})
    if chance.random() < 0.2:
        framed = b"\0" + chance.randbytes(4) + chance.randbytes(20)
        return Case("http", "", "POST", "/v1/topics/http/events", framed, {"Content-Type": "application/avro"})
    if chance.random() < 0.2:
        records = {"records": [{"key": "k", "value": ORDER, "headers": {"h": "v"}, "partition": 0}]}
        return Case("http", "", "POST", "/v1/topics/http/records", bytes_of(records), JSON)
    return Case("http", "", "POST", "/v1/topics/http/events", bytes_of(events), JSON)


def _named(kind: str, path: str, make: Callable[[random.Random], bytes], headers: dict[str, str]) -> Any:
    def case(chance: random.Random) -> Case:
        return Case(kind, "", "POST", f"/v1/collect/{kind}/{path}", make(chance), headers)

    return case


def _segment(chance: random.Random) -> bytes:
    message = {"type": "track", "event": "Order", "anonymousId": "a", "properties": ORDER}
    return bytes_of(
        {"batch": [message | {"messageId": str(chance.random())} for _ in range(3)], "sentAt": "2026-11-16"}
    )


def _snowplow(chance: random.Random) -> bytes:
    context = base64.urlsafe_b64encode(bytes_of({"schema": "iglu:a/b/jsonschema/1-0-0", "data": []})).decode()
    event = {
        "e": "se",
        "p": "web",
        "eid": str(chance.random()),
        "se_ca": "c",
        "se_ac": "a",
        "se_va": "1",
        "cx": context,
    }
    return bytes_of(
        {"schema": "iglu:com.snowplowanalytics.snowplow/payload_data/jsonschema/1-0-4", "data": [event, event]}
    )


def _posthog(chance: random.Random) -> bytes:
    event = {"event": "e", "distinct_id": "d", "uuid": str(chance.random()), "properties": ORDER}
    return bytes_of({"api_key": "k", "batch": [event], "historical_migration": False})


def _otlp(chance: random.Random) -> bytes:
    record = {"timeUnixNano": "1794830400000000000", "severityText": "INFO", "body": {"stringValue": "hello"}}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]}
    return bytes_of({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record] * 3}]}]})


def _debezium(chance: random.Random) -> bytes:
    source = {"lsn": chance.randint(1, 1 << 40)}
    change = {"op": "u", "before": {"id": "1", "name": "a"}, "after": {"id": "1", "name": "b"}, "source": source}
    return bytes_of({"payload": change | {"ts_ms": 1}, "schema": {"fields": []}})


def _weblog(chance: random.Random) -> bytes:
    line = b'127.0.0.1 - ann [16/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 17 "-" "curl"'
    return b"\n".join([line] * chance.randint(1, 4))


def _prometheus(chance: random.Random) -> bytes:
    series: dict[str, Any] = {
        "labels": [{"name": "__name__", "value": "up"}],
        "samples": [{"value": 1.0, "timestamp": 1}],
    }
    series["samples"][0]["timestamp"] = chance.randint(1, 1 << 40)
    message: bytes = write_request()(timeseries=[series]).SerializeToString()
    return pa.compress(message, codec="snappy", asbytes=True)  # type: ignore[no-any-return]


def _kinesis(chance: random.Random) -> Case:
    record = {"Data": base64.b64encode(bytes_of(ORDER)).decode(), "PartitionKey": str(chance.random())}
    body = bytes_of({"StreamName": "kinesis", "Records": [record] * chance.randint(1, 3)})
    return Case("kinesis", "", "POST", "/", body, AMAZON | {"Authorization": AMAZON_KEY})


def _firehose(chance: random.Random) -> Case:
    """Into a delivery stream; it has no collector."""
    record = {"Data": base64.b64encode(bytes_of(ORDER)).decode()}
    body = bytes_of({"DeliveryStreamName": "firehose", "Records": [record] * chance.randint(1, 3)})
    target = {"X-Amz-Target": "Firehose_20150804.PutRecordBatch"}
    return Case("firehose", "", "POST", "/", body, AMAZON | {"Authorization": AMAZON_KEY} | target)


_EVENT = {"specversion": "1.0", "type": "t", "source": "s", "data": ORDER}
SEEDS: dict[str, Callable[[random.Random], Case]] = {
    "http": _plain,
    "segment": _named("segment", "v1/batch", _segment, JSON),
    "snowplow": _named("snowplow", "com.snowplowanalytics.snowplow/tp2", _snowplow, JSON),
    "posthog": _named("posthog", "batch", _posthog, JSON),
    "google": _named(
        "google", "mp/collect", lambda _: bytes_of({"client_id": "c", "events": [{"name": "n", "params": ORDER}]}), JSON
    ),
    "cloudevents": _named(
        "cloudevents",
        "",
        lambda chance: bytes_of([_EVENT | {"id": str(chance.random())}] * 2),
        {"Content-Type": "application/cloudevents-batch+json"},
    ),
    "otlp": _named("otlp", "v1/logs", _otlp, JSON),
    "prometheus": _named(
        "prometheus",
        "api/v1/write",
        _prometheus,
        {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"},
    ),
    "webhook": _named("webhook", "", lambda _: bytes_of(ORDER), JSON | {"X-Signature": "s"}),
    "debezium": _named("debezium", "", _debezium, JSON),
    "weblog": _named("weblog", "", _weblog, {"Content-Type": "text/plain"}),
    "kinesis": _kinesis,
    "firehose": _firehose,
}
"""One for each type of collector over HTTP: a new one without a line here is sent plain JSON."""


def seed_of(kind: str) -> Callable[[random.Random], Case]:
    return SEEDS.get(kind) or _named(kind, "", lambda _: bytes_of(ORDER), JSON)


def case(names: list[str], seed: int) -> Case:
    """The case of this number, always the same one."""
    chance = random.Random(seed)
    name = chance.choice(names)
    seeded = _aimed(seed_of(name.removesuffix(RULED))(chance), name)
    name = chance.choice(list(ATTACKS))
    made = ATTACKS[name](seeded, chance)
    if chance.random() < 0.1:
        made = _squeezed(made, chance)
    return replace(made, attack=name)


def _aimed(case: Case, name: str) -> Case:
    """At the collector of this name."""
    path = case.path.replace(f"/{case.kind}/", f"/{name}/")
    body = case.body.replace(b'Name": "kinesis"', f'Name": "{name}"'.encode()) if case.kind == "kinesis" else case.body
    return replace(case, kind=name, path=path, body=body)


def _cut(case: Case, chance: random.Random) -> Case:
    return replace(case, body=case.body[: chance.randint(0, len(case.body))])


def _flip(case: Case, chance: random.Random) -> Case:
    body = bytearray(case.body)
    for _ in range(chance.randint(1, 8)):
        if body:
            body[chance.randrange(len(body))] = chance.randrange(256)
    return replace(case, body=bytes(body))


def _insert(case: Case, chance: random.Random, what: bytes) -> Case:
    at = chance.randint(0, len(case.body))
    return replace(case, body=case.body[:at] + what + case.body[at:])


def _swap(case: Case, chance: random.Random) -> Case:
    """Some values of a JSON body become something else."""
    try:
        value = json.loads(case.body)
    except ValueError:
        return _flip(case, chance)
    return replace(case, body=json.dumps(_swapped(value, chance)).encode())


def _swapped(value: Any, chance: random.Random) -> Any:
    if chance.random() < 0.12:
        return _anything(chance)
    if isinstance(value, dict):
        return {
            (
                chance.choice(("", "$id", "$time", "\x00", "k" * 300, name)) if chance.random() < 0.05 else name
            ): _swapped(inner, chance)
            for name, inner in value.items()
        }
    return [_swapped(inner, chance) for inner in value] if isinstance(value, list) else value


def _anything(chance: random.Random) -> Any:
    return chance.choice(
        (
            None,
            True,
            -1,
            1 << 70,
            10**400,
            1e308,
            float("nan"),
            float("-inf"),
            "",
            "\x00",
            "\ud800",
            "x" * chance.choice((1, 100, 100_000)),
            [],
            {},
            [[[]]],
            {"": {"": None}},
            [None] * 1000,
            "0001-01-01T00:00:00Z",
            "2026-02-30",
            -(1 << 63),
        )
    )


def _nested(case: Case, chance: random.Random) -> Case:
    depth = chance.choice((20, 300, 2000, 100_000))
    opening = chance.choice((b"[", b'{"a":', b'[{"a":'))
    closing = {b"[": b"]", b'{"a":': b"}", b'[{"a":': b"}]"}[opening]
    return replace(case, body=opening * depth + (b"1" + closing * depth if chance.random() < 0.7 else b""))


def _number(case: Case, chance: random.Random) -> Case:
    number = chance.choice(
        (b"NaN", b"-Infinity", b"1e999999", b"9" * 5000, b"-0", b"00", b"0x10", b"1_000", b"1e-99999")
    )
    return replace(case, body=case.body.replace(b"3", number).replace(b"1", number, 1))


def _twice(case: Case, chance: random.Random) -> Case:
    name = chance.choice((b'"id"', b'"$id"', b'"type"', b'"batch"', b'"total"', b'"data"', b'"Records"'))
    return replace(case, body=case.body.replace(b"{", b"{" + name + b": 1, " + name.upper() + b": [2], ", 2))


def _headers(case: Case, chance: random.Random) -> Case:
    flood = {f"X-Flood-{number}": "x" * chance.choice((1, 100)) for number in range(chance.choice((50, 90)))}
    named = (
        "Idempotency-Key",
        "X-Key",
        "Prefer",
        "X-Callback-Url",
        "X-Headrace-Visit",
        "ce-id",
        "Cookie",
        "traceparent",
    )
    odd = {chance.choice(named): chance.choice(("", "\x7f", "a" * 5000, "; =;;", "\xff\xfe", "-1", "%00"))}
    return replace(case, headers=case.headers | (flood if chance.random() < 0.5 else odd))


def _query(case: Case, chance: random.Random) -> Case:
    given = chance.choice(
        (
            "acks=2",
            "acks=0",
            "acks=1",
            "partition=-1",
            "partition=99999999999999999999",
            "view=x&key=1",
            "view=http&key.x=1",
            "wait=ticket",
            "wait=ticket&callback=x",
            "callback=http://169.254.169.254/",
            "timeout=nan",
            "%00=%ff",
        )
    )
    return replace(case, path=f"{case.path}?{given}")


def _type(case: Case, chance: random.Random) -> Case:
    types = ("", "text/html", "application/avro", "application/x-protobuf", "multipart/form-data", "a/b;" * 50, "json")
    return replace(case, headers=case.headers | {"Content-Type": chance.choice(types)})


def _bomb(case: Case, chance: random.Random) -> Case:
    """Small on the wire, large in memory."""
    megabytes = chance.choice((1, 15, 40))
    packed = zlib.compressobj(9, wbits=31)
    body = b"".join(packed.compress(b" " * 1_000_000) for _ in range(megabytes)) + packed.flush()
    return replace(case, body=body, headers=case.headers | {"Content-Encoding": "gzip"})


def _squeezed(case: Case, chance: random.Random) -> Case:
    """Well or badly compressed."""
    if "Content-Encoding" in case.headers:
        return case
    body = gzip.compress(case.body)
    if chance.random() < 0.5:
        body = body[: chance.randint(0, len(body))]
    encoding = chance.choice(("gzip", "gzip", "zstd", "br", "deflate", "gzip, gzip"))
    return replace(case, body=body, headers=case.headers | {"Content-Encoding": encoding})


ATTACKS: dict[str, Callable[[Case, random.Random], Case]] = {
    "nothing": lambda case, _: case,
    "cut": _cut,
    "flip": _flip,
    "rubbish": lambda case, chance: replace(case, body=chance.randbytes(chance.randint(0, 300))),
    "bad UTF-8": lambda case, chance: _insert(
        case, chance, chance.choice((b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xef\xbb\xbf"))
    ),
    "NUL": lambda case, chance: _insert(case, chance, chance.choice((b"\0", b"\\u0000", b"\0" * 1000))),
    "swap": _swap,
    "swap again": _swap,
    "nested": _nested,
    "number": _number,
    "twice": _twice,
    "headers": _headers,
    "query": _query,
    "type": _type,
    "bomb": lambda case, chance: _bomb(case, chance) if chance.random() < 0.05 else _cut(case, chance),
    "empty": lambda case, _: replace(case, body=b""),
}
