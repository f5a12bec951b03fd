"""Feeds: every change once, in order, from wherever a client left off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.deliver.base import FeedEvent
from headrace.deliver.feed import FeedOptions, feed
from headrace.deliver.ids import parse_id
from headrace.errors import Gone, NotFound, UsageError
from headrace.log.base import TopicConfig, TopicSpec
from tests.deliver.serving import PATIENCE, Serving, take, take_all, take_until
from tests.store.changelog import COUNTS, PER_MINUTE
from tests.store.project import write
from tests.support import wait_for


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(tmp_path)
    made.add(COUNTS, PER_MINUTE, partitions=3)
    yield made
    made.close()


def change(serving: Serving, *pages: str, views: int = 1) -> None:
    write(serving.log, COUNTS, *({"PAGE": page, "VIEWS": views, "$time": views} for page in pages))


def shown(events: list[FeedEvent]) -> list[Any]:
    return [(event.data["key"]["page"], event.data["value"] and event.data["value"]["views"]) for event in events]


def test_changes_as_they_happen(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS")
        change(serving, "/before")
        found = await take(events, 1)
        change(serving, "/a", "/b", views=2)
        write(serving.log, COUNTS, {"PAGE": "/a", "$tombstone": True, "$time": 5})
        return found + await take(events, 3)

    # The feed begins when it is asked for, not when it is first read.
    found = asyncio.run(story())
    assert shown(found) == [("/before", 1), ("/a", 2), ("/b", 2), ("/a", None)]
    assert found[-1].data == {"key": {"page": "/a"}, "value": None, "time_ms": 5}
    assert all(event.event == "change" for event in found)
    numbers = [parse_id(event.id or "") for event in found]
    assert [number.arrival or 0 for number in numbers] == sorted(number.arrival or 0 for number in numbers)
    assert {number.version for number in numbers} == {1}


def test_windows(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "PER_MINUTE", start="beginning")
        write(
            serving.log, PER_MINUTE, {"PAGE": "/a", "VIEWS": 1, "$time": 7, "$window_start": 0, "$window_end": 60_000}
        )
        return await take(events, 1)

    [event] = asyncio.run(story())
    assert event.data == {
        "key": {"page": "/a"},
        "value": {"views": 1},
        "time_ms": 7,
        "window": {"start": 0, "end": 60_000},
    }


async def all_changes(serving: Serving, count: int, **options: Any) -> list[FeedEvent]:
    return await take(feed(serving.delivery, "COUNTS", **options), count)


def test_continued_after_every_id_it_gives_exactly_the_rest(serving: Serving) -> None:
    for number in range(8):
        change(serving, *(f"/{n}" for n in range(number + 1)), views=number)
    total = sum(range(1, 9))

    async def story() -> None:
        everything = await all_changes(serving, total, start="beginning")
        for place, event in enumerate(everything[:-1], 1):
            assert await all_changes(serving, total - place, after=event.id) == everything[place:]
        # After the last there is nothing until something happens.
        events = feed(serving.delivery, "COUNTS", after=everything[-1].id)
        change(serving, "/next", views=99)
        assert shown(await take(events, 1)) == [("/next", 99)]

    asyncio.run(story())


def test_a_heartbeat_has_an_id_to_continue_from(serving: Serving) -> None:
    async def story() -> None:
        events = feed(serving.delivery, "COUNTS", options=FeedOptions(heartbeat_s=0.01))
        first, second = await anext(events), await anext(events)
        assert (first.event, second.event) == ("heartbeat", "heartbeat")
        change(serving, "/missed")
        for event in (first, second):
            assert event.id is not None
            assert shown(await all_changes(serving, 1, after=event.id)) == [("/missed", 1)]

    asyncio.run(story())


def test_over_a_restart_of_the_server(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    serving.add(COUNTS, partitions=2)
    change(serving, "/a", "/b", "/c")

    async def first() -> list[FeedEvent]:
        return await all_changes(serving, 2, start="beginning")

    seen = asyncio.run(first())
    serving.close()
    serving = Serving(tmp_path)
    serving.add(COUNTS)
    change(serving, "/d", views=2)

    async def rest() -> list[FeedEvent]:
        return await all_changes(serving, 2, after=seen[-1].id)

    seen += asyncio.run(rest())
    assert shown(seen) == [("/a", 1), ("/b", 1), ("/c", 1), ("/d", 2)]
    serving.close()


# Snapshots


def test_the_rows_then_what_follows(serving: Serving) -> None:
    change(serving, "/a", "/b", "/c")
    write(serving.log, COUNTS, {"PAGE": "/b", "$tombstone": True})
    serving.caught_up("COUNTS")

    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", snapshot=True)
        rows = await take(events, 2)
        change(serving, "/a", views=2)
        return rows + await take(events, 1)

    found = asyncio.run(story())
    assert sorted(shown(found[:2])) == [("/a", 1), ("/c", 1)]
    assert shown(found[2:]) == [("/a", 2)]
    assert [event.data.get("snapshot", False) for event in found] == [True, True, False]
    assert all(event.id is not None for event in found)

    async def again() -> list[FeedEvent]:
        return await all_changes(serving, 1, after=found[1].id, snapshot=True)

    assert asyncio.run(again()) == found[2:]


def test_a_snapshot_and_what_follows_have_neither_gap_nor_repeat_under_writing(serving: Serving) -> None:
    """Counters only grow: a gap would skip a number, a repeat would show one again."""
    stop = threading.Event()
    last = [0]

    def keep_writing() -> None:
        while not stop.is_set():
            last[0] += 1
            change(serving, "/a", "/b", "/c", "/d", views=last[0])

    async def one(number: int) -> None:
        events = feed(serving.delivery, "COUNTS", snapshot=True)
        state: dict[str, int] = {}
        for event in await take(events, 200 + number):
            [(page, views)] = shown([event])
            if event.data.get("snapshot"):
                assert page not in state
            else:
                assert views == state[page] + 1
            state[page] = views

    async def story() -> None:
        for round_ in range(3):
            await asyncio.gather(*(one(round_ * 10 + number) for number in range(5)))

    change(serving, "/a", "/b", "/c", "/d", views=0)
    serving.caught_up("COUNTS")
    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        asyncio.run(story())
    finally:
        stop.set()
        writer.join()


# Where nothing can be continued


@pytest.mark.parametrize(
    "id_",
    [
        "",
        "7",
        "1-",
        "-3",
        "a-b",
        "1-2-3",
        "1-" + "9" * 80,
        "1--4",
        "²-1",
        "~",
        "~~",
        "~1-2",
        "1-2~1-3",
        "1-2~~a",
        "~1-2~",
        "1-2~x~a",
        "~1-2~a~b",
        "~1-2~A",
    ],
)
def test_what_is_no_id(serving: Serving, id_: str) -> None:
    with pytest.raises(UsageError, match="is not an event id"):
        feed(serving.delivery, "COUNTS", after=id_)


def test_ids_that_are_gone(serving: Serving) -> None:
    change(serving, "/a")
    with pytest.raises(Gone, match="cannot be continued after `2-1`") as error:
        feed(serving.delivery, "COUNTS", after="2-1")
    assert "version 1 now" in str(error.value)
    assert "snapshot=true" in str(error.value)
    with pytest.raises(Gone, match="1-99999"):
        feed(serving.delivery, "COUNTS", after="1-99999")
    with pytest.raises(NotFound):
        feed(serving.delivery, "NOTHING")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Serving]:
    """A log that keeps next to nothing."""
    made = Serving(tmp_path, segment_bytes=2_000)
    config = TopicConfig(retention_bytes=4_000)
    made.log.create_topic(TopicSpec(COUNTS.topic, COUNTS.key, COUNTS.value, role="derived", config=config))
    made.add(COUNTS)
    yield made
    made.close()


def overflow(serving: Serving) -> None:
    """Write until the log's start has moved."""
    for number in range(400):
        change(serving, *(f"/{n}" for n in range(50)), views=number)
        serving.log._maintenance.run_once()
        if serving.log.snapshot().ends["counts"][0].start > 0:
            return
    raise AssertionError("nothing was removed")


