"""Versions that are kept: rolled back to, serving again, dropped and made anew."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.clock import ManualClock
from headrace.coordinate.deployments import Deployments, Options
from headrace.coordinate.events import QueryWanted
from headrace.coordinate.planning import plan_definition
from headrace.coordinate.statements import StatementExecutor
from headrace.errors import Conflict
from headrace.log.base import Append
from headrace.log.local.open import LocalLog
from tests.coordinate.deploying import CHAIN, CLICKS, COUNTED, HOME, deploy, deployed, reads


def test_what_was_dropped_can_be_made_again_while_it_is_kept(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    with_home = CHAIN + HOME + COUNTED
    deployed(deployments, with_home)
    deployed(deployments, CHAIN)
    assert [version.state for version in executor.catalog.versions("COUNTED")] == ["retired"]
    again = deployed(
        deployments,
        with_home.replace("COUNT(*) AS n FROM clicks GROUP BY page", "MAX(page) AS n FROM clicks GROUP BY page"),
    )
    assert [(item.name, item.verdict, item.number) for item in again.items] == [
        ("HOME", "serves again", 1),
        ("COUNTED", "creates", 2),
    ]
    topics = {source.topic for source in executor.catalog.sources() if source.name in ("HOME", "COUNTED")}
    assert topics == {"HOME", "COUNTED.v2"}
    assert [version.state for version in executor.catalog.versions("COUNTED")] == ["retired", "serving"]


def test_what_was_sent_to_a_stream_outlives_its_declaration(
    deployments: Deployments, executor: StatementExecutor, log: LocalLog
) -> None:
    others = CLICKS.replace("clicks", "others")
    deployed(deployments, CHAIN + others)
    log.append([Append("others", pa.record_batch({"USERID": ["a"], "PAGE": ["/"]}))]).result()
    deployed(deployments, CHAIN)
    deployed(deployments, CHAIN + others)
    assert [version.state for version in executor.catalog.versions("OTHERS")] == ["retired", "serving"]
    # As after `keep_hours`.
    assert [version.number for version in deployments.forget("OTHERS")] == [1]
    assert [version.state for version in executor.catalog.versions("OTHERS")] == ["serving"]
    assert log.stats("others").records == 1
    deployed(deployments, CHAIN)
    deployments.forget("OTHERS")
    assert log.stats("others").records == 1, "as DROP STREAM leaves it, without DELETE TOPIC"


def test_what_is_declared_again_is_read_as_it_is_declared_now(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    others = CLICKS.replace("clicks", "others")
    deployed(deployments, CHAIN + others)
    deployed(deployments, CHAIN)
    slow = "CREATE TABLE slow AS SELECT userid, MAX(ms) AS ms FROM others GROUP BY userid;"
    deployed(deployments, CHAIN + others.replace("page VARCHAR)", "page VARCHAR, ms BIGINT)") + slow)
    assert [version.state for version in executor.catalog.versions("OTHERS")] == ["retired", "serving"]
    [query] = [query for query in executor.catalog.queries() if query.sink == "SLOW"]
    [source] = plan_definition(query, executor.catalog).inputs
    assert [column.name for column in source.value] == ["PAGE", "MS"]


def test_a_version_that_is_kept_serves_again_and_so_does_what_reads_it(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    changed = CHAIN.replace("FROM clicks", "FROM clicks WHERE page <> ''")
    first = deployed(deployments, changed)
    deployments.rollback("TOP")
    with pytest.raises(Conflict, match="rolled back already") as refused:
        deployments.rollback("TOP")
    assert refused.value.hint == f"undo the rollback:  headrace deploy restore {first.id}"
    plan = deployments.plan({"pipelines/all.sql": changed})
    assert [(one.name, one.verdict, one.number, one.replays) for one in plan.pending] == [
        ("BY_USER", "serves again", 2, 0),
        ("TOP", "serves again", 2, 0),
    ]
    assert [one.reason for one in plan.pending] == [
        "the files say again what it is made of",
        "it reads `by_user`, which is another version again",
    ]
    queries = executor.catalog.queries()
    again = deploy(deployments, changed)
    assert executor.catalog.queries() == queries, "nothing is computed that is there"
    assert deployments.switch(again).stage == "switched"
    assert reads(executor, "TOP") == ["BY_USER.v2"]
    assert {version.state for version in executor.catalog.versions("TOP")} == {"retired", "serving"}
    # Undone and done again, as often as somebody likes.
    deployments.rollback("BY_USER")
    assert reads(executor, "TOP") == ["BY_USER.v1"]
    restored = deployments.restore(first.id, False, Options(approve=True))
    assert restored is not None
    assert deployments.switch(restored).switches() == {"BY_USER": 2, "TOP": 2}


def test_of_several_rollbacks_the_last_is_undone_first(deployments: Deployments, clock: ManualClock) -> None:
    first = deployed(deployments, CHAIN.replace("n > 1", "n > 2"))
    deployed(deployments, CHAIN.replace("n > 1", "n > 3"))
    for _ in range(2):
        clock.advance(1000)
        deployments.rollback("TOP")
    with pytest.raises(Conflict, match="rolled back already") as refused:
        deployments.rollback("TOP")
    assert refused.value.hint == f"undo the rollback:  headrace deploy restore {first.id}"


def test_what_reads_a_version_that_serves_again_is_built_on_it(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    changed = CHAIN.replace("FROM clicks", "FROM clicks WHERE page <> ''")
    deployed(deployments, changed)
    deployments.rollback("TOP")
    other = deploy(deployments, changed.replace("n > 1", "n > 2"))
    assert [(item.name, item.verdict, item.number) for item in other.items] == [
        ("BY_USER", "serves again", 2),
        ("TOP", "rebuilds", 3),
    ]
    [built] = deployments.building(other)
    assert (built.sink, built.reads) == ("TOP", {"BY_USER": "BY_USER.v2"})
    # What was kept is none of its business: neither to be stopped, nor to go with what it built.
    deployments.pause(other.id, True)
    assert [query.wanted for query in deployments.queries(other)] == ["running", "stopped"]
    deployments.cancel(other.id)
    assert [(v.number, v.state) for v in executor.catalog.versions("BY_USER")] == [(1, "serving"), (2, "retired")]
    assert [(v.number, v.state) for v in executor.catalog.versions("TOP")] == [(1, "serving"), (2, "retired")]


def test_only_a_kept_version_of_the_same_definition_serves_again(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    changed = CHAIN.replace("n > 1", "n > 2")
    started = deployments.start({"pipelines/all.sql": changed}, Options(approve=True, start="1"))
    assert started is not None
    deployments.switch(started)
    deployments.rollback("TOP")

    def planned(sql: str, **options: Any) -> tuple[str, int]:
        [change] = deployments.plan({"pipelines/all.sql": sql}, Options(**options)).pending
        return change.verdict, change.number

    assert planned(changed, start="1") == ("serves again", 2)
    assert planned(changed) == ("rebuilds", 3), "it began elsewhere"
    assert planned(changed, start="now") == ("rebuilds", 3), "now is another time"
    assert planned(CHAIN.replace("n > 1", "n > 3"), start="1") == ("rebuilds", 3)
    kept = executor.catalog.versions("TOP")[1].source.query
    assert kept is not None
    executor.catalog.append([QueryWanted(kept, "stopped")])
    assert planned(changed, start="1") == ("rebuilds", 3), "it is not up to date"


def test_what_is_about_to_serve_again_is_not_forgotten(deployments: Deployments, executor: StatementExecutor) -> None:
    changed = CHAIN.replace("n > 1", "n > 2")
    deployed(deployments, changed)
    deployments.rollback("TOP")
    again = deploy(deployments, changed)
    with pytest.raises(Conflict, match=f"deployment {again.id} is to let version 2 of `top` serve again"):
        deployments.forget("TOP")
    deployments.drop_versions(executor.catalog.versions("TOP")[1:])
    assert deployments.switch(again).switches() == {"TOP": 2}
    assert executor.catalog.state.serving["TOP"] == 2


def test_what_another_kept_version_reads_is_forgotten_after_it(deployments: Deployments) -> None:
    deployed(deployments, CHAIN.replace("FROM clicks", "FROM clicks WHERE page <> ''"))
    with pytest.raises(Conflict, match="version 1 of `by_user` is read by a version of `top` that is kept"):
        deployments.forget("BY_USER")
    assert [version.number for version in deployments.forget("TOP")] == [1]
    assert [version.number for version in deployments.forget("BY_USER")] == [1]


def test_what_serves_again_by_the_time_it_is_let_go_stays(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    deployed(deployments, CHAIN.replace("n > 1", "n > 2"))
    due = [version for version in executor.catalog.beside() if version.name == "TOP"]
    deployments.rollback("TOP")
    deployments.drop_versions(due)
    assert [(v.number, v.state) for v in executor.catalog.versions("TOP")] == [(1, "serving"), (2, "retired")]
    assert reads(executor, "TOP") == ["BY_USER"]


def test_what_was_dropped_by_a_deployment_can_be_made_again_by_a_statement(
    deployments: Deployments, executor: StatementExecutor
) -> None:
    deployed(deployments, CHAIN + COUNTED)
    deployed(deployments, CHAIN)
    executor.execute(COUNTED)
    assert executor.catalog.state.serving["COUNTED"] == 2


def test_a_view_that_was_made_in_layers_and_rolled_back_is_made_again(
    deployments: Deployments, executor: StatementExecutor, log: LocalLog
) -> None:
    deployments.switch(deploy(deployments, CHAIN + COUNTED, "lambda"))
    deployments.rollback("COUNTED")
    deployments.switch(deploy(deployments, CHAIN + COUNTED, "lambda"))
    source = executor.catalog.source("COUNTED")
    assert source is not None
    assert source.topic == "COUNTED.v2"
    assert {"COUNTED", "COUNTED.v2"} <= {topic.name for topic in log.topics()}
