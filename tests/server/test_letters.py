"""Dead letters: looked at, mended, and sent again under their own ids."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.running import Running


@pytest.fixture
def topic(server: Running, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name = f"letters_{request.node.name[-40:]}"
    columns = "who VARCHAR KEY, n INT, at TIMESTAMP"
    answer = server.http.post("/v1/topics", json={"name": name, "columns": columns, "partitions": 2})
    assert answer.status_code == 201, answer.text
    return name


def send(server: Running, topic: str, *events: Any) -> dict[str, Any]:
    body: dict[str, Any] = server.http.post(f"/v1/topics/{topic}/events", json=list(events)).json()
    return body


def redrive(server: Running, topic: str, **order: Any) -> dict[str, Any]:
    answer = server.http.post(f"/v1/topics/{topic}/dead-letters/redrive", json=order)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def counts(body: dict[str, Any]) -> tuple[int, int, int, int]:
    return body["matched"], body["accepted"], body["duplicates"], body["rejected"]


def values(server: Running, topic: str) -> list[tuple[Any, ...]]:
    """What is in the topic: who, n, at."""
    events = server.http.get(f"/v1/topics/{topic}/events", params={"from": "oldest", "limit": 100}).json()["events"]
    return sorted((one["key"]["who"], one["value"]["n"], one["value"].get("at")) for one in events)


def test_a_preview_changes_nothing_and_a_redrive_happens_once(server: Running, topic: str) -> None:
    send(server, topic, {"who": "ann", "n": "seven"}, {"who": "bob", "n": "8"}, {"who": "eve", "n": 9})
    mend = {"where": "reason LIKE '%must be%' AND n <> 'seven'", "set": {"n": "CAST(n AS INT)"}}
    looked = redrive(server, topic, preview=True, **mend)
    assert counts(looked) == (1, 1, 0, 0)
    [sample] = looked["samples"]
    assert (sample["event"], sample["outcome"]) == ('{"who":"bob","n":8}', "accepted")
    assert len(values(server, topic)) == 1, "a preview sends nothing"

    assert counts(redrive(server, topic, **mend)) == (1, 1, 0, 0)
    assert [(who, n) for who, n, _ in values(server, topic)] == [("bob", 8), ("eve", 9)]
    assert counts(redrive(server, topic, **mend)) == (0, 0, 0, 0), "it was sent again once already"
    listed = server.http.get(f"/v1/topics/{topic}/dead-letters").json()["dead_letters"]
    assert [(letter.get("redriven", False), letter["attempts"]) for letter in listed] == [(True, 2), (False, 1)]
    # It is not open any more, and the overview says so.
    assert (server.services.dead_letters.counts()[topic], server.services.dead_letters.open_counts()[topic]) == (2, 1)
    [node] = [one for one in server.http.get("/v1/overview").json()["nodes"] if one["id"] == f"topic:{topic}"]
    assert (node["message"], node["detail"]["dead_letters"]) == ("1 dead letter", 2)


def test_what_does_not_fit_again_stays_a_letter(server: Running, topic: str) -> None:
    send(server, topic, {"who": "ann", "n": "seven"}, "no object")
    body = redrive(server, topic, set={"n": "CAST(LEN(n) AS DOUBLE) + 0.5"})
    assert counts(body) == (2, 0, 0, 2)
    assert "no JSON object" in next(sample["reason"] for sample in body["samples"] if sample["event"] is None)
    listed = server.http.get(f"/v1/topics/{topic}/dead-letters").json()["dead_letters"]
    assert [(letter.get("redriven", False), letter["attempts"]) for letter in listed] == [(False, 2), (False, 2)]
    assert counts(redrive(server, topic, where="attempts < 2")) == (0, 0, 0, 0)
    whole = {"payload": '\'{"who": "x", "n": 1}\''}
    assert counts(redrive(server, topic, set=whole)) == (2, 2, 0, 0)
    assert [n for _, n, _ in values(server, topic)] == [1, 1], "two letters are two events, also when they are alike"


def test_an_event_that_came_meanwhile_is_not_doubled(server: Running, topic: str) -> None:
    send(server, topic, {"$id": "e1", "who": "ann", "n": "7"})
    send(server, topic, {"$id": "e1", "who": "ann", "n": 7})
    assert counts(redrive(server, topic, preview=True, set={"n": "CAST(n AS INT)"})) == (1, 0, 1, 0)
    assert counts(redrive(server, topic, set={"n": "CAST(n AS INT)"})) == (1, 0, 1, 0)
    assert len(values(server, topic)) == 1


def test_a_time_can_be_put_right(server: Running, topic: str) -> None:
    [rejected] = send(server, topic, {"who": "ann", "n": 1, "at": "yesterday"})["rejected"]
    letter = server.http.get(f"/v1/dead-letters/{rejected['dead_letter']}").json()
    assert (letter["topic"], letter["text"]) == (topic, '{"who":"ann","n":1,"at":"yesterday"}')
    redrive(server, topic, where="at = 'yesterday'", set={"AT": "ROWTIME"})
    [(_, _, at)] = values(server, topic)
    assert at is not None


def test_a_time_in_seconds_is_refused_and_sent_again_in_milliseconds(server: Running, topic: str) -> None:
    sent = send(
        server, topic, {"who": "ann", "n": 1, "$time": 1794744000}, {"who": "bob", "n": 2, "$time": 1794744000000}
    )
    assert (sent["accepted"], [rejected["index"] for rejected in sent["rejected"]]) == (1, [0])
    reason = sent["rejected"][0]["reason"]
    assert "`$time` is 1970-01-21T18:32:24.000Z: seconds?" in reason
    assert reason.endswith("multiplied by 1000 it is 2026-11-15T12:00:00.000Z")
    whole = {"payload": "REPLACE(payload, '1794744000', '1794744000000')"}
    assert counts(redrive(server, topic, set=whole)) == (1, 1, 0, 0)
    listed = server.http.get(f"/v1/topics/{topic}/events", params={"from": "oldest"}).json()["events"]
    assert {one["time_ms"] for one in listed} == {1794744000000}


def test_a_letter_that_is_no_text_keeps_nobody_from_mending_others(server: Running, topic: str) -> None:
    body = b'[{"who": "\xff", "n": 1}, {"who": "ann", "n": "7"}]'
    assert len(server.http.post(f"/v1/topics/{topic}/events", content=body).json()["rejected"]) == 2
    assert counts(redrive(server, topic, set={"n": "CAST(n AS INT)"})) == (2, 1, 0, 1)
    assert [who for who, _, _ in values(server, topic)] == ["ann"]


def test_letters_of_a_raw_topic_are_sent_again_as_they_are_or_mended(server: Running) -> None:
    """Bytes are a record's value; an event that says `key` or `value` is one."""
    assert server.http.post("/v1/topics", json={"name": "letters_raw", "kind": "raw"}).status_code == 201
    assert send(server, "letters_raw", {"value": "no base64!"}, {"oops": 1}, {"oops": "\u00e9"})["accepted"] == 0
    assert counts(redrive(server, "letters_raw", preview=True)) == (3, 2, 0, 1)
    assert counts(redrive(server, "letters_raw", where="payload LIKE '%1%'")) == (1, 1, 0, 0)
    shout = {"where": "payload LIKE '%oops%'", "set": {"payload": "UCASE(payload)"}}
    assert counts(redrive(server, "letters_raw", **shout)) == (1, 1, 0, 0)
    assert counts(redrive(server, "letters_raw", set={"value": "'aGk='"})) == (1, 1, 0, 0)
    assert counts(redrive(server, "letters_raw")) == (0, 0, 0, 0)
    records = server.services.log.read("letters_raw", 0, 0)
    found = [value for part in records for value in part.batch.column("VALUE").to_pylist()]
    assert found == [b'{"oops":1}', '{"OOPS":"\u00c9"}'.encode(), b"hi"]


def test_orders_that_cannot_be(server: Running, topic: str) -> None:
    path = f"/v1/topics/{topic}/dead-letters/redrive"

    def refused(**order: Any) -> str:
        answer = server.http.post(path, json=order)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        return f"{error['message']} ({error.get('hint')})"

    assert "no column `nn` (did you mean `n`?" in refused(set={"nn": "1"})
    assert "does not exist" in refused(where="reson = 'x'")
    assert "payload is VARCHAR" in refused(set={"payload": "1 + 1"})
    assert "COUNT" in refused(where="COUNT(*) > 1")
    assert server.http.post("/v1/topics/nowhere/dead-letters/redrive", json={}).status_code == 404
    assert server.http.post("/v1/topics/_dead_letters/dead-letters/redrive", json={}).status_code == 403
    assert server.http.get("/v1/dead-letters/99999999").status_code == 404
    assert server.http.get("/v1/dead-letters/x").status_code == 404
