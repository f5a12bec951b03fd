"""A push query, and a client of a large view, over a switch. Many reads and feeds: `tests.chaos.switch`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.client import Change, Client
from headrace.deliver.base import FeedEvent
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


ROWS = 120_000


def fill(server: Running, number: int, ahead: int) -> dict[str, int]:
    """A version's rows as no query would have written them, and what a client holds that has them."""
    version = next(one for one in server.services.catalog.versions("BY_PAGE") if one.number == number)
    counts = {f"/{page}": page + ahead for page in range(ROWS)}
    columns = {
        "PAGE": pa.array(counts),
        "N": pa.array(counts.values(), pa.int64()),
        "$time": pa.array([0] * ROWS, pa.int64()),
    }
    server.services.log.append([Append(version.source.topic, pa.record_batch(columns))]).result()
    wait_for(lambda: server.services.followers.lag("BY_PAGE", number) == 0, PATIENCE, f"rows of version {number}")
    return counts


def hold(held: dict[str, int], changes: Iterator[Change], until: Callable[[], bool]) -> str | None:
    """Apply changes; nothing may come that is held already. The id of the last."""
    last = None
    for change in changes:
        assert change.value is not None
        page, count = change.key["page"], change.value["n"]
        assert held.get(page) != count, f"{page} = {count} came twice"
        held[page], last = count, change.id
        if until():
            break
    return last


@pytest.mark.slow
def test_a_client_crosses_a_switch_of_a_large_view_and_loses_its_connection_on_the_way(server: Running) -> None:
    first = fill(server, 1, 0)
    answer = server.http.post("/v1/deployments", json={"files": {"all.sql": CHANGED}, "approve": True})
    deployment = answer.json()["deployment"]["id"]
    wait_for(lambda: server.services.deployments.get(deployment).stage == "switched", PATIENCE, "the switch")
    second, held = fill(server, 2, ROWS), dict[str, int]()
    url = f"http://127.0.0.1:{server.port}"
    with Client(url) as client:
        last = hold(held, client.feed("by_page", snapshot=True), lambda: len(held) == ROWS // 3)
    with Client(url) as client:
        changes = client.feed("by_page", after=last)
        hold(held, changes, lambda: len(held) == ROWS)
        assert held == second
        assert server.http.post("/v1/views/by_page/rollback").status_code == 200
        back = iter(range(ROWS // 3))
        last = hold(held, changes, lambda: next(back, None) is None)
    left = iter(range(sum(held[page] != count for page, count in first.items()) - 1))
    with Client(url) as client:
        hold(held, client.feed("by_page", after=last), lambda: next(left, None) is None)
    assert held == first
