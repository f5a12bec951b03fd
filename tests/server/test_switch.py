"""A push query over a view that is switched. Reads and feeds: `tests.chaos.switch`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.deliver.base import FeedEvent
from headrace.deliver.push import push
from headrace.server.query import plan_one
from headrace.sql.plan import PushQuery
from tests.server.running import Running, running_server

SQL = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
"""
CHANGED = SQL.replace("GROUP BY", "WHERE userid <> 'bob' GROUP BY")
PATIENCE = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    # Rows that no query has written would be found to be wrong.
    with running_server(tmp_path, "[views]\ncheck_every_seconds = 0\n", SQL) as running:
        yield running


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
