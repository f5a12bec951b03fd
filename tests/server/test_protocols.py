"""What clients of other systems send, taken as it is: trackers, CloudEvents, OTLP, Prometheus, webhooks, changes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
import time
import urllib.parse
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headrace.collect.prometheus import write_request
from tests.server.running import Running, running_server

SQL = """
CREATE STREAM clicks (anonymousId VARCHAR KEY, type VARCHAR, event VARCHAR)
  WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM pages (domain_userid VARCHAR KEY, event VARCHAR, page_urlpath VARCHAR, br_viewwidth INTEGER)
  WITH (KAFKA_TOPIC='pages', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM captures (distinct_id VARCHAR KEY, event VARCHAR)
  WITH (KAFKA_TOPIC='captures', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM measures (client_id VARCHAR KEY, name VARCHAR)
  WITH (KAFKA_TOPIC='measures', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM clouds (source VARCHAR KEY, type VARCHAR, data STRUCT<total INTEGER>)
  WITH (KAFKA_TOPIC='clouds', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM orders (total INTEGER)
  WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM logs (service_name VARCHAR KEY, severity_text VARCHAR, body VARCHAR)
  WITH (KAFKA_TOPIC='logs', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM samples (name VARCHAR KEY, labels MAP<VARCHAR, VARCHAR>, value DOUBLE)
  WITH (KAFKA_TOPIC='samples', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM hooks (github_event VARCHAR, action VARCHAR, type VARCHAR)
  WITH (KAFKA_TOPIC='hooks', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR, joined DATE, __op VARCHAR)
  WITH (KAFKA_TOPIC='customers', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM changes (id INTEGER KEY, op VARCHAR, before STRUCT<name VARCHAR>, after STRUCT<name VARCHAR>)
  WITH (KAFKA_TOPIC='changes', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM requests (remote_host VARCHAR KEY, path VARCHAR, status INTEGER)
  WITH (KAFKA_TOPIC='requests', VALUE_FORMAT='JSON', PARTITIONS=1);
"""
COLLECTORS = {
    "site": 'type = "segment"\ntopic = "clicks"\nkeys = ["w1"]',
    "web": 'type = "snowplow"\ntopic = "pages"',
    "app": 'type = "posthog"\ntopic = "captures"\nkeys = ["phc_1"]',
    "ga": 'type = "google"\ntopic = "measures"\nkeys = ["s1"]\norigins = ["http://127.0.0.1:5000"]',
    "ce": 'type = "cloudevents"\ntopic = "clouds"',
    "bus": 'type = "cloudevents"\ntopic = "orders"\ndata = "columns"\nkeys = ["bus"]',
    "otel": 'type = "otlp"\ntopic = "logs"',
    "prom": 'type = "prometheus"\ntopic = "samples"',
    "github": 'type = "webhook"\ntopic = "hooks"\nsignature = "github"\nsecrets = ["it is a secret"]',
    "stripe": 'type = "webhook"\ntopic = "hooks"\nsignature = "stripe"\nsecrets = ["old", "whsec"]',
    "slack": 'type = "webhook"\ntopic = "hooks"\nsignature = "slack"\nsecrets = ["s3cret"]',
    "shop": 'type = "debezium"\ntopic = "customers"\nchanges = "changes"\nadd = ["op"]',
    "access": 'type = "weblog"\ntopic = "requests"',
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("project")
    (folder / "collectors").mkdir()
    for name, text in COLLECTORS.items():
        (folder / "collectors" / f"{name}.toml").write_text(text)
    with running_server(folder, sql=SQL) as running:
        assert not running.services.gates.problems
        yield running


def seen(server: Running, topic: str, **wanted: Any) -> list[dict[str, Any]]:
    """The values of a topic's events, with their ids, that have these fields."""
    events = [
        (event["key"] or {}) | (event["value"] or {}) | (event["rest"] or {}) | {"$id": event["id"]}
        for event in server.events(topic)
    ]
    return [event for event in events if all(event.get(name) == value for name, value in wanted.items())]


def basic(key: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{key}:".encode()).decode()}


# Trackers


def test_segment_messages_are_events_and_each_is_taken_once(server: Running) -> None:
    messages = [
        {"type": "track", "event": "Signed Up", "anonymousId": "a1", "messageId": "m-1", "properties": {"plan": "pro"}},
        {"type": "identify", "anonymousId": "a1", "messageId": "m-2", "traits": {"name": "Ann"}},
    ]
    body = gzip.compress(json.dumps({"batch": messages, "sentAt": "2026-11-16T12:00:00Z"}).encode())
    for _ in range(2):
        answer = server.http.post("/v1/batch", content=body, headers={"Content-Encoding": "gzip"} | basic("w1"))
        assert (answer.status_code, answer.json()) == (200, {"success": True})
    found = seen(server, "clicks", anonymousid="a1")
    assert [(each["type"], each["event"], each["$id"]) for each in found] == [
        ("track", "Signed Up", "m-1"),
        ("identify", None, "m-2"),
    ]
    assert found[0]["properties"] == {"plan": "pro"}


def test_a_page_sends_segment_messages_as_plain_text_with_its_key_in_them(server: Running) -> None:
    headers = {"Origin": "http://localhost:3000", "Content-Type": "text/plain"}
    asked = server.http.options("/v1/t", headers=headers | {"Access-Control-Request-Headers": "content-type"})
    assert (asked.status_code, asked.headers["access-control-allow-headers"]) == (204, "content-type")
    body = json.dumps({"event": "Clicked", "anonymousId": "b", "writeKey": "w1", "messageId": "t-1"})
    answer = server.http.post("/v1/t", content=body, headers=headers)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "http://localhost:3000")
    assert [each["type"] for each in seen(server, "clicks", anonymousid="b")] == ["track"]


def test_a_wrong_key_is_refused_readably_for_pages_too(server: Running) -> None:
    answer = server.http.post(
        "/v1/track", json={"event": "x"}, headers=basic("nobody") | {"Origin": "http://localhost:1"}
    )
    assert answer.status_code == 401
    assert "no collector has this write key" in answer.text
    assert answer.headers["access-control-allow-origin"] == "http://localhost:1"


def test_snowplow_posts_and_pixels_fill_the_event_model(server: Running) -> None:
    context = {
        "schema": "iglu:x/contexts/jsonschema/1-0-0",
        "data": [{"schema": "iglu:a/b/jsonschema/1-0-0", "data": {"n": 1}}],
    }
    event = {
        "e": "pv",
        "p": "web",
        "eid": "e-1",
        "duid": "d1",
        "url": "https://shop.example/cart?utm_source=mail",
        "vp": "800x600",
        "cx": base64.urlsafe_b64encode(json.dumps(context).encode()).decode().rstrip("="),
    }
    body = {"schema": "iglu:com.snowplowanalytics.snowplow/payload_data/jsonschema/1-0-4", "data": [event, event]}
    for path in ("/com.snowplowanalytics.snowplow/tp2", "/v1/collect/web/com.acme/custom"):
        assert server.http.post(path, json=body).status_code == 200
    [found] = seen(server, "pages", domain_userid="d1")
    assert (found["event"], found["page_urlpath"], found["br_viewwidth"], found["$id"]) == (
        "page_view",
        "/cart",
        800,
        "e-1",
    )
    assert (found["mkt_source"], found["contexts"]) == ("mail", context["data"])
    with httpx.Client(base_url=server.http.base_url, timeout=60, trust_env=False) as browser:
        first = browser.get("/i", params={"e": "se", "eid": "e-2", "duid": "d2", "se_va": "1.5"})
        assert (first.headers["content-type"], first.content[:6]) == ("image/gif", b"GIF89a")
        browser.get("/i", params={"e": "pp", "eid": "e-3", "duid": "d2"})
    users = {each["network_userid"] for each in seen(server, "pages", domain_userid="d2")}
    assert len(users) == 1
    assert users == {first.cookies["sp"]}


def test_a_snowplow_event_that_is_none_is_a_letter_and_spoils_no_other(server: Running) -> None:
    data = [{"e": "ue", "ue_px": "%%%", "eid": "bad"}, {"e": "pv", "duid": "d3", "eid": "good"}, {"duid": "d3"}]
    assert server.http.post("/com.snowplowanalytics.snowplow/tp2", json={"data": data}).status_code == 200
    assert [each["$id"] for each in seen(server, "pages", domain_userid="d3")] == ["good"]
    reasons = [letter["reason"] for letter in server.dead_letters("pages")[:2]]
    assert reasons == ["the event is no Snowplow event: it has no `e`", "the event has `ue_px`, which is not base64"]


def test_posthog_in_all_its_wrappings(server: Running) -> None:
    def event(id_: str) -> dict[str, Any]:
        return {"event": "clicked", "uuid": id_, "properties": {"distinct_id": "ann", "token": "phc_1"}}

    plain = json.dumps({"api_key": "phc_1", "batch": [event("u1"), event("u1")]}).encode()
    encoded = base64.b64encode(json.dumps(event("u2")).encode()).decode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answers = [
        server.http.post("/batch/", content=plain),
        server.http.post("/e/?compression=base64", content="data=" + urllib.parse.quote(encoded), headers=form),
        server.http.post("/i/v0/e/?compression=gzip-js", content=gzip.compress(json.dumps([event("u3")]).encode())),
        server.http.get("/e/", params={"data": encoded.replace("dTI", "dTI")}),
        server.http.post("/capture", json=event("u4")),
    ]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {"status": 1})] * 5
    assert [each["$id"] for each in seen(server, "captures", distinct_id="ann")] == ["u1", "u2", "u3", "u4"]
    assert server.http.post("/flags/?v=2", json={"api_key": "phc_1"}).json()["featureFlags"] == {}


def test_an_event_is_no_larger_than_events_may_be_however_small_it_came(server: Running) -> None:
    event = {
        "event": "x",
        "distinct_id": "big",
        "uuid": "big",
        "properties": {"token": "phc_1", "text": "x" * 2_000_000},
    }
    body = gzip.compress(json.dumps([event, event | {"uuid": "small", "properties": {}}]).encode())
    assert server.http.post("/e/?compression=gzip-js", content=body).status_code == 200
    assert [each["$id"] for each in seen(server, "captures", distinct_id="big")] == ["small"]
    assert "more than the 1048576" in server.dead_letters("captures")[0]["reason"]


def test_measurement_protocol_events_with_a_time_are_taken_once(server: Running) -> None:
    body = {
        "client_id": "c1",
        "timestamp_micros": str(int(time.time() * 1_000_000)),
        "events": [{"name": "login", "params": {"method": "x"}}, {"name": "login", "params": {"method": "x"}}],
    }
    for _ in range(2):
        assert server.http.post("/mp/collect?measurement_id=G-1&api_secret=s1", json=body).status_code == 204
    found = seen(server, "measures", client_id="c1")
    assert [(each["name"], each["measurement_id"]) for each in found] == [("login", "G-1")] * 2
    wrong = server.http.post("/debug/mp/collect?api_secret=s1", json={"events": [{"name": "1st"}]}).json()
    assert [each["fieldPath"] for each in wrong["validationMessages"]] == ["client_id", "events[0].name"]
    assert len(seen(server, "measures")) == 2


def test_only_the_pages_a_collector_names_may_use_it(server: Running) -> None:
    def send(origin: str) -> int:
        body = {"client_id": "c2", "events": [{"name": "login"}]}
        return server.http.post("/mp/collect?api_secret=s1", json=body, headers={"Origin": origin}).status_code

    assert (send("http://127.0.0.1:5000"), send("http://127.0.0.1:5001")) == (204, 403)


# CloudEvents


def test_cloudevents_in_headers_in_the_body_and_in_batches(server: Running) -> None:
    binary = {
        "ce-specversion": "1.0",
        "ce-id": "1",
        "ce-source": "/a%20b",
        "ce-type": "order",
        "ce-time": "2026-11-16T10:00:00Z",
        "Content-Type": "application/json",
    }
    one = {"specversion": "1.0", "id": "2", "source": "/a b", "type": "order", "data": {"total": 6}}
    for _ in range(2):
        assert server.http.post("/v1/collect/ce", content=b'{"total": 5}', headers=binary).status_code == 200
        server.http.post("/v1/cloudevents", json=one, headers={"Content-Type": "application/cloudevents+json"})
        batch = server.http.post(
            "/v1/collect/ce",
            json=[one | {"id": "3"}, one | {"id": ""}],
            headers={"Content-Type": "application/cloudevents-batch+json"},
        )
    assert (batch.json()["duplicates"], [each["index"] for each in batch.json()["rejected"]]) == (1, [1])
    found = seen(server, "clouds", source="/a b")
    assert [(each["$id"], each["data"]) for each in found] == [
        ("/a b 1", {"total": 5}),
        ("/a b 2", {"total": 6}),
        ("/a b 3", {"total": 6}),
    ]
    assert server.events("clouds")[0]["time_ms"] == 1_794_823_200_000


def test_the_data_of_a_cloudevent_can_be_the_columns(server: Running) -> None:
    event = {"specversion": "1.0", "id": "9", "source": "/x", "type": "order", "data": {"total": 7}}
    headers = {"Content-Type": "application/cloudevents+json", "Authorization": "Bearer bus"}
    assert server.http.post("/v1/collect/bus", json=event, headers=headers).json()["accepted"] == 1
    [found] = server.events("orders")
    assert (found["value"], found["headers"]["ce_type"]) == ({"total": 7}, "order")


def test_a_bus_that_asks_first_may_deliver_cloudevents(server: Running) -> None:
    """As CloudEvents' web hooks do; other collectors have not asked for anybody's."""
    asks = {"WebHook-Request-Origin": "bus.example", "WebHook-Request-Rate": "120"}
    answer = server.http.options("/v1/collect/bus", headers=asks)
    assert (answer.headers["webhook-allowed-origin"], answer.headers["webhook-allowed-rate"]) == ("bus.example", "*")
    for path in ("/v1/collect/nobody", "/v1/t"):
        assert "webhook-allowed-origin" not in server.http.options(path, headers=asks).headers


# OpenTelemetry, Prometheus


def test_otlp_logs_are_events_and_a_repeated_request_is_none(server: Running) -> None:
    record = {
        "timeUnixNano": "1794823200000000000",
        "severityText": "WARN",
        "body": {"stringValue": "disk full"},
        "attributes": [{"key": "n", "value": {"intValue": "5"}}],
        "traceId": "5b8efff798038103d269b633813fc60c",
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record, record]}]}]}
    for _ in range(2):
        answer = server.http.post("/v1/logs", json=body)
        assert (answer.status_code, answer.json()) == (200, {})
    found = seen(server, "logs", service_name="shop")
    assert [(each["severity_text"], each["body"], each["attributes"]) for each in found] == [
        ("WARN", "disk full", {"n": 5})
    ] * 2
    assert found[0]["trace_id"] == record["traceId"]


def test_otlp_may_be_deflated(server: Running) -> None:
    record = {"timeUnixNano": "1794823200000000001", "body": {"stringValue": "small"}}
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()
    headers = {"Content-Type": "application/json", "Content-Encoding": "deflate"}
    assert server.http.post("/v1/logs", content=zlib.compress(body), headers=headers).status_code == 200
    assert len(seen(server, "logs", body="small")) == 1
    assert server.http.post("/v1/logs", content=zlib.compress(body)[:-9], headers=headers).status_code == 400


def test_otlp_says_what_it_does_not_take(server: Running) -> None:
    answer = server.http.post("/v1/traces", content=b"", headers={"Content-Type": "application/x-protobuf"})
    assert (answer.status_code, answer.headers["content-type"]) == (415, "application/x-protobuf")
    assert b"not its traces" in answer.content
    number = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"intValue": "7"}}]}]}]}
    partial = server.http.post("/v1/logs", json=number).json()["partialSuccess"]
    assert (partial["rejectedLogRecords"], "`body` must be" in partial["errorMessage"]) == ("1", True)


