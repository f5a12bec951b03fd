"""Deployments and what else changes the catalog meanwhile: versions are never mixed, and nothing is half remembered."""

from __future__ import annotations

import pytest

from headrace.clock import ManualClock
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.deployments import Deployments, Options
from headrace.coordinate.events import QueryCreated
from headrace.coordinate.statements import StatementExecutor
from headrace.errors import Conflict
from headrace.log.local.open import LocalLog
from headrace.views.versions import Deployment, Strategy

CLICKS = "CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks');"
BY_USER = "CREATE TABLE by_user AS SELECT userid, COUNT(*) AS n FROM clicks GROUP BY userid;"
TOP = "CREATE TABLE top AS SELECT userid, n FROM by_user WHERE n > 1;"
CHAIN = CLICKS + BY_USER + TOP
HOME = "CREATE STREAM home AS SELECT userid, page FROM clicks WHERE page = '/home';"


@pytest.fixture
def deployments(executor: StatementExecutor, log: LocalLog, clock: ManualClock) -> Deployments:
    made = Deployments(executor, log, executor.catalog, clock)
    executor.rebuild = made.replace
    made.start({"pipelines/all.sql": CHAIN}, Options())
    return made


def deploy(deployments: Deployments, sql: str, strategy: Strategy = "kappa") -> Deployment:
    started = deployments.start({"pipelines/all.sql": sql}, Options(approve=True, strategy=strategy))
    assert started is not None
    return started


def deployed(deployments: Deployments, sql: str) -> Deployment:
    """As if all had been built and approved."""
    started = deploy(deployments, sql)
    return started if started.over else deployments.switch(started)


def reads(executor: StatementExecutor, name: str) -> list[str]:
    """The topics that what serves under a name is made of."""
    source = executor.catalog.source(name)
    assert source is not None
    query = executor.catalog.query(source.query or "")
    assert query is not None
    return list(query.reads.values())


def test_nothing_is_rolled_back_that_a_running_deployment_builds_on(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    both = CHAIN.replace("FROM clicks", "FROM clicks WHERE page <> ''")
    first = deployed(deployments, both)
    second = deploy(deployments, both.replace("n > 1", "n > 2"))
    with pytest.raises(Conflict, match=f"deployment {second.id} is building, and changes `top`") as refused:
        deployments.rollback("BY_USER")
    assert refused.value.hint == f"wait for it, or end it:  headrace deploy cancel {second.id}"
    deployments.cancel(second.id)
    assert deployments.rollback("BY_USER").id == first.id
    assert (reads(executor, "BY_USER"), reads(executor, "TOP")) == (["clicks"], ["BY_USER"])


def test_nothing_is_rolled_back_that_a_running_deployment_reads(deployments: Deployments) -> None:
    deployed(deployments, CHAIN + HOME)
    deployed(deployments, CHAIN + HOME.replace("'/home'", "'/'"))
    # A Lambda view is built with the switch, though nothing below it changes.
    more = "CREATE TABLE more AS SELECT page, COUNT(*) AS n FROM home GROUP BY page;"
    running = deploy(deployments, CHAIN + HOME.replace("'/home'", "'/'") + more, "lambda")
    with pytest.raises(Conflict, match=f"deployment {running.id} is building, and reads `home`"):
        deployments.rollback("HOME")


def test_what_is_made_over_a_view_that_is_rebuilt_is_refused(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    executor.execute("CREATE STREAM others (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='others');")
    deployed(deployments, CHAIN + HOME)
    changed = (CHAIN + HOME).replace("COUNT(*)", "COUNT(*) + 1").replace("'/home'", "'/'")
    more = "CREATE TABLE more AS SELECT n, COUNT(*) AS users FROM by_user GROUP BY n;"
    running = deploy(deployments, changed)
    for statement, name in (
        (more, "by_user"),
        ("INSERT INTO others SELECT userid, page FROM home;", "home"),
        ("INSERT INTO home SELECT userid, page FROM others;", "home"),
    ):
        with pytest.raises(Conflict, match=f"deployment {running.id} is changing `{name}`") as refused:
            executor.execute(statement)
        assert refused.value.hint == f"wait for it, or end it:  headrace deploy cancel {running.id}"
    executor.execute("CREATE TABLE pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;")
    deployments.switch(running)
    executor.execute(more)
    assert reads(executor, "MORE") == ["BY_USER.v2"]


def test_a_name_that_a_deployment_is_making_is_not_made_beside_it(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    more = "CREATE TABLE more AS SELECT n, COUNT(*) AS users FROM by_user GROUP BY n;"
    running = deploy(deployments, (CHAIN + more).replace("COUNT(*) AS n", "COUNT(*) + 1 AS n"))
    for statement in (more.replace("by_user", "top"), "CREATE STREAM more (a INT) WITH (KAFKA_TOPIC='more_too');"):
        with pytest.raises(Conflict, match=f"deployment {running.id} is changing `more`"):
            executor.execute(statement)


def test_a_reader_that_came_in_between_keeps_a_deployment_from_switching(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    """However it got there: of two versions one must not be read for good by what serves."""
    running = deploy(deployments, CHAIN.replace("COUNT(*)", "COUNT(*) + 1"))
    late = QueryDefinition("INSERTQUERY_9", 1, "INSERT INTO clicks SELECT …", "CLICKS", ("BY_USER",))
    executor.catalog.append([QueryCreated(late)])
    failed = deployments.switch(running)
    assert (failed.stage, executor.catalog.state.serving["BY_USER"]) == ("failed", 1)
    assert failed.detail == "INSERTQUERY_9 reads the version of `by_user` that this would replace"


def test_a_version_that_was_rolled_back_meanwhile_keeps_a_deployment_from_switching(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    both = CHAIN.replace("FROM clicks", "FROM clicks WHERE page <> ''")
    first = deployed(deployments, both)
    second = deploy(deployments, both.replace("n > 1", "n > 2"))
    executor.catalog.append(deployments._switched(first, first.switches_back(), "rolled back"))
    failed = deployments.switch(second)
    assert (failed.stage, executor.catalog.state.serving["TOP"]) == ("failed", 1)
    assert failed.detail == "`top` was built from a version of `by_user` that does not serve any more"


def test_a_bound_leaves_the_pace_alone(deployments: Deployments, executor: StatementExecutor) -> None:
    running = deploy(deployments, CHAIN.replace("COUNT(*)", "COUNT(*) + 1"))
    [first] = deployments.first_queries(running)
    deployments.throttle(running.id, 700)
    for until in (9, 9, None):
        deployments.bound({first.id: until, "GONE_9": until})
        query = executor.catalog.query(first.id)
        assert query is not None
        assert (query.rows_per_second, query.until) == (700, until)
