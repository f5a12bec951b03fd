"""Webhooks, changes of databases, lines of web servers → events."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.collect import debezium, webhooks, weblogs
from headrace.collect.connect_values import convert
from headrace.collect.translate import Posted
from headrace.errors import ConfigError, Refused
from headrace.log.codecs.json_codec import Unreadable

NOW = 1_794_823_200_000


# Webhooks


def hook(signature: Any, **options: Any) -> webhooks.WebhookSettings:
    return webhooks.WebhookSettings(type="webhook", topic="t", signature=signature, secrets=["s3cret"], **options)


def signed(text: bytes, algorithm: str = "sha256", secret: bytes = b"s3cret") -> bytes:
    return hmac.new(secret, text, algorithm).digest()


def test_standard_webhooks_sign_id_time_and_body() -> None:
    secret = "whsec_" + base64.b64encode(b"plain").decode()
    settings_ = webhooks.WebhookSettings(type="webhook", topic="t", signature="standard", secrets=[secret])
    body = b'{"type": "paid"}'

    def headers(seconds: int) -> dict[str, str]:
        signature = signed(f"msg_1.{seconds}.".encode() + body, secret=b"plain")
        return {
            "webhook-id": "msg_1",
            "webhook-timestamp": str(seconds),
            "webhook-signature": f"v1,AAAA v1,{base64.b64encode(signature).decode()}",
        }

    now = NOW // 1000
    [event] = webhooks.translate(Posted(body, headers=headers(now), now_ms=NOW), settings_).events
    assert event == {"type": "paid", "$id": "msg_1"}
    with pytest.raises(Refused):
        webhooks.translate(Posted(body, headers=headers(now - 301), now_ms=NOW), settings_)


def test_svix_signs_as_the_standard_it_became_under_its_own_names() -> None:
    """The example of Standard Webhooks' specification: its secret, with and without what stands before it."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    said = {"id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "timestamp": "1614265330"}
    signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    for prefix, known in (("svix", secret), ("webhook", secret), ("webhook", secret.removeprefix("whsec_"))):
        headers = {f"{prefix}-{name}": value for name, value in (said | {"signature": signature}).items()}
        settings_ = webhooks.WebhookSettings(type="webhook", topic="t", signature="standard", secrets=[known])
        [event] = webhooks.translate(Posted(body, headers=headers, now_ms=1_614_265_330_000), settings_).events
        assert event == {"test": 2432232314, "$id": said["id"]}


def test_slack_signs_time_and_body_and_asks_first() -> None:
    now, body = NOW // 1000, b'{"type": "event_callback", "event_id": "Ev1"}'

    def send(body: bytes, seconds: int, secret: bytes = b"s3cret") -> Any:
        signature = "v0=" + signed(f"v0:{seconds}:".encode() + body, secret=secret).hex()
        headers = {"x-slack-signature": signature, "x-slack-request-timestamp": str(seconds)}
        return webhooks.translate(Posted(body, headers=headers, now_ms=NOW), hook("slack"))

    [event] = send(body, now).events
    assert event["$id"] == "Ev1"
    for seconds, secret in ((now - 301, b"s3cret"), (now, b"other")):
        with pytest.raises(Refused):
            send(body, seconds, secret)
    asked = send(b'{"type": "url_verification", "challenge": "3eZbrw1a"}', now)
    assert webhooks.challenge(asked, hook("slack")) == "3eZbrw1a"
    assert webhooks.challenge(asked, hook("hmac")) is webhooks.challenge(send(body, now), hook("slack")) is None


