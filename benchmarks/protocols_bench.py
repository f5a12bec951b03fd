"""Events over each protocol of other systems' clients, durable, beside an endpoint that only reads the same bodies.

Every request is another one, with ids of its own, because a repeated one would be recognized and not written. "One
process" is the server alone; "two" is the server and a collector process beside it, with half of the connections each.
Nothing is bound to a core: what the second process is worth shows only where a core is free for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.http_bench import baseline_server, flood, is_answering, send_each, server_process
from benchmarks.measure import Measure, percentile
from tests.support import free_port, wait_for

CONNECTIONS = 4
BATCH = 100
EVENTS = 60_000
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Spoken:
    """A protocol: what request number *n* is, as path, headers and body."""

    name: str
    kind: str
    settings: str
    request: Callable[[int], tuple[str, dict[str, str], bytes]]
    batch: int = BATCH


def run(quick: bool = False, only: str = "") -> Iterator[Measure]:
    chosen = [spoken for spoken in PROTOCOLS if only.lower() in spoken.name.lower()]
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        baseline_server() as plain,
        _headrace(Path(folder), chosen) as ports,
    ):
        for spoken in chosen:
            count = max(CONNECTIONS * 5, min(EVENTS // spoken.batch, 4000) // (10 if quick else 1))
            bare, _ = _flood([plain], _requests(spoken, count, 0))
            for number, (processes, used) in enumerate((("one process", ports[:1]), ("two", ports))):
                reached, latencies = _flood(used, _requests(spoken, count, (number + 1) * count))
                yield Measure(
                    f"{spoken.name}, {processes}",
                    reached * spoken.batch,
                    "events/s",
                    bare * spoken.batch,
                    "reading the body only",
                    "",
                    f"{spoken.batch} a request, {CONNECTIONS} connections, "
                    f"p99 {percentile(latencies, 0.99) * 1000:.1f} ms",
                )


def _requests(spoken: Spoken, count: int, start: int) -> list[bytes]:
    found = []
    for number in range(start, start + count):
        path, headers, body = spoken.request(number)
        lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        found.append("\r\n".join([*lines, "", ""]).encode() + body)
    return found


def _flood(ports: list[int], requests: list[bytes]) -> tuple[float, list[float]]:
    """Requests per second and how long each took, the first few left out."""
    for port in ports:
        send_each(port, requests[:2], [])
    rest = requests[2:]
    jobs = [(ports[number % len(ports)], rest[number::CONNECTIONS]) for number in range(CONNECTIONS)]
    return flood(jobs, len(rest))


@contextmanager
def _headrace(folder: Path, chosen: list[Spoken]) -> Iterator[list[int]]:
    """A server and a collector process, with a topic and a collector per protocol."""
    (folder / "headrace.toml").write_text("[server]\nworkers = 2\n")
    for name in ("pipelines", "collectors"):
        (folder / name).mkdir()
    sql = (
        f"CREATE STREAM {_topic(one)} (name VARCHAR) WITH (KAFKA_TOPIC='{_topic(one)}', PARTITIONS=2);"
        for one in chosen
    )
    (folder / "pipelines" / "all.sql").write_text(
        "\n".join(line.replace("WITH (", "WITH (VALUE_FORMAT='JSON', ") for line in sql)
    )
    for one in chosen:
        text = f'type = "{one.kind}"\ntopic = "{_topic(one)}"\n{one.settings}\n'
        (folder / "collectors" / f"{_topic(one)}.toml").write_text(text)
    ports = [free_port(), free_port()]
    with server_process("headrace.server.main", folder, ports[0]):
        wait_for(lambda: is_answering(ports[0], f"/v1/topics/{_topic(chosen[-1])}"), 60, "the server")
        with server_process("headrace.server.collector", folder, ports[1]):
            wait_for(lambda: is_answering(ports[1], "/healthz"), 60, "the collector")
            yield ports


def _topic(spoken: Spoken) -> str:
    return "".join(letter for letter in spoken.name.lower() if letter.isalnum())


# What clients send


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _segment(number: int) -> tuple[str, dict[str, str], bytes]:
    messages = [
        {
            "type": "track",
            "event": "Product Viewed",
            "userId": f"u{row}",
            "messageId": f"{number}-{row}",
            "timestamp": "2026-11-16T10:00:00.000Z",
            "properties": {"sku": f"s{row}", "price": 9.5, "currency": "EUR"},
            "context": {"library": {"name": "analytics-python", "version": "2.3.2"}},
            "integrations": {},
        }
        for row in range(BATCH)
    ]
    return (
        "/v1/collect/segment/batch",
        {"Content-Type": JSON},
        _json({"batch": messages, "sentAt": "2026-11-16T10:00:01Z"}),
    )


def _snowplow(number: int) -> tuple[str, dict[str, str], bytes]:
    context = {
        "schema": "iglu:x/contexts/jsonschema/1-0-1",
        "data": [{"schema": "iglu:x/web_page/jsonschema/1-0-0", "data": {"id": "p"}}],
    }
    encoded = base64.urlsafe_b64encode(_json(context)).decode()
    data = [
        {
            "e": "pv",
            "p": "web",
            "eid": f"{number}-{row}",
            "tv": "js-4.10.1",
            "aid": "shop",
            "duid": f"u{row}",
            "dtm": "1794823200000",
            "stm": "1794823200100",
            "url": "https://shop.example/products?id=7",
            "page": "Products",
            "vp": "1280x720",
            "ds": "1280x2000",
            "cx": encoded,
        }
        for row in range(BATCH)
    ]
    return "/v1/collect/snowplow/tp2", {"Content-Type": JSON}, _json({"schema": "iglu:x", "data": data})


def _posthog(number: int) -> tuple[str, dict[str, str], bytes]:
    batch = [
        {
            "event": "clicked",
            "uuid": f"{number}-{row}",
            "distinct_id": f"u{row}",
            "timestamp": "2026-11-16T10:00:00Z",
            "properties": {"$lib": "posthog-python", "$lib_version": "7", "sku": f"s{row}"},
        }
        for row in range(BATCH)
    ]
    return "/v1/collect/posthog/batch", {"Content-Type": JSON}, _json({"api_key": "k", "batch": batch})


def _google(number: int) -> tuple[str, dict[str, str], bytes]:
    events = [{"name": "page_view", "params": {"page": f"/{row}", "engagement_time_msec": 100}} for row in range(25)]
    body = {"client_id": f"c{number}", "timestamp_micros": str(1794823200000000 + number), "events": events}
    return "/v1/collect/measurementprotocol/mp/collect", {"Content-Type": JSON}, _json(body)


def _cloudevents(number: int) -> tuple[str, dict[str, str], bytes]:
    batch = [
        {
            "specversion": "1.0",
            "id": f"{number}-{row}",
            "source": "/shop",
            "type": "order.placed",
            "time": "2026-11-16T10:00:00Z",
            "data": {"order": row, "total": 9.5},
        }
        for row in range(BATCH)
    ]
    return "/v1/collect/cloudeventsbatched", {"Content-Type": "application/cloudevents-batch+json"}, _json(batch)


def _binary_cloudevent(number: int) -> tuple[str, dict[str, str], bytes]:
    headers = {"ce-specversion": "1.0", "ce-id": str(number), "ce-source": "/shop", "ce-type": "order.placed"}
    return "/v1/collect/cloudeventsbinary", headers | {"Content-Type": JSON}, b'{"order":7,"total":9.5}'


def _otlp(number: int) -> tuple[str, dict[str, str], bytes]:
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2

    request = logs_service_pb2.ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = resource.scope_logs.add()
    for row in range(BATCH):
        record = scope.log_records.add(time_unix_nano=1794823200000000000 + number * BATCH + row, severity_text="INFO")
        record.body.string_value = f"request {row} was served"
        record.attributes.add(key="http.status").value.int_value = 200
    return "/v1/collect/otlp/v1/logs", {"Content-Type": "application/x-protobuf"}, request.SerializeToString()


def _prometheus(number: int) -> tuple[str, dict[str, str], bytes]:
    from headrace.collect.prometheus import write_request

    request = write_request()()
    for row in range(BATCH):
        series = request.timeseries.add()
        series.labels.add(name="__name__", value="http_requests_total")
        series.labels.add(name="instance", value=f"host-{row}")
        series.samples.add(value=float(number), timestamp=1794823200000 + number)
    body = pa.compress(request.SerializeToString(), codec="snappy", asbytes=True)
    return (
        "/v1/collect/prometheus/write",
        {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"},
        body,
    )


def _github(number: int) -> tuple[str, dict[str, str], bytes]:
    body = _json(
        {"action": "opened", "number": number, "repository": {"full_name": "shop/web"}, "sender": {"login": "ann"}}
    )
    signature = hmac.new(b"secret", body, hashlib.sha256).hexdigest()
    headers = {
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": str(number),
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    return "/v1/collect/githubwebhooks", headers | {"Content-Type": JSON}, body


def _debezium(number: int) -> tuple[str, dict[str, str], bytes]:
    changes = [
        {
            "before": None,
            "after": {"id": row, "name": f"customer {row}"},
            "op": "c",
            "ts_ms": 1794823200000,
            "source": {"connector": "postgresql", "lsn": number * BATCH + row, "ts_ms": 1794823200000},
        }
        for row in range(BATCH)
    ]
    return "/v1/collect/debezium", {"Content-Type": JSON}, _json(changes)


def _weblog(number: int) -> tuple[str, dict[str, str], bytes]:
    request = f'"GET /a/{number}?b=c HTTP/1.1" 200 5120 "https://x.example/" "Mozilla/5.0"'
    lines = "\n".join(f"10.0.0.{row} - - [16/Nov/2026:10:00:00 +0000] {request}" for row in range(BATCH))
    return "/v1/collect/weblog", {"Content-Type": "text/plain"}, lines.encode()


PROTOCOLS = [
    Spoken("Segment", "segment", "", _segment),
    Spoken("Snowplow", "snowplow", "", _snowplow),
    Spoken("PostHog", "posthog", "", _posthog),
    Spoken("Measurement Protocol", "google", "", _google, batch=25),
    Spoken("CloudEvents batched", "cloudevents", "", _cloudevents),
    Spoken("CloudEvents binary", "cloudevents", "", _binary_cloudevent, batch=1),
    Spoken("OTLP", "otlp", "", _otlp),
    Spoken("Prometheus", "prometheus", "", _prometheus),
    Spoken("GitHub webhooks", "webhook", 'signature = "github"\nsecrets = ["secret"]', _github, batch=1),
    Spoken("Debezium", "debezium", "", _debezium),
    Spoken("Web log", "weblog", "", _weblog),
]
