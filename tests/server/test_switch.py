"""A switch while it is read and followed: no read fails or sees two versions, no feed has a gap or a repeat.

There is no Spark here: what the queries would write is written by the test, so that it knows every row."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.deliver.base import FeedEvent
from headrace.deliver.feed import feed
from headrace.deliver.push import push
from headrace.log.base import Append
from headrace.server.query import plan_one
from headrace.sql.plan import PushQuery
from tests.server.running import Running, running_server
from tests.support import wait_for

SQL = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
"""
CHANGED = SQL.replace("GROUP BY", "WHERE userid <> 'bob' GROUP BY")
PAGES, READERS, FEEDS, SECOND = 20, 4, 40, 1_000_000
"""Rows of the second version count from a million on, so that each tells whose it is."""
PATIENCE = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    # Rows that no query has written would be found to be wrong.
    with running_server(tmp_path, "[views]\ncheck_every_seconds = 0\n", SQL) as running:
        yield running


@dataclass
class Story:
    server: Running
    stop: threading.Event = field(default_factory=threading.Event)
    rounds: int = 0
    reads: list[list[int]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def write(self, topic: str, base: int) -> None:
        pages = [f"/{number}" for number in range(PAGES)]
        counts = pa.array([base + self.rounds] * PAGES, pa.int64())
        batch = pa.record_batch({"PAGE": pa.array(pages), "N": counts, "$time": pa.array([0] * PAGES, pa.int64())})
        self.server.services.log.append([Append(topic, batch)]).result()

    def keep_writing(self) -> None:
        """Both versions, as they go on side by side; each round is one commit of each."""
        while not self.stop.wait(0.005):
            self.rounds += 1
            self.write("BY_PAGE", 0)
            self.write("BY_PAGE.v2", SECOND)

    def keep_reading(self) -> None:
        seen: list[int] = []
        self.reads.append(seen)
        while not self.stop.is_set():
            answer = self.server.http.get("/v1/views/by_page/rows", params={"limit": 100})
            if answer.status_code != 200:
                self.failures.append(answer.text)
                continue
            body = answer.json()
            versions = {1 + (row[1] >= SECOND) for row in body["rows"]}
            if versions != {body["version"]} or len(body["rows"]) != PAGES:
                self.failures.append(f"version {body['version']} has rows of {versions}, {len(body['rows'])} of them")
            seen.append(body["version"])


@dataclass
class Client:
    """Somebody who follows, and notices what should not come."""

    held: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    crossed: int = 0

    def take(self, event: FeedEvent) -> None:
        if event.event == "heartbeat":
            return
        if event.event != "change":
            self.failures.append(f"{event.event}: {event.data}")
            return
        page, now = event.data["key"]["page"], event.data["value"]["n"]
        before = self.held.get(page)
        self.crossed += "switch" in event.data
        # Each round adds one, so anything else than the next number is a gap or a repeat.
        if before is not None and "switch" not in event.data and now != before + 1:
            self.failures.append(f"{page}: {before} and then {now}")
        self.held[page] = now


async def follow(server: Running, client: Client, last: list[int]) -> None:
    async for event in feed(server.services.delivery, "BY_PAGE", snapshot=True):
        client.take(event)
        if last and len(client.held) == PAGES and set(client.held.values()) == {SECOND + last[0]}:
            return


def test_a_switch_under_reads_and_feeds(server: Running) -> None:
    services = server.services
    story, clients, last = Story(server), [Client() for _ in range(FEEDS)], list[int]()
    story.write("BY_PAGE", 0)
    wait_for(lambda: services.followers.view("BY_PAGE").count() == PAGES, PATIENCE, "the first version")
    answer = server.http.post("/v1/deployments", json={"files": {"all.sql": CHANGED}})
    number = answer.json()["deployment"]["id"]
    # Nothing was sent, so the build has caught up at once; it has no rows, so it waits for somebody.
    wait_for(lambda: services.deployments.get(number).stage == "waiting", PATIENCE, "the comparison")
    story.write("BY_PAGE.v2", SECOND)

    async def followed() -> None:
        async with asyncio.timeout(2 * PATIENCE):
            await asyncio.gather(*(follow(server, client, last) for client in clients))

    threads = [threading.Thread(target=story.keep_writing)]
    threads += [threading.Thread(target=story.keep_reading) for _ in range(READERS)]
    following = threading.Thread(target=lambda: asyncio.run(followed()))
    for thread in (*threads, following):
        thread.start()
    try:
        wait_for(lambda: all(client.held for client in clients), PATIENCE, "all feeds to begin")
        wait_for(lambda: all(len(seen) > 3 for seen in story.reads), PATIENCE, "some reads")
        services.deployments.approve(number)
        wait_for(lambda: services.catalog.state.serving["BY_PAGE"] == 2, PATIENCE, "the switch")
        wait_for(lambda: all(client.crossed for client in clients), PATIENCE, "all feeds to cross over")
        wait_for(lambda: all(seen[-1] == 2 for seen in story.reads), PATIENCE, "reads of the new version")
    finally:
        story.stop.set()
        for thread in threads:
            thread.join(PATIENCE)
        last.append(story.rounds)
        # One more round, for those who had everything already when the last was not known yet.
        story.rounds += 1
        last[0] = story.rounds
        story.write("BY_PAGE", 0)
        story.write("BY_PAGE.v2", SECOND)
        following.join(3 * PATIENCE)
    assert story.failures == []
    assert [failure for client in clients for failure in client.failures] == []
    for seen in story.reads:
        assert seen == sorted(seen), "a reader went back to the old version"
    assert all(set(client.held.values()) == {SECOND + story.rounds} for client in clients)


def test_a_push_query_ends_and_says_that_there_is_a_new_version(server: Running) -> None:
    services, events = server.services, list[FeedEvent]()
    plan = plan_one("SELECT * FROM by_page WHERE n > 0 EMIT CHANGES;", services.catalog)
    assert isinstance(plan, PushQuery)
    answer = server.http.post("/v1/deployments", json={"files": {"all.sql": CHANGED}, "approve": True})
    number = answer.json()["deployment"]["id"]

    async def listen() -> None:
        async with asyncio.timeout(PATIENCE):
            async for event in push(services.delivery, plan):
                events.append(event)

    # Nothing was sent, so the new version serves as soon as somebody looks.
    asyncio.run(listen())
    assert services.deployments.get(number).stage == "switched"
    ends = [event.data["reason"] for event in events if event.event == "end"]
    assert ends == ["`by_page` has a new version: ask again"]