def test_an_agreed_signature_with_its_own_header_and_ids() -> None:
    settings_ = hook(
        "hmac",
        header="X-Shop-Hmac",
        algorithm="sha512",
        encoding="base64",
        prefix="v0=",
        id_field="n",
        time_field="at",
        keep_headers=["X-Shop-Topic", "X-Not-There"],
    )
    body = json.dumps([{"n": 1, "at": NOW // 1000}, {"n": 2, "at": "2026-11-16T10:00:00Z"}, 7]).encode()
    headers = {
        "x-shop-hmac": "v0=" + base64.b64encode(signed(body, "sha512")).decode(),
        "x-shop-topic": "orders",
    }
    events = webhooks.translate(Posted(body, headers=headers, now_ms=NOW), settings_).events
    assert [(event["$id"], event["$time"], event["$headers"]) for event in events[:2]] == [
        ("1/0", NOW, {"X-Shop-Topic": "orders"}),
        ("2/1", NOW, {"X-Shop-Topic": "orders"}),
    ]
    assert isinstance(events[2], Unreadable)


def test_a_form_is_an_event_or_holds_one() -> None:
    settings_, token = hook("token", header="X-Token"), {"x-token": "s3cret", "content-type": webhooks.FORM}
    [event] = webhooks.translate(Posted(b"a=1&b=2&b=3", headers=token), settings_).events
    assert event == {"a": "1", "b": ["2", "3"]}
    [event] = webhooks.translate(Posted(b"a=1&" * 2000, headers=token), settings_).events
    assert isinstance(event, Unreadable)
    [event] = webhooks.translate(Posted(b"payload=%7B%22a%22%3A1%7D", headers=token), settings_).events
    assert event == {"a": 1}


@pytest.mark.parametrize("signature", ["github", "stripe", "standard", "slack", "hmac", "token"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {
            "x-hub-signature-256": "sha256=zz",
            "stripe-signature": "t=x,v1=zz,v1=",
            "webhook-id": "1",
            "webhook-timestamp": "9" * 30,
            "webhook-signature": "v1,%% v2,x",
            "x-signature": "\xff",
        },
    ],
)
def test_no_signature_and_nonsense_are_refused(signature: Any, headers: dict[str, str]) -> None:
    with pytest.raises(Refused):
        webhooks.translate(Posted(b"{}", headers=headers, now_ms=NOW), hook(signature))


def test_a_webhook_without_a_secret_is_a_mistake() -> None:
    for secrets in ([], [""], ["env:NOT_THERE"]):
        with pytest.raises(ConfigError):
            webhooks.WebhookSettings(type="webhook", topic="t", signature="github", secrets=secrets).check()


# Changes of databases

SOURCE = {"connector": "mysql", "file": "bin.1", "pos": 7, "row": 0, "ts_ms": NOW}


def changes(body: Any, **options: Any) -> debezium.Changes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return debezium.translate(Posted(content), debezium.DebeziumSettings(type="debezium", **options))


def rows_of(body: Any) -> list[Any]:
    found = changes(body, topic="t").rows
    return list(found["t"].events) if found else []


def test_a_deletion_is_a_tombstone_by_before_or_by_the_key() -> None:
    deleted = {"before": {"id": 1, "name": "a"}, "after": None, "op": "d", "source": SOURCE}
    [row] = rows_of(deleted)
    assert (row["id"], row["$tombstone"]) == (1, True)
    nothing_before = deleted | {"before": None}
    [row] = rows_of({"key": {"payload": {"id": 2}, "schema": {}}, "value": nothing_before})
    assert (row["id"], row["$tombstone"]) == (2, True)
    [row] = rows_of(nothing_before)
    assert isinstance(row, Unreadable)
    # Kafka's own tombstone comes after it, and says the same.
    [row] = rows_of({"key": {"id": 2}, "value": None})
    assert (row["id"], row["$tombstone"]) == (2, True)
    assert rows_of(b"") == []


def test_the_same_change_has_the_same_id_whenever_it_is_told() -> None:
    change = {"before": None, "after": {"id": 1}, "op": "c", "ts_ms": 1, "source": SOURCE | {"sequence": "[1]"}}
    again = change | {"ts_ms": 2, "source": SOURCE | {"sequence": "[2]"}}
    other = change | {"source": SOURCE | {"row": 1}}
    ids = [rows_of(each)[0]["$id"] for each in (change, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert "$id" not in rows_of(change | {"source": None})[0]


def test_a_record_of_kafka_is_a_row_a_tombstone_or_nothing() -> None:
    change = json.dumps({"before": None, "after": {"id": 1, "name": "a"}, "op": "c", "source": SOURCE}).encode()
    row = debezium.row_of(b'{"id": 1}', change)
    assert isinstance(row, dict)
    assert (row["id"], row["name"], "$id" in row) == (1, "a", True)
    assert debezium.row_of(b'{"id": 1}', None) == {"id": 1, "$tombstone": True}
    assert debezium.row_of(None, b'{"op": "m"}') is None
    assert isinstance(debezium.row_of(None, None), Unreadable)
    assert isinstance(debezium.row_of(b"\xff", change), Unreadable)


def test_lines_lists_and_what_is_no_change() -> None:
    one = json.dumps({"after": {"id": 1}, "op": "r"}).encode()
    assert len(rows_of(one + b"\n" + one)) == 2
    found = rows_of([{"op": "x"}, {"ddl": "ALTER"}, {"op": "m"}, {"op": "u"}, {"op": "c", "after": 7}, None])
    assert [event.reason[:30] for event in found] == [
        'has an `op` nobody knows: `"x"',
        "is no change: it has no `op`, ",
        "is a change of kind `u` withou",
        "has `after`, which is no row",
    ]
    told = changes([{"op": "m", "message": {"a": 1}}, {"op": "t"}, {"ddl": 1}], topic="t", changes="c").changes
    assert [event.get("op") for event in told.events] == ["m", "t"]
    alone = changes([{"ddl": 1}], changes="c").changes
    assert isinstance(alone.events[0], Unreadable)


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("io.debezium.time.Date", -1, "1969-12-31"),
        ("io.debezium.time.Timestamp", 1500, "1970-01-01T00:00:01.500Z"),
        ("io.debezium.time.MicroTimestamp", 1500007, "1970-01-01T00:00:01.500007Z"),
        ("io.debezium.time.NanoTimestamp", 1500007009, "1970-01-01T00:00:01.500007Z"),
        ("io.debezium.time.MicroTime", 3_661_500_000, "01:01:01.500"),
        ("io.debezium.time.MicroTime", 86_400_000_000, 86_400_000_000),
        ("io.debezium.time.ZonedTime", "10:34:56.5Z", "10:34:56.5"),
        ("io.debezium.time.MicroTimestamp", -157_766_399_500_000, "1965-01-01T00:00:00.500Z"),
        ("org.apache.kafka.connect.data.Timestamp", 0, "1970-01-01T00:00:00.000Z"),
        ("io.debezium.time.Timestamp", -(10**15), -(10**15)),
        ("io.debezium.data.Json", '{"a":1}', '{"a":1}'),
    ],
)
def test_values_mean_what_their_schema_says(name: str, value: Any, meant: Any) -> None:
    assert convert(value, {"type": "int64", "name": name}) == meant


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12))
@settings(max_examples=100)
def test_decimals_keep_every_digit(number: Any) -> None:
    unscaled = int(number.scaleb(4))
    encoded = base64.b64encode(unscaled.to_bytes(12, "big", signed=True)).decode()
    schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "4"}}
    assert convert(
        {"a": [encoded]}, {"type": "struct", "fields": [{"field": "a", "type": "array", "items": schema}]}
    ) == {"a": [number]}


