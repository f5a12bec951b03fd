"""A feed that crosses a switch: no gap, no repeat, and in the end exactly what the new version holds."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.deliver.base import FeedEvent
from headrace.deliver.feed import feed
from headrace.errors import Gone, Overloaded
from headrace.sql.source import Source
from headrace.store.sqlite import SqliteView
from headrace.types import BIGINT, INTEGER, Column
from tests.deliver.serving import PATIENCE, Serving, take, take_all, take_until
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
    assert all(event.id is not None for event in found[3:6])
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


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """Two versions whose differences take many files and many blocks."""
    monkeypatch.setattr("headrace.deliver.crossing.PART_ROWS", 40)
    monkeypatch.setattr("headrace.deliver.reel.BLOCK_ROWS", 7)
    made = Serving(tmp_path)
    made.add(COUNTS, partitions=2)
    create_topic(made.log, SECOND, 2)
    point(made, 1)
    put(made, COUNTS, **{f"p{n}": n for n in range(500)})
    put(made, SECOND, **{f"p{n}": n if n % 5 else n + 1000 for n in range(100, 600)})
    settled(made)
    yield made
    made.close()


AFTER_SWITCH = {f"p{n}": n if n % 5 else n + 1000 for n in range(100, 600)}


async def whole(events: AsyncIterator[FeedEvent], version: int) -> list[FeedEvent]:
    """Changes until it has come into a version: its heartbeat says so."""
    found: list[FeedEvent] = []
    async with asyncio.timeout(PATIENCE):
        async for event in events:
            if event.event == "heartbeat" and str(event.id).startswith(f"{version}-"):
                return found
            if event.event != "heartbeat":
                found.append(event)
    raise AssertionError(f"ended after {found[-1:]}")


async def to_the_end(serving: Serving, events: AsyncIterator[FeedEvent]) -> list[FeedEvent]:
    found = await whole(events, 2)
    put(serving, SECOND, end=1)
    *rest, _ = await take_until(events, lambda event: shown(event) == ("end", 1))
    return found + rest


def test_a_large_difference_comes_in_parts(large: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = feed(large.delivery, "COUNTS", start="beginning")
        found = await take(events, 500)
        point(large, 2)
        return found + await whole(events, 2)

    found = asyncio.run(story())
    assert applied(found) == AFTER_SWITCH
    assert len(found) == 500 + 100 + 100 + 80


@pytest.mark.parametrize("kept", [True, False])
def test_gone_in_the_middle_of_a_difference_one_gets_exactly_the_rest(large: Serving, kept: bool) -> None:
    """However often, and whatever happens in both versions meanwhile; whether the difference is kept or made anew."""

    async def story() -> list[FeedEvent]:
        events = feed(large.delivery, "COUNTS", start="beginning")
        found = await take(events, 500)
        point(large, 2)
        for number in range(5):
            found += await take(events, 40)
            await events.aclose()  # type: ignore[attr-defined]
            changed = {f"p{n}": 10_000 * (number + 1) + n for n in range(number, 600, 50)}
            put(large, SECOND, **changed)
            put(large, COUNTS, **{page: views + 5000 for page, views in changed.items()}, **{f"q{number}": 1})
            at_last.update(changed)
            settled(large)
            if not kept:
                large.delivery.crossings._made.clear()
            events = feed(large.delivery, "COUNTS", after=found[-1].id)
        return found + await to_the_end(large, events)

    at_last = dict(AFTER_SWITCH)
    found = asyncio.run(story())
    assert applied(found) == at_last


def test_a_restart_in_the_middle_of_a_difference(tmp_path: Path) -> None:
    async def begin(serving: Serving) -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", start="beginning")
        found = await take(events, 50)
        point(serving, 2)
        return found + await take(events, 20)

    async def go_on(serving: Serving, after: str | None) -> list[FeedEvent]:
        return await whole(feed(serving.delivery, "COUNTS", after=after), 2)

    serving = Serving(tmp_path)
    serving.add(COUNTS)
    create_topic(serving.log, SECOND)
    point(serving, 1)
    put(serving, COUNTS, **{f"p{n}": n for n in range(50)})
    put(serving, SECOND, **{f"p{n}": n + 100 for n in range(50)})
    settled(serving)
    found = asyncio.run(begin(serving))
    serving.close()
    serving = Serving(tmp_path)
    point(serving, 2)
    found += asyncio.run(go_on(serving, found[-1].id))
    # Once one of the versions is gone nobody knows what the client has.
    point(serving, 2, 2)
    with pytest.raises(Gone, match="cannot be continued"):
        feed(serving.delivery, "COUNTS", after=found[60].id)
    serving.close()
    assert len(found) == 100
    assert applied(found) == {f"p{n}": n + 100 for n in range(50)}


def test_gone_in_the_middle_of_a_snapshot_one_gets_exactly_the_rest(large: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = feed(large.delivery, "COUNTS", snapshot=True)
        found: list[FeedEvent] = []
        for number in range(3):
            found += await take(events, 100)
            await events.aclose()  # type: ignore[attr-defined]
            put(large, COUNTS, **{f"p{n}": 10_000 * (number + 1) + n for n in range(0, 500, 50)}, p1=None)
            put(large, COUNTS, p1=7 + number)
            settled(large)
            events = feed(large.delivery, "COUNTS", after=found[-1].id, snapshot=True)
        return found + await whole(events, 1)

    found = asyncio.run(story())
    held: dict[str, int | None] = {}
    held.update(map(shown, found))
    assert held == {f"p{n}": 30_000 + n if n % 50 == 0 else n for n in range(500)} | {"p1": 9}
    rows = [shown(event)[0] for event in found if event.data.get("snapshot")]
    assert len(rows) == len(set(rows))


def test_a_switch_in_the_middle_of_a_snapshot(large: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = feed(large.delivery, "COUNTS", snapshot=True)
        found = await take(events, 100)
        point(large, 2)
        return found + await whole(feed(large.delivery, "COUNTS", after=found[-1].id), 2)

    assert applied(asyncio.run(story())) == AFTER_SWITCH


def test_a_key_of_another_type_is_another_row_and_what_is_gone_comes_first(tmp_path: Path) -> None:
    numbered = replace(COUNTS, key=(Column("PAGE", INTEGER),))
    renumbered = replace(SECOND, key=(Column("PAGE", BIGINT),))
    serving = Serving(tmp_path)
    serving.add(numbered)
    create_topic(serving.log, renumbered)

    def serve(number: int) -> None:
        source, other = (numbered, renumbered) if number == 1 else (renumbered, numbered)
        serving.known[source.name] = source
        serving.followers.sync([View("COUNTS", number, source.topic)], serving.known.get, [(3 - number, other)])
        serving.delivery.tails.wake([numbered.topic, renumbered.topic])

    serve(1)
    for source in (numbered, renumbered):
        write(serving.log, source, *({"PAGE": n, "VIEWS": n} for n in range(30)))

    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", start="beginning")
        found = await take(events, 30)
        settled(serving)
        serve(2)
        found += await take(events, 15)
        return found + await whole(feed(serving.delivery, "COUNTS", after=found[-1].id), 2)

    found = asyncio.run(story())
    serving.close()
    assert [event.data["value"] is None for event in found[30:]] == [True] * 30 + [False] * 30
    held: dict[Any, int] = {**applied(found)}
    assert held == {n: n for n in range(30)}


def test_many_cross_and_the_difference_is_made_once(large: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[int] = []
    scan = SqliteView.scan

    def counted(view: SqliteView, *arguments: Any, **options: Any) -> Any:
        scans.append(view.version)
        return scan(view, *arguments, **options)

    monkeypatch.setattr(SqliteView, "scan", counted)

    async def one(events: AsyncIterator[FeedEvent], switched: asyncio.Event) -> list[FeedEvent]:
        found = await take(events, 500)
        await switched.wait()
        return found + await whole(events, 2)

    async def story() -> list[list[FeedEvent]]:
        switched = asyncio.Event()
        feeds = [feed(large.delivery, "COUNTS", start="beginning") for _ in range(50)]
        crossing = [asyncio.create_task(one(events, switched)) for events in feeds]
        point(large, 2)
        switched.set()
        return list(await asyncio.gather(*crossing))

    for found in asyncio.run(story()):
        assert applied(found) == AFTER_SWITCH
    assert sorted(scans) == [1, 2]


def test_no_room_for_a_difference_is_said_and_it_can_be_had_later(
    large: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path | None) -> IO[bytes]:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def story() -> list[FeedEvent]:
        events = feed(large.delivery, "COUNTS", start="beginning")
        found = await take(events, 500)
        with monkeypatch.context() as disk:
            disk.setattr("headrace.deliver.crossing.temporary", full)
            point(large, 2)
            with pytest.raises(Overloaded, match="cannot be brought together") as error:
                await take_all(events)
        assert "No space left" in str(error.value)
        return found + await whole(feed(large.delivery, "COUNTS", after=found[-1].id), 2)

    assert applied(asyncio.run(story())) == AFTER_SWITCH


COMMITS = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from("abc"), st.none() | st.integers(1, 3)), min_size=1, max_size=14
)


@pytest.mark.slow
@given(COMMITS, COMMITS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
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
        found = await whole(events, 2)
        return (
            found
            if any(shown(event) == ("end", 99) for event in found)
            else found + await take_until(events, lambda event: shown(event) == ("end", 99))
        )

    try:
        found = asyncio.run(story())
        expected = {"end": 99} | {page: views for number, page, views in before + after if number == 2}
        held: dict[str, int | None] = {}
        held.update(map(shown, found))
        assert {k: v for k, v in held.items() if v is not None} == {k: v for k, v in expected.items() if v is not None}
    finally:
        serving.close()
