"""The public topic of a view: one continuous changelog of the version that serves, for whoever reads it by its name."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import SystemClock
from headrace.config import LogSettings, load_project
from headrace.coordinate.move import move_to_kafka, move_to_local
from headrace.coordinate.published import read_published
from headrace.log.base import TIME, TOMBSTONE, Log
from headrace.log.local import LocalLog
from headrace.server.assemble import open_services
from tests.coordinate.by_hand import PATIENCE, SAME, SQL, ByHand, by_hand
from tests.kafka import kafka_settings, open_kafka
from tests.support import wait_for

HOME = "CREATE STREAM home AS SELECT userid, page FROM clicks WHERE page <> 'x';"
HOME_AGAIN = HOME.replace("'x'", "'y'")


@pytest.fixture(params=["local", pytest.param("kafka", marks=pytest.mark.slow)])
def where(request: pytest.FixtureRequest) -> str:
    """Settings of the log that a test's project is on."""
    if request.param == "local":
        return ""
    kafka = kafka_settings(request.getfixturevalue("kafka")).kafka
    return f'[log]\nbackend = "kafka"\n\n[log.kafka]\nbootstrap = "{kafka.bootstrap}"\nprefix = "{kafka.prefix}"\n'


def records(log: Log, topic: str) -> list[tuple[Any, Any]]:
    """Key and value of all records of a topic with one partition; None for a tombstone."""
    found = []
    [ends] = log.snapshot().ends[topic]
    for part in log.read(topic, 0, ends.start, ends.end, ["PAGE", "N", TIME, TOMBSTONE]):
        columns = [part.batch.column(name).to_pylist() for name in ("PAGE", "N", TOMBSTONE)]
        found += [(page, None if gone else n) for page, n, gone in zip(*columns, strict=True)]
    return found


def rows(log: Log, topic: str = "BY_PAGE") -> dict[str, int]:
    """The table that a reader of a changelog has."""
    table: dict[str, int] = {}
    for page, n in records(log, topic):
        table.pop(page, None)
        if n is not None:
            table[page] = n
    return table


def switched(engine: ByHand, sql: str = SAME) -> None:
    started = engine.deploy(sql, approve=True)
    engine.reaches(started, "switched")


def shows(engine: ByHand, wanted: dict[str, int]) -> None:
    wait_for(lambda: rows(engine.services.log) == wanted, PATIENCE, f"the topic to say {wanted}")


def test_readers_of_a_views_topic_get_the_version_that_serves(tmp_path: Path, where: str) -> None:
    with by_hand(tmp_path, log=where) as engine:
        log = engine.services.log
        engine.click(3)
        wait_for(lambda: engine.shown() == 3, PATIENCE, "three clicks")
        topic = log.topic("BY_PAGE")
        first = records(log, "BY_PAGE")
        engine.more["BY_PAGE.v2"] = 100
        switched(engine)
        shows(engine, {"all": 103})
        assert log.topic("BY_PAGE").id == topic.id, "groups, queues and iterators go on where they were"
        assert records(log, "BY_PAGE")[: len(first)] == first
        engine.click(2)
        shows(engine, {"all": 105})
        # The version before goes on, where nobody reads it by accident.
        wait_for(lambda: rows(log, "BY_PAGE.v1") == {"all": 5}, PATIENCE, "the version that is kept")
        engine.services.deployments.rollback("BY_PAGE")
        shows(engine, {"all": 5})
        engine.click()
        shows(engine, {"all": 6})
        wait_for(lambda: engine.shown() == 6, PATIENCE, "the first version's clicks")
        numbers = [n for page, n in records(log, "BY_PAGE") if page == "all"]
        at = numbers.index(103)
        assert numbers[at:] == [*dict.fromkeys(numbers[at:])], "nothing twice"
        assert [n for n in numbers if n is not None and n > 100] == sorted(n for n in numbers if n > 100)


