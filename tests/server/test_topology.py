"""The overview's words: what the engine says, in a person's terms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.coordinate.status import EngineReport
from headrace.coordinate.supervisor import readiness
from headrace.coordinate.watching import Watching
from headrace.log.base import BatchIdentity
from headrace.process.base import QueryError, QueryStatus
from tests.server.running import PAGEVIEWS, Running, running_server

SQL = (
    PAGEVIEWS
    + """
CREATE TABLE by_page AS SELECT pageid, COUNT(*) AS views FROM pageviews GROUP BY pageid;
CREATE STREAM paid AS SELECT userid, pageid FROM pageviews WHERE pageid = '/paid';
"""
)
BY_PAGE, PAID = "CTAS_BY_PAGE_1", "CSAS_PAID_2"


@pytest.fixture(autouse=True)
def _believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reported here is reported once; on a busy machine it is asked for much later."""
    monkeypatch.setattr("headrace.coordinate.status.STALE_AFTER_S", 600.0)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("pipeline"), sql=SQL) as server:
        yield server


def report(server: Running, *statuses: QueryStatus, state: str = "running") -> None:
    server.services.engine.receive(msgspec.to_builtins(EngineReport(state, os.getpid(), list(statuses))))


def watching(server: Running) -> Watching:
    """What alerts look at."""
    by = server.services
    return Watching(by.log, by.catalog, by.clock, by.engine, by.care, by.jobs, by.dead_letters.counts)


def nodes(server: Running) -> dict[str, dict[str, Any]]:
    return {node["id"]: node for node in server.http.get("/v1/overview").json()["nodes"]}


def test_a_table_is_drawn_once_and_a_stream_as_its_topic(pipeline: Running) -> None:
    overview = pipeline.http.get("/v1/overview").json()
    ids = [node["id"] for node in overview["nodes"]]
    assert len(ids) == len(set(ids))
    assert "topic:BY_PAGE" not in ids
    assert {(edge["from"], edge["to"]) for edge in overview["edges"]} == {
        ("collector:http", "topic:pageviews"),
        ("collector:http", "topic:users"),
        ("topic:pageviews", f"query:{BY_PAGE}"),
        ("topic:pageviews", f"query:{PAID}"),
        (f"query:{BY_PAGE}", "view:by_page"),
        (f"query:{PAID}", "topic:PAID"),
        ("topic:users", "view:users"),
    }


def test_states_in_words(pipeline: Running) -> None:
    error = QueryError("division by zero", 1)
    report(
        pipeline,
        QueryStatus(BY_PAGE, "running", lag=50_000, rows_per_second=100),
        QueryStatus(PAID, "failed", last_error=error),
    )
    found = nodes(pipeline)
    assert (found[f"query:{BY_PAGE}"]["state"], found[f"query:{BY_PAGE}"]["message"]) == (
        "lagging",
        "50,000 records behind",
    )
    assert (found[f"query:{PAID}"]["state"], found[f"query:{PAID}"]["message"]) == ("failed", "division by zero")
    report(
        pipeline, QueryStatus(BY_PAGE, "running", rows_per_second=5), QueryStatus(PAID, "restarting", last_error=error)
    )
    found = nodes(pipeline)
    assert (found[f"query:{BY_PAGE}"]["state"], found[f"query:{BY_PAGE}"]["rate"]) == ("ok", 5.0)
    assert found[f"query:{PAID}"]["message"] == "starting again after: division by zero"


def test_ready_when_all_wanted_queries_run(pipeline: Running) -> None:
    report(pipeline, QueryStatus(BY_PAGE, "running"), state="starting")
    assert pipeline.http.get("/readyz").json()["waiting_for"] == ["the engine (starting)"]
    report(pipeline, QueryStatus(BY_PAGE, "running"))
    assert pipeline.http.get("/readyz").json()["waiting_for"] == [f"query `{PAID}` (not started)"]
    report(pipeline, QueryStatus(BY_PAGE, "running"), QueryStatus(PAID, "running"))
    assert pipeline.http.get("/readyz").status_code == 200


