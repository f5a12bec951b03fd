"""Whatever is sent: an answer that makes sense, and sent = accepted + duplicates + rejected, as the log says too."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.running import Running

COLUMNS = """
    k VARCHAR KEY, s VARCHAR, i INTEGER, b BIGINT, d DOUBLE, m DECIMAL(9, 2), t TIMESTAMP, o BOOLEAN, y BYTES, dt DATE,
    tm TIME, a ARRAY<INTEGER>, p MAP<VARCHAR, DOUBLE>, r STRUCT<x INTEGER, z ARRAY<VARCHAR>>
"""
NAMES = [
    "k",
    "S",
    "i",
    "b",
    "d",
    "m",
    "t",
    "o",
    "y",
    "dt",
    "tm",
    "a",
    "p",
    "r",
    "$id",
    "$time",
    "$headers",
    "$tombstone",
]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(
        ["2026-11-15T12:00:00Z", "12.50", "AQ==", "12:00", 1_700_000_000_000, 10**30, 1e308, -0.0, "\x00"]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), VALUES, max_size=6) | VALUES
HOSTILE = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def topic(server: Running) -> str:
    name = f"hostile-{uuid.uuid4().hex[:8]}"
    made = server.http.post("/v1/topics", json={"name": name, "columns": COLUMNS})
    assert made.status_code == 201, made.text
    return name


def taken(server: Running, topic: str) -> tuple[int, int]:
    """Records in the topic, and dead letters of it."""
    found = server.http.get(f"/v1/topics/{topic}").json()
    return found["records"], found["dead_letters"]


def check(server: Running, topic: str, body: bytes, headers: dict[str, str] | None = None) -> dict[str, Any]:
    before = taken(server, topic)
    answer = server.send(topic, body, headers=headers or {})
    assert answer.status_code in (200, 422), (body, answer.status_code, answer.text)
    result: dict[str, Any] = answer.json()
    after = taken(server, topic)
    assert after[0] - before[0] == result["accepted"]
    new_letters = [each for each in result["rejected"] if each["dead_letter"] is not None]
    assert after[1] - before[1] == len(new_letters)
    assert all(each["reason"] for each in result["rejected"])
    return result


def sent(result: dict[str, Any]) -> int:
    return int(result["accepted"]) + int(result["duplicates"]) + len(result["rejected"])


@HOSTILE
@given(st.lists(EVENTS, max_size=5))
def test_arrays_of_anything(server: Running, topic: str, events: list[Any]) -> None:
    body = json.dumps(events, ensure_ascii=True).encode()
    assert sent(check(server, topic, body)) == len(events)


@HOSTILE
@given(st.lists(EVENTS, min_size=1, max_size=5), st.integers(0, 400), st.binary(max_size=4))
def test_lines_with_a_wound(server: Running, topic: str, events: list[Any], at: int, wound: bytes) -> None:
    """Bytes put in anywhere break the lines they are in, and no other."""
    lines = [json.dumps(event, ensure_ascii=True).encode() for event in events]
    body = b"\n".join(lines)
    broken = body[:at] + wound + body[at:]
    expected = sum(1 for line in broken.split(b"\n") if line and not line.isspace())
    if expected:
        result = check(server, topic, broken, {"Content-Type": "application/x-ndjson"})
        assert sent(result) == expected


@HOSTILE
@given(st.lists(EVENTS, min_size=1, max_size=4), st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_arrays_with_a_wound(server: Running, topic: str, events: list[Any], at: int, wound: bytes) -> None:
    body = json.dumps(events, ensure_ascii=True).encode()
    assert sent(check(server, topic, body[:at] + wound + body[at:])) >= 0


@HOSTILE
@given(st.binary(min_size=1, max_size=60))
def test_bytes(server: Running, topic: str, body: bytes) -> None:
    check(server, topic, body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"k":' * 100_000,
        b'[{"k": "' + b"\\" * 100_001,
        b'"' * 100_001,
        b'{"k": "a", "k": "b"}',
        b'{"i": ' + b"9" * 10_000 + b"}",
        b'{"d": 1e400}',
        b'{"m": "1e-999999999"}',
        b'{"s": "\xc3\x28"}',
        b'{"s": "\\udc00\\ud800"}',
        b'{"s": "a\\u0000b", "rest\\u0000": "\\u0000"}',
        b'[{"s": "a"},]',
        b'{"k": "a"} {"k": "b"}',
        b"nullnull",
        b'{"t": "9999-12-31T23:59:59.999999Z"}',
        b'{"$headers": {"' + b"h" * 5000 + b'": "v"}}',
        b"{" + b",".join(b'"f%d": %d' % (i, i) for i in range(5000)) + b"}",
        b'{"p": {' + b",".join(b'"%d": 1' % i for i in range(5000)) + b"}}",
    ],
)
def test_old_tricks(server: Running, topic: str, body: bytes) -> None:
    assert sent(check(server, topic, body)) >= 1


def test_the_last_of_two_equal_fields_counts(server: Running, topic: str) -> None:
    """As in most JSON parsers. Two spellings of one column are another matter: nobody can say which was meant."""
    assert sent(check(server, topic, b'{"k": "first", "k": "last"}')) == 1
    assert server.http.get(f"/v1/topics/{topic}/events?limit=1").json()["events"][0]["key"] == {"k": "last"}
