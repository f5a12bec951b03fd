"""Deployments and what else changes the catalog meanwhile: versions are never mixed, and nothing is half remembered."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.deciding import decide
from headrace.coordinate.deployments import Deployments, Options
from headrace.coordinate.events import QueryCreated
from headrace.coordinate.statements import StatementExecutor
from headrace.errors import Conflict, UsageError
from headrace.log.base import Append, BatchIdentity, TopicSpec
from headrace.log.local.open import LocalLog
from headrace.types import BIGINT, Column
from headrace.views.difference import Comparison
from headrace.views.versions import Deployment
from tests.coordinate.deploying import CHAIN, CLICKS, COUNTED, HOME, deploy, deployed, reads

SIGNS = """
from headrace import function


@function
def marked_by(text: str) -> str:
    return '+' + text
"""


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
    assert (reads(executor, "BY_USER"), reads(executor, "TOP")) == (["clicks"], ["BY_USER.v1"])


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
    assert failed.detail == (
        "INSERTQUERY_9 reads the version of `by_user` that this would replace; throw away what it built:  "
        f"headrace deploy cancel {running.id}"
    )
    assert {query.wanted for query in deployments.building(failed)} == {"stopped"}, "retention waits for nobody"


def test_a_version_that_was_rolled_back_meanwhile_keeps_a_deployment_from_switching(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    both = CHAIN.replace("FROM clicks", "FROM clicks WHERE page <> ''")
    first = deployed(deployments, both)
    second = deploy(deployments, both.replace("n > 1", "n > 2"))
    executor.catalog.append(deployments._switched(first, first.switches_back(), "rolled back"))
    failed = deployments.switch(second)
    assert (failed.stage, executor.catalog.state.serving["TOP"]) == ("failed", 1)
    assert failed.detail.startswith("`top` was built from a version of `by_user` that does not serve any more; ")


def test_a_statement_that_asks_for_layers_of_a_topic_that_is_read_twice_is_refused(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    executor.execute("CREATE TABLE people (userid VARCHAR PRIMARY KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks');")
    joined = "CREATE TABLE twice AS SELECT p.page AS page, COUNT(*) AS n FROM clicks c JOIN people p "
    joined += "ON c.userid = p.userid GROUP BY p.page"
    with pytest.raises(UsageError, match="topic `clicks` twice, as the stream `clicks` and the table `people`"):
        executor.execute(f"{joined} REFRESH EVERY 1 HOUR;")
    executor.execute(f"{joined};")


def test_a_plan_refuses_what_would_write_among_the_records_of_another_query(
    deployments: Deployments, log: LocalLog
) -> None:
    log.create_topic(TopicSpec("COUNTED", value=(Column("N", BIGINT),), role="derived"))
    log.append([Append("COUNTED", pa.record_batch({"N": [1]}))]).result()
    [refused] = deployments.plan({"pipelines/all.sql": CHAIN + COUNTED}).refused
    assert refused.reason == "topic `COUNTED` holds records of an earlier query"
    assert refused.hint == "name another:  WITH (KAFKA_TOPIC='…')      or give them up:  headrace topic delete COUNTED"


def test_a_plan_refuses_a_name_that_no_topic_can_have(deployments: Deployments) -> None:
    odd = COUNTED.replace("TABLE counted", "TABLE `by page, 100%`")
    [refused] = deployments.plan({"pipelines/all.sql": CHAIN + odd}).refused
    assert (refused.reason, refused.hint) == (
        "`by page, 100%` is not a topic name",
        "name one:  WITH (KAFKA_TOPIC='…')",
    )
    named = odd.replace(" AS SELECT", " WITH (KAFKA_TOPIC='by_page') AS SELECT")
    assert not deployments.plan({"pipelines/all.sql": CHAIN + named}).refused


def test_what_is_new_and_reads_what_is_there_says_that_it_fills(deployments: Deployments, log: LocalLog) -> None:
    assert deployed(deployments, CHAIN + HOME).detail == "nothing had to be computed again"
    log.append([Append("clicks", pa.record_batch({"USERID": ["a"], "PAGE": ["/"]}))]).result()
    made = deployed(deployments, CHAIN + HOME + COUNTED)
    assert made.detail == "`counted` can be read at once, and fills from the beginning"


def test_only_what_was_switched_can_be_rolled_back(deployments: Deployments) -> None:
    running = deploy(deployments, CHAIN.replace("n > 1", "n > 2"))
    deployments.cancel(running.id)
    with pytest.raises(Conflict, match="is cancelled") as cancelled:
        deployments.cancel(running.id)
    assert cancelled.value.hint is None
    switched = deployed(deployments, CHAIN.replace("n > 1", "n > 3"))
    with pytest.raises(Conflict, match="is switched") as refused:
        deployments.cancel(switched.id)
    assert refused.value.hint == "roll back:  headrace view rollback VIEW"


def test_one_that_waits_and_was_paused_goes_on_when_it_is_approved(deployments: Deployments) -> None:
    running = deploy(deployments, CHAIN.replace("n > 1", "n > 2"))
    deployments.update(running.id, stage="waiting")
    deployments.pause(running.id, True)
    approved = deployments.approve(running.id)
    assert (approved.stage, approved.paused) == ("switching", False)
    assert {query.wanted for query in deployments.queries(approved)} == {"running"}


def test_one_that_is_paused_just_as_it_would_be_switched_is_not(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    seen = deployments.update(deploy(deployments, CHAIN.replace("n > 1", "n > 2")).id, stage="switching")
    deployments.pause(seen.id, True)
    assert deployments.switch(seen).stage == "switching"
    assert executor.catalog.state.serving["TOP"] == 1, "what would serve is stopped"
    resumed = deployments.pause(seen.id, False)
    assert deployments.switch(resumed).stage == "switched"
    assert {query.wanted for query in executor.catalog.queries()} == {"running"}


def test_one_that_is_approved_just_as_its_comparison_ends_does_not_wait(deployments: Deployments) -> None:
    started = deployments.start({"pipelines/all.sql": CHAIN.replace("n > 1", "n > 2")}, Options())
    assert started is not None
    seen = deployments.update(started.id, stage="comparing")
    differs = Comparison("top", 1, 2, 9, same=1, changed=1)
    deployments.approve(started.id)
    deployments.conclude(seen, lambda now: dict(zip(("stage", "detail"), decide(now, [differs]), strict=True)))
    assert deployments.get(started.id).stage == "switching"


def test_a_bound_leaves_the_pace_alone(deployments: Deployments, executor: StatementExecutor) -> None:
    running = deploy(deployments, CHAIN.replace("COUNT(*)", "COUNT(*) + 1"))
    [first] = deployments.first_queries(running)
    deployments.throttle(running.id, 700)
    for until in (9, 9, None):
        deployments.bound({first.id: until, "GONE_9": until})
        query = executor.catalog.query(first.id)
        assert query is not None
        assert (query.rows_per_second, query.until) == (700, until)


def test_what_serves_has_neither_a_pace_nor_a_bound(deployments: Deployments, executor: StatementExecutor) -> None:
    started = deployments.start(
        {"pipelines/all.sql": CHAIN.replace("COUNT(*)", "COUNT(*) + 1")}, Options(approve=True, rows_per_second=5)
    )
    assert started is not None
    [built] = deployments.first_queries(started)
    deployments.switch(started)

    def how(query: QueryDefinition) -> tuple[object, ...]:
        known = executor.catalog.query(query.id)
        assert known is not None
        return known.rows_per_second, known.until

    assert how(built) == (0, None), "a build is throttled so that what serves is not starved"
    [kept] = [query for query in executor.catalog.queries() if query.sink_topic == "BY_USER.v1"]
    deployments.bound({kept.id: 9})
    assert how(kept) == (0, 9), "whoever compares it holds it up"
    deployments.rollback("BY_USER")
    assert how(kept) == (0, None)


# All or nothing


def test_a_deployment_that_breaks_off_has_changed_nothing(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    before = executor.catalog.state
    pages = "CREATE TABLE pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;"
    shared = (
        "CREATE TABLE users WITH (KAFKA_TOPIC='BY_USER') AS SELECT userid, COUNT(*) AS n FROM clicks GROUP BY userid;"
    )
    files = {"pipelines/all.sql": CHAIN + pages + shared, "functions/signs.py": SIGNS}
    with pytest.raises(Conflict, match="topic `BY_USER` belongs to `by_user`"):
        deployments.start(files, Options())
    assert executor.catalog.state == before
    started = deployments.start(files | {"pipelines/all.sql": CHAIN + pages}, Options())
    assert started is not None
    assert [(item.name, item.verdict) for item in started.items] == [("PAGES", "creates")]


def test_what_is_done_at_once_and_what_is_begun_are_one_append(
    deployments: Deployments, executor: StatementExecutor, log: LocalLog
) -> None:
    pages = "CREATE TABLE pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;"
    top_pages = "CREATE TABLE top_pages AS SELECT page, n FROM pages WHERE n > 1;"
    told: list[int] = []
    executor.catalog.on_change(lambda: told.append(executor.catalog.state.events))
    running = deployments.start(
        {"pipelines/all.sql": CHAIN.replace("n > 1", "n > 2") + pages + top_pages, "functions/signs.py": SIGNS},
        Options(),
    )
    assert running is not None
    assert (running.stage, len(told)) == ("building", 1)
    assert reads(executor, "TOP_PAGES") == ["PAGES"]
    assert Catalog(log).state == executor.catalog.state


# Restoring


def test_functions_are_restored_with_what_calls_them(deployments: Deployments, executor: StatementExecutor) -> None:
    marked = CHAIN + "CREATE STREAM marked AS SELECT userid, marked_by(page) AS page FROM clicks;"

    def start(functions: str) -> Deployment:
        found = deployments.start({"pipelines/all.sql": marked, "functions/signs.py": functions}, Options(approve=True))
        assert found is not None
        return found if found.over else deployments.switch(found)

    first, second = start(SIGNS), start(SIGNS.replace("'+'", "'-'"))
    assert [item.name for item in second.items] == ["MARKED"]
    for number, before, sign in ((second.id, True, "'+'"), (second.id, False, "'-'"), (first.id, False, "'+'")):
        again = deployments.restore(number, before, Options(approve=True))
        assert again is not None
        deployments.switch(again)
        assert sign in executor.catalog.state.function_files["functions/signs.py"].text
        source = executor.catalog.source("MARKED")
        query = executor.catalog.query((source and source.query) or "")
        assert query is not None
        assert sign in query.functions[0].text
        assert deployments.restore(number, before, Options(approve=True)) is None


def test_a_strategy_and_a_start_are_restored(
    deployments: Deployments, executor: StatementExecutor, log: LocalLog
) -> None:
    building = deploy(deployments, CLICKS + COUNTED, "lambda")
    [batch] = deployments.queries(building)
    log.commit("batch", [], BatchIdentity(batch.id, 1, "batch", 0, '{"arrival": 0}'))
    deployments.begin_speed(building)
    layered = deployments.switch(building)
    assert layered.strategy == "lambda"
    late = CLICKS + COUNTED.replace("COUNT(*)", "COUNT(*) + 1")
    started = deployments.start({"pipelines/all.sql": late}, Options(approve=True, start="now"))
    assert started is not None
    other = deployments.switch(started)
    back = deployments.restore(other.id, True, Options(approve=True))
    assert back is not None
    # The layers are kept, so they serve again.
    assert [(item.verdict, item.number) for item in back.items] == [("serves again", 1)]
    assert [version.layers is not None for version in executor.catalog.versions("COUNTED")] == [True, False]
    assert back.start == "beginning"
    deployments.cancel(back.id)
    deployments.rollback("COUNTED")
    again = deployments.restore(other.id, False, Options(approve=True))
    assert again is not None
    assert (again.start, again.strategy) == ("now", "kappa")
    deployments.cancel(again.id)
    assert deployments.restore(layered.id, False, Options(approve=True)) is None


def test_a_refused_rollback_names_a_way_back_that_works(deployments: Deployments, executor: StatementExecutor) -> None:
    """A table that was made later reads the version that would go: what was before it is built again instead."""
    second = deployed(deployments, CHAIN.replace("COUNT(*)", "COUNT(*) * 2"))
    executor.execute("CREATE TABLE later AS SELECT userid, n FROM by_user WHERE n > 5;")
    with pytest.raises(Conflict, match=r"`later` reads what deployment \d made") as refused:
        deployments.rollback("BY_USER")
    assert refused.value.hint == (
        f"build what was before it again, and switch:  headrace deploy restore {second.id} --before"
    )
    restored = deployments.restore(second.id, True, Options(approve=True))
    assert restored is not None
    assert {item.name for item in restored.items} >= {"BY_USER", "TOP", "LATER"}