def test_an_id_whose_followers_were_removed_is_gone(small: Serving) -> None:
    change(small, "/first")
    first = asyncio.run(all_changes(small, 1, start="beginning"))[0]
    overflow(small)
    with pytest.raises(Gone, match="cannot be continued"):
        feed(small.delivery, "COUNTS", after=first.id)
    # What is still there can be continued from.
    now = small.log.snapshot()
    recent = f"1-{now.arrival - 2}"
    assert len(asyncio.run(all_changes(small, 1, after=recent))) == 1


def test_a_client_slower_than_retention_is_told(small: Serving) -> None:
    change(small, "/first")

    async def story() -> list[FeedEvent]:
        events = feed(small.delivery, "COUNTS", start="beginning")
        first = await take(events, 1)
        overflow(small)
        return first + await take_all(events)

    *_, last = asyncio.run(story())
    assert last.event == "cut"
    assert "too slow" in last.data["reason"]


def test_a_client_that_falls_too_far_behind_is_told(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        options = FeedOptions(heartbeat_s=0.01, max_behind=100)
        events = feed(serving.delivery, "COUNTS", options=options)
        # It had caught up.
        assert [(await anext(events)).event for _ in range(2)] == ["heartbeat"] * 2
        change(serving, *(f"/{n}" for n in range(50)))
        await take(events, 50)
        assert (await anext(events)).event == "heartbeat"
        change(serving, *(f"/{n}" for n in range(101)))
        return await take_all(events)

    [event] = asyncio.run(story())
    assert (event.event, event.data["reason"]) == ("cut", "too slow: 101 changes behind")


def test_catching_up_is_not_being_slow(serving: Serving) -> None:
    change(serving, *(f"/{n}" for n in range(3_000)))

    async def story() -> list[FeedEvent]:
        return await all_changes(serving, 3_000, start="beginning", options=FeedOptions(max_behind=10))

    assert len({event.id for event in asyncio.run(story())}) == 3_000


def test_a_slow_client_holds_up_nobody(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        slow, fast = feed(serving.delivery, "COUNTS"), feed(serving.delivery, "COUNTS")
        await anext(slow)
        change(serving, *(f"/{n}" for n in range(2_000)))
        return await take(fast, 2_000)

    assert len(asyncio.run(story())) == 2_000


# Ends


def test_a_dropped_view_ends_its_feeds(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", options=FeedOptions(heartbeat_s=0.05))
        await anext(events)
        serving.serve(PER_MINUTE)
        serving.log.delete_topic("counts")
        return await take_all(events)

    [event] = asyncio.run(story())
    assert (event.event, event.data) == ("cut", {"reason": "`counts` was dropped"})


def test_a_new_version_ends_feeds_of_the_old_if_that_is_gone(serving: Serving) -> None:
    async def story() -> list[FeedEvent]:
        events = feed(serving.delivery, "COUNTS", options=FeedOptions(heartbeat_s=0.05))
        await anext(events)
        serving.serve(COUNTS, version=2)
        return await take_all(events)

    [event] = asyncio.run(story())
    assert (event.event, event.data) == (
        "cut",
        {"reason": "`counts` has a new version, 2, and the one before is gone: begin again"},
    )


def test_stopping_ends_all_feeds_at_once(serving: Serving) -> None:
    async def story() -> list[list[FeedEvent]]:
        feeds = [feed(serving.delivery, "COUNTS") for _ in range(3)]
        waiting = [asyncio.create_task(take_all(events)) for events in feeds]
        await asyncio.to_thread(wait_for, lambda: waiters(serving) == 3, PATIENCE, "all to wait")
        await asyncio.to_thread(serving.delivery.close)
        return list(await asyncio.gather(*waiting))

    for [event] in asyncio.run(story()):
        assert (event.event, event.data) == ("cut", {"reason": "the server is stopping"})


def waiters(serving: Serving) -> int:
    return sum(map(len, serving.delivery.tails._waiting.values()))


# Many


def test_two_hundred_feeds(serving: Serving) -> None:
    """All get all, in order; what they read is read and decoded once, not two hundred times."""
    clients, batches = 200, 20
    reads = [0]
    log_read = serving.log.read

    def counting(*arguments: Any, **options: Any) -> Any:
        if arguments[0] == "counts" and threading.current_thread().name.startswith("asyncio"):
            reads[0] += 1
        return log_read(*arguments, **options)

    serving.log.read = counting  # type: ignore[method-assign]

    async def client() -> list[FeedEvent]:
        return await take_until(feed(serving.delivery, "COUNTS"), lambda event: event.data["value"]["views"] == batches)

    async def story() -> list[list[FeedEvent]]:
        tasks = [asyncio.create_task(client()) for _ in range(clients)]
        await asyncio.to_thread(wait_for, lambda: waiters(serving) == clients, PATIENCE, "all to wait")
        for number in range(1, batches + 1):
            await asyncio.to_thread(change, serving, "/a", views=number)
        return list(await asyncio.gather(*tasks))

    everything = asyncio.run(story())
    assert all(events == everything[0] for events in everything)
    assert shown(everything[0]) == [("/a", number) for number in range(1, batches + 1)]
    assert reads[0] <= batches * 3
    assert waiters(serving) == 0


def test_a_client_that_goes_away_leaves_nothing_behind(serving: Serving) -> None:
    async def story() -> None:
        events = feed(serving.delivery, "COUNTS")
        task = asyncio.create_task(take(events, 1))
        await asyncio.to_thread(wait_for, lambda: waiters(serving) == 1, PATIENCE, "it to wait")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiters(serving) == 0

    asyncio.run(story())
