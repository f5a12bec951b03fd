"""A feed that crosses a switch: no gap, no repeat, and in the end exactly what the new version holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.deliver.base import FeedEvent
from headrace.deliver.feed import FeedOptions, feed
from headrace.errors import Gone
from headrace.sql.source import Source
from headrace.types import BIGINT, Column
from tests.deliver.serving import Serving, take, take_all, take_until
from tests.store.changelog import COUNTS
from tests.store.project import View, create_topic, write
from tests.support import wait_for

SECOND = replace(COUNTS, topic="COUNTS.v2")
WIDER = replace(COUNTS, topic="COUNTS.v2", value=(*COUNTS.value, Column("VISITORS", BIGINT)))


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(tmp_path)
    made.add(COUNTS, partitions=2)
    create_topic(made.log, SECOND, 2)
    point(made, 1)
    yield made
    made.close()


def point(serving: Serving, number: int, *kept: int, second: Source = SECOND) -> None:
    """Let a version serve; the other is kept, unless only `kept` are named."""
    versions = {1: COUNTS, 2: second}
    beside = [(other, versions[other]) for other in (kept or (1, 2)) if other != number]
    source = versions[number]
    serving.known[source.name] = source
    serving.followers.sync([View(source.name, number, source.topic)], serving.known.get, beside)
    serving.delivery.tails.wake([COUNTS.topic, second.topic])


def put(serving: Serving, source: Source, **views: int | None) -> None:
    """One commit: the rows of these pages; None deletes."""
    rows: list[dict[str, Any]] = [
        {"PAGE": page, "$tombstone": True} if count is None else {"PAGE": page, "VIEWS": count}
        for page, count in views.items()
    ]
    write(serving.log, source, *rows)


def settled(serving: Serving) -> None:
    for number in (1, 2):
        wait_for(lambda: serving.followers.lag("COUNTS", number) == 0, 20, f"version {number}")  # noqa: B023


def shown(event: FeedEvent) -> tuple[str, int | None]:
    return event.data["key"]["page"], event.data["value"] and event.data["value"]["views"]


def applied(events: list[FeedEvent]) -> dict[str, int]:
    """What a client holds after these changes. Nothing may come that it has already."""
    held: dict[str, int] = {}
    for page, views in map(shown, events):
        assert held.get(page) != views, f"{page} = {views} came twice"
        if views is None:
            del held[page]
        else:
            held[page] = views
    return held


def test_the_difference_comes_as_changes_and_the_new_version_follows(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", start="beginning")
        put(serving, COUNTS, same=1, other=2, old=3)
        found = await take(events, 3)
        put(serving, SECOND, same=1, other=20, new=4)
        settled(serving)
        point(serving, 2)
        found += await take(events, 3)
        put(serving, COUNTS, late=9)
        put(serving, SECOND, new=5)
        return found + await take(events, 1)

    found = asyncio.run(story())
    assert sorted(map(shown, found[3:6]), key=str) == [("new", 4), ("old", None), ("other", 20)]
    assert all(event.data["switch"] == {"from": 1, "to": 2} for event in found[3:6])
    assert [event.id is None for event in found[3:6]] == [True, True, False]
    assert shown(found[6]) == ("new", 5)
    assert found[6].id is not None
    assert found[6].id.startswith("2-")


def test_what_the_old_version_still_has_comes_before_the_difference(serving: Serving) -> None:
    """A slow client has not read all of the old version when the new one begins to serve."""

    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", start="beginning")
        await take_until_heartbeat(events)
        put(serving, COUNTS, a=1, b=2)
        put(serving, COUNTS, a=2)
        put(serving, SECOND, a=7)
        settled(serving)
        point(serving, 2)
        return await take_until(events, lambda event: event.id is not None and event.id.startswith("2-"))

    found = asyncio.run(story())
    assert applied(found) == {"a": 7}
    assert [shown(event) for event in found[:3]] == [("a", 1), ("b", 2), ("a", 2)]


async def take_until_heartbeat(events: AsyncIterator[FeedEvent]) -> None:
    assert (await anext(events)).event == "heartbeat"


def test_an_id_of_the_old_version_goes_on_in_the_new_one(serving: Serving) -> None:
    async def begin() -> str:
        events = feed(serving.delivery, "COUNTS", start="beginning")
        put(serving, COUNTS, a=1)
        [event] = await take(events, 1)
        assert event.id is not None
        return event.id

    async def resume(after: str, count: int) -> list[FeedEvent]:
        return await take(feed(serving.delivery, "COUNTS", after=after), count)

    last = asyncio.run(begin())
    put(serving, COUNTS, b=1)
    put(serving, SECOND, a=1, b=3)
    settled(serving)
    point(serving, 2)
    assert [shown(event) for event in asyncio.run(resume(last, 2))] == [("b", 1), ("b", 3)]
    # Once the old version is gone nobody can say any more what the client has.
    point(serving, 2, 2)
    with pytest.raises(Gone, match="cannot be continued"):
        feed(serving.delivery, "COUNTS", after=last)


def test_back_and_forth(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", start="beginning")
        put(serving, COUNTS, a=1)
        put(serving, SECOND, a=2)
        settled(serving)
        found = await take(events, 1)
        for number in (2, 1, 2):
            point(serving, number)
            found += await take(events, 1)
        return found

    assert [shown(event) for event in asyncio.run(story())] == [("a", 1), ("a", 2), ("a", 1), ("a", 2)]


def test_equal_versions_differ_in_nothing(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", start="beginning")
        put(serving, COUNTS, a=1, b=2)
        put(serving, SECOND, a=1, b=2)
        settled(serving)
        found = await take(events, 2)
        point(serving, 2)
        put(serving, SECOND, c=3)
        return found + await take(events, 1)

    assert applied(asyncio.run(story())) == {"a": 1, "b": 2, "c": 3}


def test_with_another_column_every_row_is_another(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    serving.add(COUNTS)
    create_topic(serving.log, WIDER)
    point(serving, 1, second=WIDER)

    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", start="beginning")
        put(serving, COUNTS, a=1)
        write(serving.log, WIDER, {"PAGE": "a", "VIEWS": 1, "VISITORS": 1})
        settled(serving)
        found = await take(events, 1)
        point(serving, 2, second=WIDER)
        return found + await take(events, 1)

    found = asyncio.run(story())
    serving.close()
    assert [event.data["value"] for event in found] == [{"views": 1}, {"views": 1, "visitors": 1}]


def test_a_view_too_large_to_compare_ends_the_feed_and_says_why(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        options = FeedOptions(snapshot_rows=2)
        events = feed(serving.delivery, "COUNTS", start="beginning", options=options)
        put(serving, COUNTS, a=1, b=1, c=1)
        await take(events, 3)
        settled(serving)
        point(serving, 2)
        return await take_all(events)

    [event] = asyncio.run(story())
    assert event.event == "cut"
    assert "more than 2 rows" in event.data["reason"]


COMMITS = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from("abc"), st.none() | st.integers(1, 3)), min_size=1, max_size=14
)


@pytest.mark.slow
@given(COMMITS, COMMITS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_around_it_a_client_ends_with_the_new_rows(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[tuple[int, str, int | None]],
    after: list[tuple[int, str, int | None]],
) -> None:
    serving = Serving(tmp_path_factory.mktemp("crossing"))
    serving.add(COUNTS, partitions=2)
    create_topic(serving.log, SECOND, 2)
    point(serving, 1)
    versions = {1: COUNTS, 2: SECOND}

    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", start="beginning")
        for number, page, views in before:
            put(serving, versions[number], **{page: views})
        await take_until_heartbeat(events)
        point(serving, 2)
        for number, page, views in after:
            put(serving, versions[number], **{page: views})
        put(serving, SECOND, end=99)
        return await take_until(events, lambda event: shown(event) == ("end", 99))

    try:
        found = asyncio.run(story())
        expected = {"end": 99} | {page: views for number, page, views in before + after if number == 2}
        held: dict[str, int | None] = {}
        held.update(map(shown, found))
        assert {k: v for k, v in held.items() if v is not None} == {k: v for k, v in expected.items() if v is not None}
    finally:
        serving.close()