def test_a_group_goes_on_over_a_switch_and_a_rollback(tmp_path: Path, where: str) -> None:
    with by_hand(tmp_path, log=where) as engine, engine.services.log.consumer(["BY_PAGE"], "billing") as consumer:
        seen: list[int] = []

        def sees(number: int) -> bool:
            for part in consumer.poll(0.1):
                seen.extend(part.batch.column("N").to_pylist())
            consumer.commit()
            return bool(seen) and seen[-1] == number

        engine.click(3)
        wait_for(lambda: sees(3), PATIENCE, "the first version")
        engine.more["BY_PAGE.v2"] = 100
        switched(engine)
        wait_for(lambda: sees(103), PATIENCE, "the second version")
        engine.click()
        wait_for(lambda: sees(104), PATIENCE, "its changes")
        engine.services.deployments.rollback("BY_PAGE")
        wait_for(lambda: sees(4), PATIENCE, "the first version again")
        assert len(seen) == len(records(engine.services.log, "BY_PAGE"))


def test_rows_that_are_gone_are_deleted_and_the_rest_is_not_repeated(tmp_path: Path, where: str) -> None:
    with by_hand(tmp_path, rows=3, log=where) as engine:
        log = engine.services.log
        engine.click()
        wait_for(lambda: len(rows(log)) == 4, PATIENCE, "the rows of the first version")
        engine._rows = 2
        switched(engine)
        shows(engine, {"all": 1, "row 0": 0, "row 1": 1})
        assert records(log, "BY_PAGE")[-1] == ("row 2", None)
        assert [page for page, _ in records(log, "BY_PAGE")].count("row 0") == 1


def test_a_server_that_is_killed_at_the_switch_goes_on_with_it(tmp_path: Path, where: str) -> None:
    """Between the fork and the catalog's event, and between the switch and what is published."""
    with by_hand(tmp_path, log=where) as engine:
        services = engine.services
        engine.click(3)
        wait_for(lambda: engine.shown() == 3, PATIENCE, "three clicks")
        [query] = services.catalog.queries()
        services.log.fork_topic("BY_PAGE", "BY_PAGE.v1", [(query.id, query.version)])
        engine.click(1)
        wait_for(lambda: rows(services.log, "BY_PAGE.v1") == {"all": 4}, PATIENCE, "the fork to have it")
    with by_hand(tmp_path, log=where) as engine:
        wait_for(lambda: engine.shown() == 4, PATIENCE, "the view to read its fork")
        shows(engine, {"all": 4})
        engine.more["BY_PAGE.v2"] = 100
        switched(engine)
        engine.click(1)
    with open_services(load_project(tmp_path), SystemClock()) as again:
        wait_for(lambda: rows(again.log)["all"] >= 104, PATIENCE, "what was not published")
        said = [n for page, n in records(again.log, "BY_PAGE") if page == "all"]
        assert len(said) == len(set(said)), "nothing twice"


