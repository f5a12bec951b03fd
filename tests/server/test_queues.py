"""Queues and requests over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from headrace.log.queues import CORRELATION, REPLY_TO
from tests.server.running import Running
from tests.support import let_pass, wait_for


def make(server: Running, name: str, **options: Any) -> None:
    assert server.http.post("/v1/topics", json={"name": name, "columns": "n INT", "partitions": 2}).status_code == 201
    answer = server.http.post("/v1/queues", json={"name": name, "topic": name, **options})
    assert answer.status_code == 201, answer.text


def send(server: Running, topic: str, *numbers: int) -> None:
    assert server.send(topic, [{"n": number} for number in numbers]).status_code == 200


def receive(server: Running, queue: str, **parameters: Any) -> list[dict[str, Any]]:
    answer = server.http.post(f"/v1/queues/{queue}/receive", params=parameters)
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


def settle(server: Running, queue: str, how: str, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    body = {"receipts": [message["receipt"] for message in messages], **more}
    answer = server.http.post(f"/v1/queues/{queue}/{how}", json=body)
    assert answer.status_code == 200, answer.text
    settled: dict[str, Any] = answer.json()
    return settled


def numbers(messages: list[dict[str, Any]]) -> list[int]:
    return sorted(message["record"]["value"]["n"] for message in messages)


def meanwhile(server: Running, monkeypatch: pytest.MonkeyPatch, name: str, happens: Callable[[], object]) -> None:
    """Something happens after the next look at a queue has found nothing, and before whoever looked waits."""
    queue = server.services.queues.queue(name)
    looked = queue.receive
    left = [happens]

    def look(*given: Any) -> Any:
        found = looked(*given)
        if left and not found:
            left.pop()()
        return found

    monkeypatch.setattr(queue, "receive", look)


def test_what_is_given_back_between_a_look_and_waiting_is_not_missed(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(server, "given")
    send(server, "given", 1)
    first = receive(server, "given", lease=600)
    meanwhile(server, monkeypatch, "given", lambda: settle(server, "given", "nack", first))
    began = time.monotonic()
    assert numbers(receive(server, "given", wait=60)) == [1]
    assert time.monotonic() - began < 30, "not only when its time was up"


def test_a_lease_that_ends_between_a_look_and_waiting_is_not_missed(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(server, "expired")
    send(server, "expired", 1)
    assert numbers(receive(server, "expired", lease=1)) == [1]
    meanwhile(server, monkeypatch, "expired", lambda: let_pass(1.5))
    began = time.monotonic()
    assert numbers(receive(server, "expired", wait=60)) == [1]
    assert time.monotonic() - began < 30, "not only when its time was up"


def test_a_message_s_life(server: Running) -> None:
    make(server, "life", max_deliveries=2)
    send(server, "life", 1, 2, 3)
    messages = receive(server, "life", limit=10)
    assert (numbers(messages), [message["deliveries"] for message in messages]) == ([1, 2, 3], [1, 1, 1])
    one, two, three = sorted(messages, key=lambda message: message["record"]["value"]["n"])
    assert settle(server, "life", "ack", [one]) == {"done": 1, "lost": []}
    assert settle(server, "life", "extend", [two], lease_s=60)["done"] == 1
    assert settle(server, "life", "nack", [three], reason="not today")["done"] == 1
    [again] = receive(server, "life", limit=10)
    assert (numbers([again]), again["deliveries"]) == ([3], 2)
    settle(server, "life", "nack", [again], reason="never")
    state = server.http.get("/v1/queues/life").json()
    assert (state["ready"], state["leased"], state["dead"]) == (0, 1, 1)
    [letter] = server.dead_letters("life")
    assert letter["reason"].endswith("without being acknowledged: never")
    assert [queue["name"] for queue in server.http.get("/v1/queues").json()["queues"] if queue["name"] == "life"]
    assert settle(server, "life", "ack", [again])["lost"] == [again["receipt"]]


def test_receivers_compete(server: Running) -> None:
    make(server, "race")
    send(server, "race", *range(200))

    def work(_: int) -> list[int]:
        had = []
        while messages := receive(server, "race", limit=5):
            had += numbers(messages)
            assert settle(server, "race", "ack", messages)["lost"] == []
        return had

    with ThreadPoolExecutor(4) as pool:
        assert sorted(number for had in pool.map(work, range(4)) for number in had) == list(range(200))


def test_waiting_for_a_message_a_lease_or_a_refusal(server: Running) -> None:
    make(server, "patient")
    later = threading.Timer(0.2, send, (server, "patient", 1))
    later.start()
    [message] = receive(server, "patient", wait=60, lease=0.3)
    assert numbers([message]) == [1]
    [message] = receive(server, "patient", wait=60)
    assert message["deliveries"] == 2
    refusal = threading.Timer(0.2, settle, (server, "patient", "nack", [message]))
    refusal.start()
    [message] = receive(server, "patient", wait=60)
    assert message["deliveries"] == 3
    assert receive(server, "patient", wait=0.05) == []


def test_who_goes_away_while_waiting_takes_nothing(server: Running) -> None:
    make(server, "left")
    with pytest.raises(httpx.ReadTimeout):
        server.http.post("/v1/queues/left/receive", params={"wait": 30}, timeout=httpx.Timeout(60, read=0.3))
    send(server, "left", 1)
    assert numbers(receive(server, "left", wait=30)) == [1]


def test_a_dead_letter_is_written_even_if_nobody_receives(server: Running) -> None:
    make(server, "alone", max_deliveries=1)
    send(server, "alone", 1)
    receive(server, "alone", lease=0.05)
    wait_for(lambda: bool(server.dead_letters("alone")), 20, "the dead letter")
    assert len(server.dead_letters("alone")) == 1


def test_a_topic_with_a_queue_stays(server: Running) -> None:
    make(server, "kept")
    assert server.http.delete("/v1/topics/kept").status_code == 409
    assert server.http.delete("/v1/queues/kept").status_code == 204
    assert server.http.delete("/v1/topics/kept").status_code == 204


def test_a_request_is_answered(server: Running) -> None:
    server.http.post("/v1/topics", json={"name": "sums", "columns": "a INT, b INT"})
    server.http.post("/v1/queues", json={"name": "sums", "topic": "sums"})

    def answer() -> None:
        [message] = receive(server, "sums", wait=60)
        record = message["record"]
        reply = {"value": {"sum": record["value"]["a"] + record["value"]["b"]},
                 "headers": {CORRELATION: record["headers"][CORRELATION]}}  # fmt: skip
        server.http.post(f"/v1/topics/{record['headers'][REPLY_TO]}/records", json={"records": [reply]})
        settle(server, "sums", "ack", [message])

    worker = threading.Thread(target=answer)
    worker.start()
    found = server.http.post("/v1/requests/sums?timeout=60", json={"value": {"a": 2, "b": 3}})
    worker.join()
    assert found.status_code == 200, found.text
    body = found.json()
    assert (body["reply"]["rest"], body["reply_topic"], body["request"]) == (
        {"sum": 5}, "sums.replies", {"partition": 0, "offset": 0},
    )  # fmt: skip


def test_a_request_nobody_answers_and_one_that_does_not_fit(server: Running) -> None:
    server.http.post("/v1/topics", json={"name": "silence", "columns": "a INT"})
    answer = server.http.post("/v1/requests/silence?timeout=0.05", json={"value": {"a": 1}})
    error = answer.json()["error"]
    assert (answer.status_code, error["reply_topic"]) == (408, "silence.replies")
    answer = server.http.post("/v1/requests/silence", json={"value": {"a": "x"}})
    assert (answer.status_code, "must be" in answer.json()["error"]["message"]) == (400, True)
    assert server.http.post("/v1/requests/nothing", json={"value": {}}).status_code == 404
