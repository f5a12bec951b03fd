"""Streams and tables declared over the topic of a view: they read the version of it that serves, before and after a
deployment and a rollback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.coordinate.deployments import Deployments, Options
from headrace.coordinate.events import SourceCreated
from headrace.coordinate.planning import plan_definition
from headrace.coordinate.statements import StatementExecutor
from headrace.coordinate.subjects import source_subject
from headrace.errors import Conflict
from headrace.server.topology import overview
from headrace.views.versions import Deployment
from tests.coordinate.by_hand import SAME, SQL, by_hand
from tests.coordinate.deploying import CHAIN, deploy, deployed, reads
from tests.support import wait_for

EVENTS = "CREATE STREAM user_events (userid VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='BY_USER');"
HOT = "CREATE TABLE hot AS SELECT userid, COUNT(*) AS seen FROM user_events GROUP BY userid;"
ALL = CHAIN + EVENTS + HOT
CHANGED = ALL.replace("FROM clicks GROUP", "FROM clicks WHERE page <> '' GROUP")
NAMES = ("BY_USER", "USER_EVENTS", "HOT", "TOP")


def topics(executor: StatementExecutor) -> dict[str, str]:
    return {source.name: source.topic for source in executor.catalog.sources() if source.name in NAMES}


def verdicts(deployments: Deployments, sql: str) -> dict[str, tuple[str, int]]:
    plan = deployments.plan({"pipelines/all.sql": sql}, Options())
    return {change.name: (change.verdict, change.number) for change in plan.pending}


def test_what_is_declared_over_a_views_topic_changes_with_the_view(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    deployed(deployments, ALL)
    assert not deployments.plan({"pipelines/all.sql": ALL}, Options()).pending
    plan = deployments.plan({"pipelines/all.sql": CHANGED}, Options())
    assert verdicts(deployments, CHANGED) == dict.fromkeys(NAMES, ("rebuilds", 2))
    [by_user] = [change for change in plan.pending if change.name == "BY_USER"]
    assert set(by_user.dependents) == {"USER_EVENTS", "HOT", "TOP"}
    [events] = [change for change in plan.pending if change.name == "USER_EVENTS"]
    assert events.reason == "it reads the topic of `by_user`, which is rebuilt"

    built = deploy(deployments, CHANGED)
    queries = {query.sink: dict(query.reads) for query in deployments.building(built)}
    assert queries["HOT"] == {"USER_EVENTS": "BY_USER.v2"}
    assert topics(executor)["USER_EVENTS"] == "BY_USER", "until the switch"
    deployments.switch(built)
    assert topics(executor)["USER_EVENTS"] == topics(executor)["BY_USER"] == "BY_USER.v2"
    assert reads(executor, "HOT") == ["BY_USER.v2"]
    [query] = [one for one in executor.catalog.queries() if one.sink_topic == "HOT.v2"]
    [read] = plan_definition(query, executor.catalog).inputs
    assert (read.name, read.topic) == ("USER_EVENTS", "BY_USER.v2"), "check and why compute it from here"
    assert not deployments.plan({"pipelines/all.sql": CHANGED}, Options()).pending

    deployments.rollback("HOT")
    assert topics(executor) == {name: f"{name}.v1" for name in NAMES} | {"USER_EVENTS": "BY_USER.v1"}
    assert verdicts(deployments, CHANGED) == dict.fromkeys(NAMES, ("serves again", 2))
    deployed(deployments, CHANGED)
    assert topics(executor)["USER_EVENTS"] == "BY_USER.v2"
    assert [version.number for version in executor.catalog.versions("USER_EVENTS")] == [1, 2]


def test_a_declaration_names_the_topic_of_the_version_that_serves(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    deployed(deployments, CHAIN.replace("FROM clicks", "FROM clicks WHERE page <> ''"))
    executor.execute(EVENTS + EVENTS.replace("STREAM user_events", "TABLE users").replace("KEY", "PRIMARY KEY") + HOT)
    assert [executor.catalog.source(name).topic for name in ("USER_EVENTS", "USERS")] == ["BY_USER.v2"] * 2  # type: ignore[union-attr]
    assert reads(executor, "HOT") == ["BY_USER.v2"]
    executor.execute(EVENTS.replace("CREATE", "CREATE OR REPLACE").replace("n BIGINT", "N BIGINT"))
    assert executor.catalog.source("USER_EVENTS").topic == "BY_USER.v2"  # type: ignore[union-attr]
    with pytest.raises(Conflict, match=r"`BY_USER\.v2` is internal: it is version 2 of `by_user`") as refused:
        executor.execute(EVENTS.replace("user_events", "more").replace("'BY_USER'", "'BY_USER.v2'"))
    assert refused.value.hint == "read the version that serves:  KAFKA_TOPIC='BY_USER'"
    waiting = deploy(deployments, CHANGED.replace("page <> ''", "page <> '/'"))
    with pytest.raises(Conflict, match=f"deployment {waiting.id} is changing `by_user`"):
        executor.execute(EVENTS.replace("user_events", "more"))


def test_what_was_left_on_an_old_version_is_brought_along(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    """As a project has it that was deployed before declarations followed their view."""
    deployed(deployments, CHAIN.replace("FROM clicks", "FROM clicks WHERE page <> ''"))
    executor.execute(EVENTS + HOT)
    source = executor.catalog.source("USER_EVENTS")
    assert source is not None
    executor.catalog.append([SourceCreated(replace(source, topic="BY_USER.v1"))])
    with pytest.raises(Conflict, match="version 1 of `by_user` is what `user_events` reads"):
        deployments.forget("BY_USER")
    due = executor.catalog.beside()
    deployments.drop_versions(due)
    assert 1 in executor.catalog.state.versions["BY_USER"], "as after `keep_hours`: it is read"
    assert verdicts(deployments, CHANGED) == {"USER_EVENTS": ("rebuilds", 2), "HOT": ("rebuilds", 2)}
    deployed(deployments, CHANGED)
    assert reads(executor, "HOT") == ["BY_USER.v2"]


def test_what_no_longer_fits_the_view_is_said_before_anything_is_built(deployments: Deployments) -> None:
    deployed(deployments, ALL)
    renamed = CHANGED.replace("COUNT(*) AS n FROM clicks", "COUNT(*) AS m FROM clicks").replace(
        "SELECT userid, n FROM by_user WHERE n", "SELECT userid, m FROM by_user WHERE m"
    )
    plan = deployments.plan({"pipelines/all.sql": renamed}, Options())
    refused = {change.name: change.reason for change in plan.refused}
    assert refused["USER_EVENTS"] == "`by_user`, whose topic it reads, no longer has a column N BIGINT"
    assert refused["HOT"] == "it reads `user_events`, which cannot be changed"


def test_what_is_new_over_a_view_that_is_rebuilt_serves_with_it(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    built = deploy(deployments, CHANGED)
    assert executor.catalog.source("USER_EVENTS") is None
    deployments.switch(built)
    assert topics(executor)["USER_EVENTS"] == "BY_USER.v2"
    deployments.rollback("BY_USER")
    assert executor.catalog.source("USER_EVENTS") is None
    assert executor.catalog.source("BY_USER").topic == "BY_USER.v1"  # type: ignore[union-attr]


def test_a_view_is_read_by_what_is_declared_over_it(deployments: Deployments, executor: StatementExecutor) -> None:
    deployed(deployments, ALL)
    [hot] = [query.id for query in executor.catalog.queries() if query.sink == "HOT"]
    text = executor.execute("DESCRIBE by_user;")[0].text or ""
    assert f"{hot} (through user_events)" in text
    assert hot in [query.id for query in executor.catalog.readers("BY_USER")]
    with pytest.raises(Conflict, match=f"read by .*{hot}"):
        executor.execute("DROP TABLE top; DROP TABLE by_user;")
    subject = source_subject(executor.catalog, "USER_EVENTS", "BY_USER")
    assert subject is not None
    assert subject.source.name == "BY_USER", "why goes down to what the view is made of"


def test_kept_versions_over_a_topic_go_with_it(deployments: Deployments, executor: StatementExecutor) -> None:
    deployed(deployments, ALL)
    deployed(deployments, CHANGED)
    deployments.forget("TOP")
    deployments.forget("HOT")
    deployments.forget("BY_USER")
    assert [version.number for version in executor.catalog.versions("USER_EVENTS")] == [2]
    assert [version.number for version in executor.catalog.versions("BY_USER")] == [2]


COUNTED = """
CREATE STREAM page_events (page VARCHAR KEY, n BIGINT) WITH (KAFKA_TOPIC='BY_PAGE');
CREATE TABLE by_page_events AS SELECT page, COUNT(*) AS n FROM page_events GROUP BY page;
"""


def test_what_is_computed_from_a_views_topic_is_compared_and_drawn(tmp_path: Path) -> None:
    with by_hand(tmp_path, SQL + COUNTED) as engine:
        engine.click(3)
        started = engine.deploy(SAME + COUNTED)
        waiting: Deployment = engine.reaches(started, "waiting")
        assert {item.name for item in waiting.items} == {"BY_PAGE", "PAGE_EVENTS", "BY_PAGE_EVENTS"}
        assert {one["view"] for one in waiting.comparisons} == {"by_page", "by_page_events"}, waiting.detail
        engine.services.deployments.approve(started.id)
        engine.reaches(started, "switched")
        wait_for(lambda: engine.shown() == 3, 30.0, "the new version to be shown")
        drawn = overview(engine.services)
        [query] = [one for one in engine.services.catalog.queries() if one.sink_topic == "BY_PAGE_EVENTS.v2"]
        edges = {(edge.from_, edge.to) for edge in drawn.edges}
        assert ("view:by_page", f"query:{query.id}") in edges