def test_a_project_whose_second_version_serves_already_is_brought_up_to_date(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server that had no publisher left it."""
    with monkeypatch.context() as patched:
        patched.setattr("headrace.coordinate.deployments.fork_public", lambda *_: [])
        patched.setattr("headrace.coordinate.publishing.Publisher.start", lambda self: None)
        with by_hand(tmp_path, log=where) as engine:
            engine.click(3)
            engine.more["BY_PAGE.v2"] = 100
            switched(engine)
            engine.click(1)
            wait_for(lambda: engine.shown() == 104, PATIENCE, "the second version")
            wait_for(lambda: rows(engine.services.log) == {"all": 4}, PATIENCE, "the first version")
    with open_services(load_project(tmp_path), SystemClock()) as services:
        wait_for(lambda: rows(services.log) == {"all": 104}, PATIENCE, "the topic to follow")
        assert services.catalog.state.versions["BY_PAGE"][1].source.topic == "BY_PAGE.v1"


def test_a_streams_records_go_on_without_gap_or_repeat(tmp_path: Path, where: str) -> None:
    with by_hand(tmp_path, SQL + HOME, log=where) as engine:
        log = engine.services.log

        def users(topic: str) -> list[str]:
            [ends] = log.snapshot().ends[topic]
            parts = log.read(topic, 0, ends.start, ends.end)
            return [user for part in parts for user in part.batch.column("USERID").to_pylist()]

        def count(topic: str) -> int:
            return len(users(topic))

        engine.click(3)
        wait_for(lambda: count("HOME") == 3, PATIENCE, "the first version's records")
        started = engine.deploy(SQL + HOME_AGAIN, approve=True)
        while engine.services.deployments.get(started.id).stage != "switched":
            engine.click()
        for _ in range(20):
            engine.click()
        clicks = count("clicks")
        wait_for(lambda: count("HOME.v2") == clicks, PATIENCE, "the new version to read all")
        wait_for(lambda: count("HOME") == clicks, PATIENCE, f"one record for each of {clicks} clicks")
        engine.click()
        wait_for(lambda: count("HOME") == clicks + 1, PATIENCE, "the new version's records")
        assert users("HOME") == users("clicks"), "each click once, in its order"


def test_a_topic_that_cannot_follow_is_named(tmp_path: Path) -> None:
    with by_hand(tmp_path) as engine:
        engine.click()
        wait_for(lambda: engine.shown() == 1, PATIENCE, "the first version")
        assert engine.services.publisher.problems() == []
        switched(engine, SQL.replace("COUNT(*)", "CAST(COUNT(*) AS DOUBLE)"))
        wait_for(lambda: bool(engine.services.publisher.problems()), PATIENCE, "what is wrong")
        [said] = engine.services.publisher.problems()
        assert said == (
            "topic `BY_PAGE` does not get version 2, which serves: column `n` is BIGINT in topic `BY_PAGE`, and DOUBLE "
            "in version 2"
        )


@pytest.mark.slow
def test_a_copied_log_goes_on_where_its_public_topics_are(tmp_path: Path, where: str, kafka: str) -> None:
    """From either log to the other: what was published before the copy is not published again, for streams twice."""
    with by_hand(tmp_path, SQL + HOME, log=where) as engine, contextlib.ExitStack() as closing:
        source, catalog = engine.services.log, engine.services.catalog

        def left(log: Log) -> int:
            """How many records of the second version are not in the public topic."""
            state = read_published(log, catalog, "HOME", log.topic("HOME"))
            if state is None or state.version != 2:
                return -1
            [ends] = log.snapshot().ends["HOME.v2"]
            return sum(part.batch.num_rows for part in log.read("HOME.v2", 0, state.offsets[0], ends.end))

        engine.click(3)
        started = engine.deploy(SQL + HOME_AGAIN, approve=True)
        engine.reaches(started, "switched")
        engine.click()
        wait_for(lambda: left(source) == 0, PATIENCE, "all to be published")
        if where:
            settings = LogSettings(linger_ms=0, min_free_bytes=1)
            target: Log = LocalLog(tmp_path / "target", settings, SystemClock(), serve=False)
            closing.callback(target.close)
            move_to_local(source, target, tmp_path / "none", lambda *_: None)
        else:
            target = closing.enter_context(open_kafka(kafka))
            move_to_kafka(source, target, tmp_path / "none", lambda *_: None)
        assert left(target) == 0


def test_a_view_that_is_dropped_takes_its_topics_along(tmp_path: Path, where: str) -> None:
    with by_hand(tmp_path, log=where) as engine:
        engine.click()
        switched(engine)
        shows(engine, {"all": 1})
        engine.services.statements.execute("DROP TABLE by_page DELETE TOPIC;")
        left = {topic.name for topic in engine.services.log.topics() if topic.name.startswith("BY_PAGE")}
        assert left == set()