def test_a_bad_pipeline_is_a_problem_and_stops_nothing(tmp_path: Path) -> None:
    sql = "CREATE STREAM a (b INT) WITH (KAFKA_TOPIC='a', PARTITIONS=1);\nCREATE TABLE c AS SELECT nothing;"
    with running_server(tmp_path, sql=sql) as server:
        ready = server.http.get("/readyz").json()
        assert ready["waiting_for"] == ["the engine"]
        [problem] = ready["problems"]
        assert problem.startswith("pipelines/all.sql:2:")
        assert ready["failed"] == [problem]


def test_not_ready_while_a_statement_of_the_files_is_missing(tmp_path: Path) -> None:
    """Ready again once it is there: by a statement, or by a deployment of files that could be read."""
    first = "CREATE STREAM a (b INT KEY) WITH (KAFKA_TOPIC='a', PARTITIONS=1);\n"
    second = "CREATE STREAM c AS SELECT * FROM nobody;\n"
    with running_server(tmp_path, sql=first + second) as server:
        report(server)
        ready = server.http.get("/readyz")
        [failed] = ready.json()["failed"]
        assert (ready.status_code, ready.json()["waiting_for"]) == (503, [])
        assert failed.startswith("pipelines/all.sql:2:34: stream or table `nobody` does not exist")
        found = readiness(str(server.http.base_url), None)
        assert (found.ready, found.settled, found.failed) == (False, True, (failed,))
        server.http.post("/v1/statements", json={"sql": "CREATE STREAM c (b INT) WITH (KAFKA_TOPIC='c');"})
        assert server.http.get("/readyz").status_code == 200
    with running_server(tmp_path / "other", sql=first + "CREATE STREM c;") as server:
        report(server)
        assert server.http.get("/readyz").status_code == 503
        deployed = server.http.post("/v1/deployments", json={"files": {"pipelines/all.sql": first}})
        assert deployed.status_code == 200
        assert server.http.get("/readyz").json() == {"waiting_for": [], "problems": [], "failed": []}


def test_a_stopped_query_is_no_reason_to_wait(pipeline: Running) -> None:
    stopped = pipeline.http.post(f"/v1/queries/{PAID}/stop").json()
    assert (stopped["wanted"], stopped["id"]) == ("stopped", PAID)
    report(pipeline, QueryStatus(BY_PAGE, "running"))
    assert pipeline.http.get("/readyz").status_code == 200
    assert nodes(pipeline)[f"query:{PAID}"]["message"] == "stopped"
    assert pipeline.http.post(f"/v1/queries/{PAID}/start").json()["wanted"] == "running"


def test_what_the_engine_counts_is_shown(pipeline: Running) -> None:
    status = QueryStatus(BY_PAGE, "running", batch=7, rows=100, lag=3, late_rows=2, spark_plan="== Physical Plan ==")
    report(pipeline, status)
    query = pipeline.http.get(f"/v1/queries/{BY_PAGE}").json()
    assert (query["batch"], query["rows"], query["lag"], query["late_rows"]) == (7, 100, 3, 2)
    assert query["spark_plan"] == "== Physical Plan =="
    assert "AGGREGATE" in query["plan"].upper()
    metrics = pipeline.http.get("/metrics").text
    assert f'headrace_query_lag_records{{query="{BY_PAGE}"}} 3.0' in metrics
    assert f'headrace_query_late_rows_total{{query="{BY_PAGE}"}} 2.0' in metrics