def test_a_decimal_of_a_million_digits_is_left_as_it_is() -> None:
    schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "4"}}
    assert convert("A" * 1_000_000, schema) == "A" * 1_000_000


# Web servers' logs

WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters='"\\\r\n -[]', exclude_categories=["Z", "C"]), min_size=1
)


@given(host=WORDS, user=WORDS, path=WORDS, agent=st.text(st.characters(codec="ascii", min_codepoint=32), max_size=20))
@settings(max_examples=100)
def test_a_line_says_what_was_written_into_it(host: str, user: str, path: str, agent: str) -> None:
    escaped = agent.replace("\\", "\\\\").replace('"', '\\"')
    line = f'{host} - {user} [16/Nov/2026:10:00:00 +0100] "GET /{path} HTTP/1.1" 200 - "-" "{escaped}"'
    [event] = weblogs.WebLog("combined").read([line.encode()]).events
    assert isinstance(event, dict), (line, event)
    assert (event["remote_host"], event["remote_user"], event["request"]) == (host, user, f"GET /{path} HTTP/1.1")
    assert (event["user_agent"], event["status"], event["bytes"]) == (None if agent == "-" else agent, 200, None)
    assert event["$time"] == NOW - 3_600_000


def test_fields_are_those_of_the_last_directive() -> None:
    log = weblogs.WebLog()
    lines = [
        b"#Version: 1.0\r\n",
        b"#Date: 2026-11-16 09:00:00\r\n",
        b"#Fields: time c-ip sc-status\r\n",
        b"10:00:00 10.0.0.1 200\r\n",
        b"10:00:00 10.0.0.1\r\n",
        b"10:00:00 10.0.0.1 fine\r\n",
        b"\r\n",
        b"#Fields: date time cs(Referer) x-note\r\n",
        b'2026-11-16 10:00:01 - "a ""b"""\r\n',
    ]
    first, short, wrong, last = log.read(lines).events
    assert (first["c_ip"], first["sc_status"], first["$time"]) == ("10.0.0.1", 200, NOW)
    assert isinstance(short, Unreadable)
    assert isinstance(wrong, Unreadable)
    assert (last["cs_referer"], last["x_note"], last["$time"]) == (None, 'a "b"', NOW + 1000)
    # Who goes on in the middle of a file says what the file has said.
    [event] = weblogs.WebLog("w3c", log.fields, log.date).read([b"2026-11-16 10:00:02 - -"]).events
    assert event["$time"] == NOW + 2000


def test_a_hostile_line_takes_no_longer_than_its_length() -> None:
    for line in (b"1:" * 30_000, b'a - b [1] "' * 5_000, b"a - " + b"[x" * 30_000, b'"' * 60_000, b"x" * 100_000):
        [event] = weblogs.WebLog().read([line]).events
        assert isinstance(event, Unreadable)


def test_digests_are_of_parts_not_of_their_sum() -> None:
    from headrace.collect.translate import bounded, digest

    assert digest(b"a", b"bc") != digest(b"ab", b"c")
    assert len(digest(b"")) == 32 == len(hashlib.md5(b"").hexdigest())
    assert (bounded("x"), len(bounded("é" * 5000))) == ("x", 32)