def test_prometheus_samples_are_taken_once(server: Running) -> None:
    request = write_request()()
    series = request.timeseries.add()
    for name, value in (("__name__", "up"), ("job", "api")):
        series.labels.add(name=name, value=value)
    series.samples.add(value=1.0, timestamp=1_794_823_200_000)
    series.samples.add(value=float("nan"), timestamp=1_794_823_201_000)
    body = pa.compress(request.SerializeToString(), codec="snappy", asbytes=True)
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    for _ in range(2):
        assert server.http.post("/api/v1/write", content=body, headers=headers).status_code == 204
    found = seen(server, "samples", name="up")
    assert [(each["labels"], each["value"]) for each in found] == [({"job": "api"}, 1.0), ({"job": "api"}, None)]
    assert found[1]["stale"] is False
    assert server.http.post("/api/v1/write", content=b"\xff\xff\xff\xff\x0f", headers=headers).status_code == 413


# Webhooks


def test_a_github_delivery_is_believed_with_its_signature_and_taken_once(server: Running) -> None:
    body = json.dumps({"action": "opened", "number": 7}).encode()
    signature = hmac.new(b"it is a secret", body, hashlib.sha256).hexdigest()
    headers = {
        "X-GitHub-Event": "pull_request",
        "X-GitHub-Delivery": "g-1",
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    for _ in range(2):
        assert server.http.post("/v1/collect/github", content=body, headers=headers).status_code == 200
    assert [each["$id"] for each in seen(server, "hooks", github_event="pull_request", action="opened")] == ["g-1"]
    for forged in (headers | {"X-Hub-Signature-256": "sha256=" + "0" * 64}, {"X-GitHub-Event": "push"}):
        assert server.http.post("/v1/collect/github", content=body, headers=forged).status_code == 403


def test_a_stripe_signature_grows_old(server: Running) -> None:
    body = json.dumps({"id": "evt_1", "type": "charge.succeeded", "created": int(time.time()) - 60}).encode()

    def send(seconds: int) -> int:
        signature = hmac.new(b"whsec", f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
        header = f"t={seconds},v1={'0' * 64},v1={signature}"
        return server.http.post("/v1/collect/stripe", content=body, headers={"Stripe-Signature": header}).status_code

    now = int(time.time())
    assert (send(now), send(now - 3600)) == (200, 403)
    [found] = seen(server, "hooks", type="charge.succeeded")
    assert found["$id"] == "evt_1"


def test_slack_hears_the_word_it_asks_for_before_it_sends(server: Running) -> None:
    body, now = b'{"type": "url_verification", "challenge": "3eZbrw1a"}', int(time.time())
    signature = hmac.new(b"s3cret", f"v0:{now}:".encode() + body, "sha256").hexdigest()
    headers = {"X-Slack-Signature": f"v0={signature}", "X-Slack-Request-Timestamp": str(now)}
    assert server.http.post("/v1/collect/slack", content=body, headers=headers).json() == {"challenge": "3eZbrw1a"}
    assert server.http.post("/v1/collect/slack", content=body + b" ", headers=headers).status_code == 403
    assert seen(server, "hooks", type="url_verification") == []


# Changes of databases


def test_changes_become_a_table_and_keep_both_sides(server: Running) -> None:
    source = {"connector": "postgresql", "name": "shop", "table": "customers", "lsn": 1, "ts_ms": 1_794_823_200_000}
    row = {
        "type": "struct",
        "fields": [
            {"field": "id", "type": "int32"},
            {"field": "name", "type": "string"},
            {"field": "joined", "type": "int32", "name": "io.debezium.time.Date"},
        ],
    }
    schema = {"type": "struct", "fields": [row | {"field": "before"}, row | {"field": "after"}]}
    ann = {"id": 1, "name": "Ann", "joined": 20000}
    created = {"before": None, "after": ann, "op": "c", "ts_ms": 5, "source": source}
    updated = {"before": ann, "after": ann | {"name": "Anne"}, "op": "u", "ts_ms": 6, "source": source | {"lsn": 2}}
    deleted = {"before": {"id": 1}, "after": None, "op": "d", "ts_ms": 7, "source": source | {"lsn": 3}}
    for envelope in (created, updated, created | {"ts_ms": 99}):  # the last is sent again after a restart
        answer = server.http.post("/v1/collect/shop", json={"schema": schema, "payload": envelope})
        assert answer.status_code == 200
    counters, body = server.services.gates.named("shop").counters, json.dumps([{"key": {"id": 1}, "value": deleted}])
    before = counters.status().bytes
    assert server.http.post("/v1/collect/shop", content=body).json()["accepted"] == 2
    assert counters.status().bytes - before == len(body), "it came once, though it goes to two topics"
    rows = [(event["key"], event["value"]) for event in server.events("customers")]
    assert rows == [
        ({"id": 1}, {"name": "Ann", "joined": "2024-10-04", "__op": "c"}),
        ({"id": 1}, {"name": "Anne", "joined": "2024-10-04", "__op": "u"}),
        ({"id": 1}, None),
    ]
    changes = [tuple(event["value"].values()) for event in server.events("changes")]
    assert changes == [
        ("c", None, {"name": "Ann"}),
        ("u", {"name": "Ann"}, {"name": "Anne"}),
        ("d", {"name": None}, None),
    ]
    truncated = server.http.post("/v1/collect/shop", json={"op": "t", "ts_ms": 8, "source": source | {"lsn": 4}})
    assert "empties the whole table" in truncated.json()["rejected"][0]
    edges = server.http.get("/v1/overview").json()["edges"]
    drawn = {edge["to"] for edge in edges if edge["from"] == "gate:shop"}
    assert drawn == {"topic:customers", "topic:changes"}


# Web logs


def test_lines_of_web_servers_are_events(server: Running) -> None:
    lines = [
        '10.0.0.1 - ann [16/Nov/2026:10:00:00 +0000] "GET /a?b=c HTTP/1.1" 200 512 "-" "curl/8 \\"x\\""',
        "not a line of a log",
        '10.0.0.2 - - [16/Nov/2026:10:00:01 +0000] "POST /b HTTP/1.1" 404 -',
        "#Fields: date time c-ip cs-method cs-uri-stem sc-status cs(User-Agent)",
        "2026-11-16 10:00:02 10.0.0.3 GET /c 200 Mozilla/5.0+(X11)",
    ]
    answer = server.http.post("/v1/collect/access", content="\n".join(lines)).json()
    assert (answer["accepted"], [each["index"] for each in answer["rejected"]]) == (3, [1])
    [first] = seen(server, "requests", remote_host="10.0.0.1")
    assert (first["path"], first["status"], first["user_agent"], first["query"]) == ("/a", 200, 'curl/8 "x"', "b=c")
    [last] = seen(server, "requests", c_ip="10.0.0.3")
    assert (last["cs_user_agent"], last["sc_status"]) == ("Mozilla/5.0 (X11)", 200)


# What all have in common


def test_a_collector_is_found_by_its_name_or_said_to_be_missing(server: Running) -> None:
    assert server.http.post("/v1/collect/nobody", json={}).status_code == 404
    assert "is not JSON" in server.http.post("/v1/collect/site/batch", content=b"{", headers=basic("w1")).text
    assert server.http.post("/v1/collect/site/nothing", json={}, headers=basic("w1")).status_code == 404


def test_what_is_missing_while_the_server_starts_is_asked_for_again(server: Running) -> None:
    """Clients throw away what is answered with 404."""
    (server.services.project.folder / "collectors" / "early.toml").write_text('type = "weblog"\ntopic = "not_yet"\n')
    server.services.gates.reload()
    line = '10.0.0.1 - - [16/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5'
    assert server.http.post("/v1/collect/early", content=line).status_code == 404
    server.services.applying.append("the pipelines")
    try:
        assert server.http.post("/v1/collect/early", content=line).status_code == 503
    finally:
        server.services.applying.clear()


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize("depth", [150, 480, 900, 20_000])
@pytest.mark.parametrize(
    ("path", "wrapped"),
    [
        ("/v1/collect/site/batch", b'{"batch": [%s]}'),
        ("/v1/collect/web", b'{"data": [{"e": "pv", "x": %s}]}'),
        ("/v1/collect/app/batch", b'{"api_key": "phc_1", "batch": [%s]}'),
        ("/v1/collect/ga/mp/collect?api_secret=s1", b'{"timestamp_micros": 1, "events": [%s]}'),
        ("/v1/collect/ce", b'{"specversion": "1.0", "id": "d", "source": "d", "type": "d", "data": %s}'),
        ("/v1/collect/otel", b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"x": %s}}]}]}]}'),
        ("/v1/collect/shop", b'{"op": "c", "after": {"id": 1, "x": %s}, "source": {"lsn": 9}}'),
    ],
)
def test_what_is_nested_too_deeply_is_said_or_kept(server: Running, path: str, wrapped: bytes, depth: int) -> None:
    media = "application/cloudevents+json" if path.endswith("/ce") else "application/json"
    headers = {"Content-Type": media} | basic("w1")
    answer = server.http.post(path, content=wrapped % nested(depth), headers=headers)
    assert answer.status_code < 500, answer.text
