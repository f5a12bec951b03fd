"""Messages of a real paho publisher over a real mosquitto, with the broker stopped on the way: each once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NoReturn

import pytest

from headrace.collect.feed import Feed
from headrace.log.base import TopicSpec
from headrace.types import BIGINT, VARCHAR, Column
from tests.collect.brokers import Publisher, mosquitto
from tests.collect.listeners import listening
from tests.support import free_port, wait_for

READINGS = TopicSpec("readings", key=(Column("DEVICE", VARCHAR),), value=(Column("N", BIGINT),))


def collector(port: int, qos: int = 1) -> str:
    url = f'url = "mqtt://127.0.0.1:{port}"\ntopics = ["plant/{{device}}/n"]'
    return f'type = "mqtt"\ntopic = "readings"\nqos = {qos}\n{url}'


def test_what_is_published_meanwhile_is_kept_and_retained_messages_come_once(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as (port, broker):
        publisher = Publisher(port)
        publisher.publish(range(1), retain=True)
        with listening(tmp_path, {"plant": collector(port)}, [READINGS]) as running:
            running.wait_until("plant")
            publisher.publish(range(1, 50), device="d2")
            rows = running.wait_rows("readings", 50)
            assert {(row["DEVICE"], row["N"]) for row in rows} == {("d1", 0), *(("d2", n) for n in range(1, 50))}
            publisher._client.publish("plant/d3/n", b"nonsense", qos=1)
            wait_for(lambda: len(running.letters()) == 1, 10, "a dead letter")
            assert running.letters()[0]["SOURCE"] == "mqtt plant plant/d3/n"
        publisher.publish(range(50, 100))
        with listening(tmp_path, {"plant": collector(port)}, [READINGS]) as running:
            assert sorted(row["N"] for row in running.wait_rows("readings", 100)) == list(range(100))
            # The broker goes away and comes back with what it was told to keep.
            publisher.close()
            broker.stop()
            wait_for(lambda: running.status("plant").state == "waiting", 10, "the collector to notice")
            broker.start()
            running.wait_until("plant")
            publisher = Publisher(port)
            publisher.publish(range(100, 120))
            publisher.close()
            assert sorted(row["N"] for row in running.wait_rows("readings", 120)) == list(range(120))


def test_it_ends_when_it_is_told_to_in_the_moment_in_which_the_broker_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[asyncio.Task[Any]] = []

    async def refuse(*arguments: object, **options: object) -> NoReturn:
        [collector] = [task for task in asyncio.all_tasks() if task.get_name() == "plant"]
        told.append(collector)
        asyncio.get_running_loop().call_soon(collector.cancel)
        raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr("asyncio.open_connection", refuse)
    with listening(tmp_path, {"plant": collector(free_port())}, [READINGS]):
        wait_for(lambda: bool(told) and told[0].done(), 5, "the collector to end")
        assert told[0].cancelled()


def test_one_that_does_not_hear_that_it_is_to_end_is_told_again_and_keeps_no_other_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(feed: Feed) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    monkeypatch.setattr("headrace.server.listeners.load", lambda place: deaf)
    with listening(tmp_path, {"plant": collector(1)}, [READINGS]) as running:
        wait_for(lambda: running.status("plant").state == "waiting", 5, "the collector to start")
        (tmp_path / "collectors" / "plant.toml").unlink()
        running.write("other", collector(1))
        assert running.wait_until("other", "waiting").detail == "starting"
        with pytest.raises(KeyError):
            running.status("plant")
