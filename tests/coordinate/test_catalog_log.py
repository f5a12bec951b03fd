"""The catalog on a real log: written by one process, followed by others, there again after a restart."""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.clock import ManualClock, SystemClock
from headrace.config import LogSettings
from headrace.coordinate.base import CATALOG_TOPIC, QueryDefinition, ViewDefinition
from headrace.coordinate.catalog import DEAD_LETTERS, EVENT_COLUMN, Catalog, create_internal_topics, fold
from headrace.coordinate.events import (
    DeploymentSaved,
    QueryCreated,
    QueryWanted,
    SourceCreated,
    SourceDropped,
    VersionCreated,
    VersionDropped,
    VersionsSwitched,
    ViewCreated,
)
from headrace.coordinate.taking_over import served_at
from headrace.errors import LogError
from headrace.log.base import Append
from headrace.log.local.open import LocalClient, LocalLog
from headrace.sql.source import Source
from headrace.types import VARCHAR, Column
from headrace.views.versions import Deployment, Item, Version
from tests.support import wait_for

CLICKS = Source("CLICKS", "stream", "clicks", (), (Column("PAGE", VARCHAR),), statement="CREATE STREAM …")
BY_PAGE = Source("BY_PAGE", "table", "BY_PAGE", (Column("PAGE", VARCHAR),), (), query="CTAS_BY_PAGE_1")
QUERY = QueryDefinition("CTAS_BY_PAGE_1", 1, "CREATE TABLE …", "BY_PAGE", ("CLICKS",))
VIEW = ViewDefinition("BY_PAGE", 1, QUERY.id, "BY_PAGE")


def test_it_is_empty_before_anything_was_written(log: LocalLog) -> None:
    catalog = Catalog(log)
    assert catalog.sources() == [DEAD_LETTERS]
    assert not catalog.refresh()


def test_others_follow_and_are_told(log: LocalLog) -> None:
    create_internal_topics(log)
    catalog = Catalog(log)
    client = LocalClient(log.folder)
    follower = Catalog(client)
    seen: list[list[str]] = []
    follower.on_change(lambda: seen.append([source.name for source in follower.sources()]))

    catalog.append([SourceCreated(CLICKS), SourceCreated(BY_PAGE), QueryCreated(QUERY), ViewCreated(VIEW)])
    catalog.append([QueryWanted(QUERY.id, "stopped")])
    assert follower.refresh()
    assert not follower.refresh()
    assert seen == [["BY_PAGE", "CLICKS", "DEAD_LETTERS"]]
    assert follower.state == catalog.state
    stopped = follower.query(QUERY.id)
    assert stopped is not None
    assert stopped.wanted == "stopped"
    assert follower.view("BY_PAGE") == VIEW
    assert [query.id for query in follower.readers("CLICKS")] == [QUERY.id]
    assert follower.over_topic("clicks") == [CLICKS]
    client.close()


def test_which_version_served_when(log: LocalLog, clock: ManualClock) -> None:
    create_internal_topics(log)
    catalog = Catalog(log)
    others = [replace(BY_PAGE, topic=f"BY_PAGE.v{number}", query=f"CTAS_BY_PAGE_{number}") for number in range(2, 5)]
    built = [VersionCreated(Version("BY_PAGE", number, made, "building")) for number, made in enumerate(others, 2)]
    catalog.append([SourceCreated(BY_PAGE), *built])
    assert catalog.history("BY_PAGE") == ()

    def switch(number: int) -> int:
        # A clock that was set back has no part in it.
        clock.advance(-60_000)
        arrival = log.snapshot().arrival
        catalog.append([VersionsSwitched({"BY_PAGE": number}, clock.now_ms(), 1)])
        return arrival

    moments = [switch(number) for number in (2, 1, 2, 1)]
    told = ((0, 1), *zip(moments, (2, 1, 2, 1), strict=True))
    assert catalog.history("BY_PAGE") == Catalog(log).history("BY_PAGE") == told
    assert [served_at(told, moment - 1) for moment in moments] == [1, 2, 1, 2]

    gone, third = switch(0), switch(3)
    catalog.append([VersionDropped("BY_PAGE", 1), VersionDropped("BY_PAGE", 2)])
    fourth = switch(4)
    # Of those that are not kept only that they were there.
    assert catalog.history("BY_PAGE") == ((0, 1), (third, 3), (fourth, 4))
    assert gone < third
    catalog.append([SourceDropped("BY_PAGE"), SourceCreated(BY_PAGE)])
    assert catalog.history("BY_PAGE") == ()


