"""Events over HTTP: every form of body, every answer."""

from __future__ import annotations

import base64
import gzip
import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from tests.server.running import Running, running_server
from tests.support import wait_for

NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def topic(server: Running) -> str:
    """A topic of the test's own."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    columns = "userid VARCHAR KEY, pageid VARCHAR, n BIGINT"
    made = server.http.post("/v1/topics", json={"name": name, "columns": columns, "partitions": 2})
    assert made.status_code == 201, made.text
    return name


def test_one_event_is_accepted_and_can_be_read(server: Running, topic: str) -> None:
    answer = server.send(topic, {"userid": "you", "pageid": "/hello"})
    assert answer.status_code == 200
    place = answer.json()["position"]
    epochs = server.services.log.epochs()
    assert epochs is not None
    epoch = epochs.current.id
    assert answer.json() == {
        "accepted": 1,
        "duplicates": 0,
        "rejected": [],
        "position": place,
        "positions": [[place["partition"], place["offset"], place["offset"]]],
        "token": f"{topic}@{place['partition']}:{place['offset']}.{epoch}",
    }
    [event] = server.events(topic)
    assert (event["partition"], event["offset"]) == (place["partition"], place["offset"])
    assert (event["key"], event["value"], event["rest"]) == ({"userid": "you"}, {"pageid": "/hello", "n": None}, None)


def test_rejected_events_are_told_apart_and_kept(server: Running, topic: str) -> None:
    body = b'[{"userid": "you", "pageid":"/a"} , {"userid":7,  "x": 1}]'
    answer = server.send(topic, body)
    assert answer.status_code == 200
    [rejected] = answer.json()["rejected"]
    [letter] = server.dead_letters(topic)
    assert answer.json()["accepted"] == 1
    reason = "`userid` must be a string, got 7"
    assert rejected == {"index": 1, "reason": reason, "dead_letter": letter["offset"]}
    assert letter == {
        "offset": letter["offset"],
        "time_ms": letter["time_ms"],
        "topic": topic,
        "reason": reason,
        "source": "http 127.0.0.1",
        "id": None,
        "bytes": base64.b64encode(b'{"userid":7,  "x": 1}').decode(),
        "text": '{"userid":7,  "x": 1}',
        "attempts": 1,
    }


def test_all_rejected_is_422(server: Running, topic: str) -> None:
    answer = server.send(topic, [{"userid": 7}, 8])
    assert answer.status_code == 422
    assert [each["index"] for each in answer.json()["rejected"]] == [0, 1]
    assert answer.json()["position"] is None


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'[{"userid":"a"},{"userid":"b"}]', {}),
        (b'{"userid":"a"}\n\n{"userid":"b"}\r\n', NDJSON),
        (b'{"userid":"a"}\n{"userid":"b"}', {}),
        (b'\xef\xbb\xbf[{"userid":"a"},{"userid":"b"}]', {}),
        (b'{"userid":"a"}\n{"userid":"b"}', {"Content-Type": "application/x-www-form-urlencoded"}),
        (gzip.compress(b'[{"userid":"a"},{"userid":"b"}]', mtime=0), {"Content-Encoding": "gzip"}),
        (
            gzip.compress(b'{"userid":"a"}\n', mtime=0) + gzip.compress(b'{"userid":"b"}\n', mtime=0),
            NDJSON | {"Content-Encoding": "gzip"},
        ),
        (zstandard.compress(b'[{"userid":"a"},{"userid":"b"}]'), {"Content-Encoding": "zstd"}),
    ],
)
def test_forms_of_a_body(server: Running, topic: str, body: bytes, headers: dict[str, str]) -> None:
    answer = server.send(topic, body, headers=headers)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 2), answer.text
    assert sorted(event["key"]["userid"] for event in server.events(topic)) == ["a", "b"]


def test_a_large_batch_keeps_its_order_within_a_key(server: Running, topic: str) -> None:
    events = [{"userid": f"u{i % 7}", "n": i} for i in range(900)]
    assert server.send(topic, events).json()["accepted"] == 900
    by_user: dict[str, list[int]] = {}
    for event in server.events(topic):
        by_user.setdefault(event["key"]["userid"], []).append(event["value"]["n"])
    assert by_user == {f"u{u}": list(range(u, 900, 7)) for u in range(7)}


def test_a_body_that_is_not_json_is_one_dead_letter(server: Running, topic: str) -> None:
    body = b"hello, \xff world"
    answer = server.send(topic, body)
    assert answer.status_code == 422
    [letter] = server.dead_letters(topic)
    assert base64.b64decode(letter["bytes"]) == body
    assert "text" not in letter


def test_the_same_wrong_event_twice_is_two_dead_letters(server: Running, topic: str) -> None:
    for _ in range(2):
        assert server.send(topic, b'{"userid": 7}').status_code == 422
    assert [letter["text"] for letter in server.dead_letters(topic)] == ['{"userid": 7}'] * 2


def test_only_the_broken_line_is_lost(server: Running, topic: str) -> None:
    answer = server.send(topic, b'{"userid":"a"}\n{"userid":\n{"userid":"b"}\n', headers=NDJSON)
    assert (answer.json()["accepted"], [each["index"] for each in answer.json()["rejected"]]) == (2, [1])
    assert server.dead_letters(topic)[0]["text"] == '{"userid":'


def test_only_the_broken_element_is_lost(server: Running, topic: str) -> None:
    deep = "[" * 5000 + "]" * 5000
    body = '[{"userid":"a"}, {"n": NaN}, {"userid":"\\ud800"}, ' + deep + ', {"userid":"b"}]'
    answer = server.send(topic, body.encode())
    assert answer.json()["accepted"] == 2
    reasons = {each["index"]: each["reason"] for each in answer.json()["rejected"]}
    assert list(reasons) == [1, 2, 3]
    assert reasons[3] == "the event is nested too deeply"
    assert server.dead_letters(topic)[-1]["text"] == '{"n": NaN}'


def test_an_empty_array_is_nothing_and_an_empty_body_is_an_error(server: Running, topic: str) -> None:
    assert server.send(topic, b"[]").json()["accepted"] == 0
    answer = server.send(topic, b"")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage")


# Sent again


def test_an_idempotency_key_makes_a_retry_harmless(server: Running, topic: str) -> None:
    events = [{"userid": "a"}, {"userid": 7}, {"userid": "b"}]
    first = server.send(topic, events, headers={"Idempotency-Key": "K"}).json()
    again = server.send(topic, events, headers={"Idempotency-Key": "K"})
    assert (first["accepted"], first["duplicates"], len(first["rejected"])) == (2, 0, 1)
    assert again.status_code == 200
    assert (again.json()["accepted"], again.json()["duplicates"], len(again.json()["rejected"])) == (0, 2, 1)
    assert again.json()["rejected"][0]["dead_letter"] is None
    assert [event["id"] for event in server.events(topic)] == ["K/0", "K/2"]
    assert len(server.dead_letters(topic)) == 1


def test_a_rejected_id_is_not_used_up(server: Running, topic: str) -> None:
    assert server.send(topic, {"userid": 7, "$id": "one"}).status_code == 422
    assert server.send(topic, {"userid": "seven", "$id": "one"}).json()["accepted"] == 1
    assert server.send(topic, {"userid": "seven", "$id": "one"}).json()["duplicates"] == 1


def test_the_same_id_twice_in_one_request(server: Running, topic: str) -> None:
    answer = server.send(topic, [{"userid": "a", "$id": "x"}, {"userid": "b", "$id": "x"}]).json()
    assert (answer["accepted"], answer["duplicates"]) == (1, 1)


# Acknowledgement


def test_acks(server: Running, topic: str) -> None:
    taken = server.send(topic, [{"userid": "a"}, {"userid": 7}], params={"acks": "1"})
    assert (taken.status_code, taken.json()["accepted"], taken.json()["positions"]) == (202, 1, [])
    assert taken.json()["rejected"][0]["dead_letter"] is None
    fired = server.send(topic, {"userid": "a"}, params={"acks": "0"})
    assert (fired.status_code, fired.content) == (204, b"")
    durable = server.send(topic, {"userid": "a"}, params={"acks": "all"})
    assert durable.status_code == 200
    # Appends of one connection are in order, so the durable one says that the others are there too.
    assert len(server.events(topic)) == 3
    assert len(server.dead_letters(topic)) == 1


def test_a_partition_can_be_named(server: Running, topic: str) -> None:
    for partition in (0, 1):
        answer = server.send(topic, {"userid": "a"}, params={"partition": partition})
        assert answer.json()["position"]["partition"] == partition
    assert server.send(topic, {"userid": "a"}, params={"partition": 2}).status_code == 400


# Raw topics


def test_a_raw_topic_takes_bytes(server: Running) -> None:
    name = f"raw-{uuid.uuid4().hex[:8]}"
    assert server.http.post("/v1/topics", json={"name": name, "kind": "raw"}).status_code == 201
    octets = {"Content-Type": "application/octet-stream", "X-Key": "k1"}
    assert server.send(name, b"\x00\xff", headers=octets).json()["accepted"] == 1
    assert server.send(name, b"", headers={"Content-Type": "application/octet-stream"}).json()["accepted"] == 1
    pairs = [{"key": "azI=", "value": "AQ=="}, {"value": "no base64"}, {"value": "AQ==", "more": 1}]
    answer = server.send(name, pairs).json()
    assert answer["accepted"] == 1
    assert [each["reason"] for each in answer["rejected"]] == [
        '`value` must be base64, got "no base64"',
        '"more" is not a field of a raw event: it has `key` and `value`',
    ]
    assert [(event["key"]["key"], event["value"]["value"]) for event in server.events(name)] == [
        ("azE=", "AP8="),
        (None, ""),
        ("azI=", "AQ=="),
    ]


# Refusals


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "code"),
    [
        ("nowhere", b"{}", {}, 404, "not_found"),
        ("_dead_letters", b"{}", {}, 403, "refused"),
        ("pageviews", b"{}", {"Content-Type": "text/xml"}, 415, "unsupported_media"),
        ("pageviews", b"{}", {"Content-Type": "application/octet-stream"}, 415, "unsupported_media"),
        ("pageviews", b"{}", {"Content-Encoding": "br"}, 415, "unsupported_media"),
        ("pageviews", b"{}", {"Content-Encoding": "gzip"}, 400, "usage"),
        ("pageviews", zstandard.compress(b"{}")[:-2], {"Content-Encoding": "zstd"}, 400, "usage"),
        ("pageviews?acks=2", b"{}", {}, 400, "usage"),
        ("pageviews?partition=x", b"{}", {}, 400, "usage"),
        ("pageviews", b"{}", {"Idempotency-Key": "x" * 1000}, 400, "usage"),
    ],
)
def test_refusals(server: Running, path: str, body: bytes, headers: dict[str, str], status: int, code: str) -> None:
    name, _, query = path.partition("?")
    answer = server.http.post(f"/v1/topics/{name}/events?{query}", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert answer.json()["error"]["message"]


# Pressure


@pytest.mark.slow
def test_429_when_too_much_is_waiting(tmp_path: Path) -> None:
    # One group a second: what was taken stays waiting for that long, and on a busy machine it is tried again.
    with running_server(tmp_path, "[log]\nmax_pending_bytes = 2000\nlinger_ms = 1000\n") as server:
        answers: list[httpx.Response] = []
        taken = 0

        def refused() -> bool:
            nonlocal taken
            many = [{"id": f"u{taken}.{i}", "name": "x" * 50} for i in range(100)]
            taken += server.send("users", many, params={"acks": "1"}).status_code == 202
            answers.append(server.send("users", {"id": f"too much {len(answers)}"}))
            return answers[-1].status_code != 200

        wait_for(refused, 30, "a refusal")
        last = answers[-1]
        assert (last.status_code, last.json()["error"]["code"]) == (429, "overloaded"), last.text
        assert int(last.headers["Retry-After"]) >= 1
        wait_for(lambda: server.send("users", {"id": "later"}).status_code == 200, 20, "room")
        keys = [event["key"]["id"] for event in server.events("users")]
        # Those of the tries before were taken, and the one that came later.
        assert len(keys) == 100 * taken + len(answers)
        assert f"too much {len(answers) - 1}" not in keys


def test_507_when_the_disk_is_nearly_full(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        assert server.send("users", {"id": "a"}).status_code == 200
    with running_server(tmp_path, f"[log]\nmin_free_bytes = {1 << 60}\n") as server:
        answer = server.send("users", {"id": "b"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "disk_full"), answer.text
        assert [event["key"]["id"] for event in server.events("users")] == ["a"]


def test_limits(tmp_path: Path) -> None:
    toml = "[server]\nmax_body_bytes = 20000\n[collect]\nmax_events = 10\nmax_event_bytes = 1000\n"
    with running_server(tmp_path, toml) as server:
        large = json.dumps([{"id": "x" * 3000}] * 8).encode()
        for body, headers in (
            (large, {}),
            (gzip.compress(large), {"Content-Encoding": "gzip"}),
            (zstandard.compress(large), {"Content-Encoding": "zstd"}),
            (b"[" + b"{}," * 10 + b"{}]", {}),
            (b"{}\n" * 11, NDJSON),
            (b"[NaN," + b"{}," * 10 + b"{}]", {}),
        ):
            answer = server.send("users", body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large"), (body[:20], answer.text)
        events: list[Any] = [{"id": "x" * 1000}, {"id": "a"}]
        answer = server.send("users", events)
        assert answer.json()["accepted"] == 1
        assert answer.json()["rejected"][0]["reason"].endswith("more than the 1000 an event may have")
        assert server.send("users", events[0]).status_code == 422
        assert server.events("users")[0]["key"] == {"id": "a"}