def test_the_lag_is_known_without_the_engine(tmp_path: Path) -> None:
    """What has been read is in the log, and so is what there is to read: a silent engine must not look idle."""
    with running_server(tmp_path, sql=SQL) as server:
        log = server.services.log
        sent = [{"userid": "ann", "pageid": f"/{number}", "viewtime": number} for number in range(5)]
        server.http.post("/v1/topics/pageviews/events", json=sent).raise_for_status()
        # It has read these five, and not what comes next; that its own report still says 0 is no matter.
        read = [end.end for end in log.snapshot().ends["pageviews"]]
        server.http.post("/v1/topics/pageviews/events", json=sent[:3]).raise_for_status()
        report(server, QueryStatus(BY_PAGE, "running", lag=0, read={"pageviews": read}))
        assert server.http.get(f"/v1/queries/{BY_PAGE}").json()["lag"] == 3
        # The engine is gone: by what it has committed it has read nothing of eight.
        server.services.engine.receive(msgspec.to_builtins(EngineReport("running", 2**22 + 1)))
        queries = {query["id"]: query for query in server.http.get("/v1/queries").json()["queries"]}
        assert {query["lag"] for query in queries.values()} == {8}
        metrics = server.http.get("/metrics").text
        for query in (BY_PAGE, PAID):
            assert f'headrace_query_lag_records{{query="{query}"}} 8.0' in metrics
            assert nodes(server)[f"query:{query}"]["detail"]["lag"] == 8
        assert {one.value for one in watching(server).lag().values()} == {8}
        log.commit("by hand", [], BatchIdentity(PAID, 1, "by hand", 0, f'{{"arrival": {log.snapshot().arrival}}}'))
        assert f'headrace_query_lag_records{{query="{PAID}"}} 0.0' in server.http.get("/metrics").text


def test_a_stalled_query_is_not_ready_and_sets_off_alerts(pipeline: Running) -> None:
    error = QueryError("it is stalled: input waits", 1)
    report(pipeline, QueryStatus(BY_PAGE, "stalled", last_error=error), QueryStatus(PAID, "running"))
    ready = pipeline.http.get("/readyz")
    assert (ready.status_code, ready.json()["waiting_for"]) == (503, [f"query `{BY_PAGE}` (stalled)"])
    assert nodes(pipeline)[f"query:{BY_PAGE}"]["state"] == "failed"
    assert pipeline.http.get(f"/v1/queries/{BY_PAGE}").json()["state"] == "stalled"
    assert f'headrace_query_stalled{{query="{BY_PAGE}"}} 1.0' in pipeline.http.get("/metrics").text
    [reading] = [one for name, one in watching(pipeline).failed().items() if name == "by_page"]
    assert (reading.value, reading.detail) == (1, "it is stalled: input waits")


def test_push_queries_with_state_are_shared_and_dropped(pipeline: Running) -> None:
    """Two who ask the same share one query in the engine; it goes when both have gone."""
    from tests.server.streams import follow
    from tests.support import wait_for

    report(pipeline, QueryStatus(BY_PAGE, "running"))
    body = {"sql": "SELECT pageid, COUNT(*) AS n FROM pageviews GROUP BY pageid EMIT CHANGES;"}
    catalog = pipeline.services.catalog
    with follow(pipeline.http, "/v1/query", "POST", json=body) as one:
        [header] = one.take(1)
        with follow(pipeline.http, "/v1/query", "POST", json=body | {"limit": 5}) as two:
            [other] = two.take(1)
            assert other.data["query_id"] == header.data["query_id"]
            assert [query.id for query in catalog.queries() if query.transient] == [header.data["query_id"]]
        failure = QueryStatus(header.data["query_id"], "failed", last_error=QueryError("out of memory", 1))
        report(pipeline, failure)
        [error] = one.take(1)
        assert (error.event, error.data["error"]["message"]) == ("error", "out of memory")
    wait_for(lambda: not [query for query in catalog.queries() if query.transient], 10, "the query to be dropped")
    wait_for(lambda: not [t for t in pipeline.services.log.topics() if "transient" in t.name], 10, "its topic to go")
