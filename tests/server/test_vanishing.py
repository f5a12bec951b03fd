"""What looks at everything while things come and go: a topic that is deleted meanwhile is left out, and that is all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from headrace.log.base import TopicSpec
from headrace.server.topology import overview
from headrace.types import VARCHAR, Column
from tests.server.running import Running

LOOKS_S = 1.5


@pytest.fixture
def unrest(server: Running) -> Iterator[None]:
    """Topics that are made and deleted all the time."""
    over, log = threading.Event(), server.services.log

    def run() -> None:
        while not over.is_set():
            names = [f"passing{number}" for number in range(5)]
            for name in names:
                log.create_topic(TopicSpec(name, value=(Column("A", VARCHAR),)))
            for name in names:
                log.delete_topic(name)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    over.set()
    thread.join()


def look_again_and_again(look: Callable[[], str]) -> list[str]:
    """Look for a while, at least once; return the answers from which the topic that stays was missing."""
    end, without = time.monotonic() + LOOKS_S, []
    while True:
        found = look()
        if "users" not in found:
            without.append(found)
        if time.monotonic() >= end:
            return without


@pytest.mark.usefixtures("unrest")
def test_an_overview_while_topics_are_deleted(server: Running) -> None:
    assert look_again_and_again(lambda: str(overview(server.services))) == []


@pytest.mark.usefixtures("unrest")
def test_metrics_while_topics_are_deleted(server: Running) -> None:
    assert look_again_and_again(lambda: str(server.services.metrics.text())) == []


@pytest.mark.usefixtures("unrest")
def test_topics_are_listed_while_some_are_deleted(server: Running) -> None:
    assert look_again_and_again(lambda: str(server.services.statements.execute("SHOW TOPICS;"))) == []
    assert look_again_and_again(lambda: server.http.get("/v1/topics").raise_for_status().text) == []
