"""Push queries that need no state, evaluated over their topic; and those that do, followed in their sink."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.deliver.base import FeedEvent
from headrace.deliver.push import push, push_from_topic
from headrace.errors import UsageError
from headrace.sql.api import transient_query
from headrace.sql.plan import PushQuery
from headrace.sql.source import Source
from headrace.types import BIGINT, VARCHAR, Column
from tests.deliver.serving import Serving, take, take_all
from tests.store.changelog import COUNTS
from tests.store.project import create_topic, write

CLICKS = Source(
    "CLICKS", "stream", "clicks", (Column("USERID", VARCHAR),), (Column("PAGE", VARCHAR), Column("MS", BIGINT))
)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(tmp_path)
    made.add(CLICKS, COUNTS, partitions=2)
    yield made
    made.close()


def click(serving: Serving, *numbers: int) -> None:
    rows = ({"USERID": f"u{n % 3}", "PAGE": f"/{n}", "MS": n, "$time": n} for n in numbers)
    write(serving.log, CLICKS, *rows)


def start(serving: Serving, sql: str, **options: Any) -> AsyncIterator[FeedEvent]:
    plan = serving.plan(sql)
    assert isinstance(plan, PushQuery)
    return push(serving.delivery, plan, **options)


def test_rows_from_now_on_until_the_limit(serving: Serving) -> None:
    click(serving, 1, 2, 3)

    async def story() -> list[FeedEvent]:
        events = start(serving, "SELECT page, ms * 2 AS twice FROM clicks WHERE ms % 2 = 0 EMIT CHANGES LIMIT 3;")
        first = await take(events, 1)
        click(serving, 4, 5, 6)
        click(serving, 7, 8, 9, 10)
        return first + await take_all(events)

    header, *rows, last = asyncio.run(story())
    columns = [{"name": "page", "type": "VARCHAR"}, {"name": "twice", "type": "BIGINT"}]
    assert (header.event, header.data) == ("header", {"columns": columns, "query_id": None})
    assert [row.data for row in rows] == [
        {"row": ["/4", 8], "time_ms": 4},
        {"row": ["/6", 12], "time_ms": 6},
        {"row": ["/8", 16], "time_ms": 8},
    ]
    assert {row.event for row in rows} == {"row"}
    assert (last.event, last.data) == ("end", {"reason": "limit"})


def test_from_the_beginning(serving: Serving) -> None:
    for number in range(1_200):
        click(serving, number)

    async def story() -> list[FeedEvent]:
        return await take(start(serving, "SELECT ms FROM clicks EMIT CHANGES;", from_beginning=True), 1_201)

    _, *rows = asyncio.run(story())
    assert [row.data["row"] for row in rows] == [[number] for number in range(1_200)]


def test_one_query_never_gets_anothers_rows(serving: Serving) -> None:
    click(serving, 1)

    async def story() -> list[object]:
        found = []
        for number in range(30):
            events = start(serving, f"SELECT {number} AS n FROM clicks EMIT CHANGES LIMIT 1;", from_beginning=True)
            found.append((await take_all(events))[1].data["row"])
        return found

    assert asyncio.run(story()) == [[number] for number in range(30)]


def test_nothing_to_say_is_a_heartbeat(serving: Serving) -> None:
    async def story() -> list[str]:
        events = start(serving, "SELECT * FROM clicks EMIT CHANGES;", heartbeat_s=0.01)
        return [(await anext(events)).event for _ in range(3)]

    assert asyncio.run(story()) == ["header", "heartbeat", "heartbeat"]


def test_a_limit_of_nothing(serving: Serving) -> None:
    async def story() -> list[str]:
        events = start(serving, "SELECT * FROM clicks EMIT CHANGES LIMIT 0;")
        return [event.event for event in await take_all(events)]

    assert asyncio.run(story()) == ["header", "end"]


def test_a_table_is_its_changes(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = start(serving, "SELECT * FROM counts EMIT CHANGES;", from_beginning=True)
        write(serving.log, COUNTS, {"PAGE": "/a", "VIEWS": 1, "$time": 1})
        write(serving.log, COUNTS, {"PAGE": "/a", "$tombstone": True, "$time": 2})
        return await take(events, 3)

    _, change, deletion = asyncio.run(story())
    assert change.data == {"row": ["/a", 1], "time_ms": 1}
    assert deletion.data == {"row": ["/a", None], "time_ms": 2, "tombstone": True}


def test_a_record_without_a_value_is_no_row_of_a_stream(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = start(serving, "SELECT userid FROM clicks EMIT CHANGES;", from_beginning=True)
        write(serving.log, CLICKS, {"USERID": "a", "$tombstone": True}, {"USERID": "b", "MS": 1})
        return await take(events, 2)

    assert asyncio.run(story())[1].data["row"] == ["b"]


def test_a_topic_that_goes_ends_it(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = start(serving, "SELECT * FROM clicks EMIT CHANGES;", heartbeat_s=0.05)
        await take(events, 1)
        serving.log.delete_topic("clicks")
        return await take_all(events)

    [event] = asyncio.run(story())
    assert (event.event, event.data) == ("end", {"reason": "stopped"})


def test_one_with_state_is_for_spark(serving: Serving) -> None:
    sql = "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page EMIT CHANGES;"
    with pytest.raises(UsageError, match="with state"):
        start(serving, sql)


def test_what_spark_writes_for_it_is_followed(serving: Serving) -> None:
    plan = serving.plan("SELECT COUNT(*) AS n, page FROM clicks GROUP BY page EMIT CHANGES LIMIT 2;")
    assert isinstance(plan, PushQuery)
    sink = transient_query(plan, "TRANSIENT_1").sink
    create_topic(serving.log, sink)

    async def story() -> list[FeedEvent]:
        # Nothing it wrote before somebody listened is missed: the sink is this query's own.
        write(serving.log, sink, {"N": 1, "PAGE": "/a", "$time": 5})
        events = push_from_topic(serving.delivery, sink, plan.root.columns, limit=plan.limit, query_id="TRANSIENT_1")
        first = await take(events, 2)
        write(serving.log, sink, {"N": 2, "PAGE": "/a", "$time": 6}, {"N": 1, "PAGE": "/b", "$time": 6})
        return first + await take_all(events)

    header, *rows, last = asyncio.run(story())
    assert [column["name"] for column in header.data["columns"]] == ["n", "page"]
    assert header.data["query_id"] == "TRANSIENT_1"
    assert [row.data["row"] for row in rows] == [[1, "/a"], [2, "/a"]]
    assert last.data == {"reason": "limit"}