def test_what_a_deployment_makes_first_has_always_served(log: LocalLog, clock: ManualClock) -> None:
    create_internal_topics(log)
    catalog = Catalog(log)
    catalog.append([VersionCreated(Version("BY_PAGE", 1, BY_PAGE, "building"))])
    catalog.append([VersionsSwitched({"BY_PAGE": 1}, clock.now_ms(), 1)])
    assert catalog.history("BY_PAGE") == ()


def test_it_survives_a_restart(tmp_path: Path) -> None:
    def opened() -> LocalLog:
        return LocalLog(tmp_path / "log", LogSettings(min_free_bytes=1), SystemClock())

    log = opened()
    create_internal_topics(log)
    before = Catalog(log)
    for _ in range(3):
        before.append([SourceCreated(CLICKS), SourceCreated(BY_PAGE)])
        before.append([SourceDropped("BY_PAGE")])
    log.close()
    log = opened()
    create_internal_topics(log)
    assert Catalog(log).state == before.state
    log.close()


def test_events_of_a_newer_headrace_stop_it(log: LocalLog) -> None:
    create_internal_topics(log)
    batch = pa.record_batch({EVENT_COLUMN: ['{"v": 1, "type": "galaxy_joined"}']})
    log.append([Append(CATALOG_TOPIC, batch)]).result()
    with pytest.raises(LogError, match="galaxy_joined"):
        Catalog(log)


def test_transient_queries_are_not_listed(log: LocalLog) -> None:
    create_internal_topics(log)
    catalog = Catalog(log)
    query = QueryDefinition("TRANSIENT_CLICKS_7", 1, "SELECT …", "TRANSIENT_CLICKS_7", ("CLICKS",), transient=True)
    sink = Source("TRANSIENT_CLICKS_7", "stream", "_transient.x", (), (), query=query.id)
    catalog.append([SourceCreated(sink), QueryCreated(query)])
    assert catalog.sources() == [DEAD_LETTERS]
    assert catalog.source(sink.name) == sink
    assert catalog.state.last_query_number == 7


def test_who_read_the_state_first_does_not_act_on_it_last(log: LocalLog) -> None:
    create_internal_topics(log)
    catalog = Catalog(log)
    seen: list[set[str]] = []
    reading = threading.Event()

    def listen() -> None:
        state = {source.name for source in catalog.sources()}
        if not reading.is_set():
            reading.set()
            # As long as whoever changes more would need to be done with it.
            with contextlib.suppress(TimeoutError):
                wait_for(lambda: len(seen) > 0, 0.5, "the other one")
        seen.append(state)

    catalog.on_change(listen)
    first = threading.Thread(target=catalog.append, args=([SourceCreated(CLICKS)],))
    first.start()
    assert reading.wait(60)
    catalog.append([SourceCreated(BY_PAGE)])
    # Whoever has changed something finds it known.
    assert "BY_PAGE" in seen[-1]
    first.join()
    assert "BY_PAGE" in seen[-1]


def test_deployments_are_listed_while_a_refresh_takes_the_place_of_the_one_before(log: LocalLog) -> None:
    create_internal_topics(log)
    catalog, over = Catalog(log), threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not over.is_set():
                numbers = [one.id for one in catalog.deployments()]
                assert numbers == sorted(numbers)
        except BaseException as error:
            failures.append(error)

    reading = threading.Thread(target=read)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reading.start()
    try:
        for number in range(1, 2001):
            item = Item("BY_PAGE", "rebuilds", number + 1, number, origin=1)
            # Only what is in memory: two thousand events are soon folded, and long written.
            catalog._state = fold(catalog._state, DeploymentSaved(Deployment(number, [item], 0, stage="switched")))
    finally:
        over.set()
        reading.join()
        sys.setswitchinterval(interval)
    assert failures == []


def test_a_catalog_that_keeps_still(log: LocalLog) -> None:
    create_internal_topics(log)
    catalog = Catalog(log)
    catalog.append([SourceCreated(CLICKS)])
    still = catalog.still()
    catalog.append([SourceDropped("CLICKS")])
    assert (still.source("CLICKS"), catalog.source("CLICKS")) == (CLICKS, None)
