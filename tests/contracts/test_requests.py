"""Requests and their replies, on every log there is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NoReply
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import NotFound, Overloaded
from headrace.log.base import Append, Log, TopicSpec
from headrace.log.queues import CORRELATION, Requests
from headrace.types import VARCHAR, Column

REPLIES = TopicSpec("replies", value=(Column("TEXT", VARCHAR),), partitions=2)


@pytest.fixture
def requests(log: Log) -> Iterator[Requests]:
    log.create_topic(REPLIES)
    made = Requests(log, max_waiting=3)
    yield made
    made.close()


def reply(log: Log, text: str, correlation: str | None, partition: int = 0) -> None:
    headers = None if correlation is None else [(CORRELATION, correlation.encode())]
    columns: dict[str, Any] = {
        "TEXT": pa.array([text]),
        "$headers": pa.array([headers], pa.map_(pa.string(), pa.binary())),
    }
    log.append([Append("replies", pa.record_batch(columns), partition)]).result()


def test_a_reply_finds_who_asked(log: Log, requests: Requests) -> None:
    reply(log, "too early", "1")
    first, second = requests.expect("replies", "1"), requests.expect("replies", "2")
    reply(log, "for nobody", None)
    reply(log, "two", "2", partition=1)
    reply(log, "one", "1")
    reply(log, "again", "1")
    assert second.result(60)["value"] == {"text": "two"}
    found = first.result(60)
    assert (found["value"], found["headers"]) == ({"text": "one"}, {CORRELATION: "1"})
    third = requests.expect("replies", "3")
    reply(log, "three", "3")
    assert third.result(60)["value"] == {"text": "three"}


def test_who_waits_no_longer_takes_no_room(log: Log, requests: Requests) -> None:
    waiting = [requests.expect("replies", str(number)) for number in range(3)]
    with pytest.raises(Overloaded, match="waiting for replies"):
        requests.expect("replies", "more")
    with pytest.raises(NoReply):
        waiting[0].result(0.01)
    waiting[0].cancel()
    last = requests.expect("replies", "last")
    reply(log, "never mind", "0")
    reply(log, "yes", "last")
    assert last.result(60)["value"] == {"text": "yes"}
    with pytest.raises(CancelledError):
        waiting[0].result(0)


def test_replies_need_a_topic(requests: Requests) -> None:
    with pytest.raises(NotFound):
        requests.expect("nothing", "1")
