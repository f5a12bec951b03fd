"""A question about many records goes to the engine; here it runs in the same process, all else is as it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.config import SparkSettings
from headrace.coordinate.reconcile import Reconciler
from headrace.coordinate.status import EngineReport
from headrace.process.ask.jobs import Jobs
from headrace.process.runner import SparkQueryRunner
from tests.server.running import Running, running_server
from tests.support import wait_for

pytestmark = pytest.mark.spark

SETTINGS = "[server]\nengine_records = 5\nengine_seconds = 120.0\n"
COUNTED = "SELECT pageid, COUNT(*) AS views FROM pageviews GROUP BY pageid ORDER BY views DESC, pageid;"


@contextmanager
def engine(server: Running, spark: SparkSession, folder: Path) -> Iterator[None]:
    """What the engine's process does: look at the catalog, make it so, report."""
    import os

    services, clock = server.services, SystemClock()
    where = services.project.log_folder
    runner = SparkQueryRunner(spark, where, SparkSettings(), clock, services.log)
    jobs = Jobs(spark, where, services.log, clock)
    reconciler = Reconciler(services.catalog, runner, folder / "checkpoints", clock, jobs)
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.05):
            reconciler.reconcile()
            report = EngineReport("running", os.getpid(), reconciler.statuses())
            services.engine.receive(msgspec.to_builtins(report))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_for(lambda: services.engine.state()["state"] == "running", 30, "the engine")
        yield
    finally:
        stop.set()
        thread.join()
        jobs.close()
        runner.close()


def ask(server: Running, sql: str, **options: Any) -> Any:
    answer = server.http.post("/v1/query", json={"sql": sql}, timeout=200, **options)
    assert answer.status_code == 200, answer.text
    return answer


def explained(server: Running, sql: str) -> str:
    answer = server.http.post("/v1/statements", json={"sql": f"EXPLAIN EXTENDED {sql}"}, timeout=100)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["results"][0]["text"])


def test_many_records_are_asked_of_the_engine(tmp_path: Path, spark: SparkSession) -> None:
    with running_server(tmp_path, SETTINGS) as server:
        server.send("pageviews", [{"userid": f"u{n}", "pageid": f"/{n % 3}"} for n in range(20)])
        here = ask(server, COUNTED).json()
        with engine(server, spark, tmp_path):
            there = ask(server, COUNTED).json()
            arrow = ask(server, COUNTED, headers={"accept": "application/vnd.apache.arrow.stream"})
            refused = server.http.post("/v1/query", json={"sql": "SELECT nobody FROM pageviews GROUP BY pageid;"})
            running = explained(
                server, "CREATE TABLE n AS SELECT pageid, COUNT(*) AS n FROM pageviews GROUP BY pageid;"
            )
            pushed = explained(server, "SELECT userid FROM pageviews WHERE pageid = '/1' EMIT CHANGES;")
            asked = explained(server, "SELECT * FROM pageviews;")
        assert there["rows"] == here["rows"] == [["/0", 7], ["/1", 7], ["/2", 6]]
        assert [column["name"] for column in there["columns"]] == ["pageid", "views"]
        assert pa.ipc.open_stream(arrow.content).read_all().to_pydict()["views"] == [7, 7, 6]
        assert refused.status_code == 400
        # Spark's plans of queries that nobody has started.
        assert "TABLE N" in running
        assert "== Physical Plan ==" in running
        assert "StateStoreSave" in running
        assert "== Physical Plan ==" in pushed
        assert "Spark has no part in it" in asked
        # Nothing is left of a question that was answered.
        assert [query.id for query in server.services.catalog.queries()] == []
        assert [topic for topic in server.services.log.snapshot().ends if topic.startswith("_transient")] == []


def test_a_question_can_be_terminated(tmp_path: Path, spark: SparkSession) -> None:
    with running_server(tmp_path, SETTINGS) as server:
        server.send("pageviews", [{"userid": f"u{n}", "pageid": "/"} for n in range(300)])
        slow = "SELECT COUNT(*) AS n FROM pageviews a JOIN pageviews b ON a.pageid = b.pageid JOIN pageviews c ON "
        slow += "c.pageid = b.pageid JOIN pageviews d ON LEN(d.userid) + LEN(a.userid) > LEN(c.userid);"
        failed: list[Any] = []

        def wait() -> None:
            failed.append(server.http.post("/v1/query", json={"sql": slow}, timeout=100))

        with engine(server, spark, tmp_path):
            asking = threading.Thread(target=wait)
            asking.start()
            catalog = server.services.catalog
            wait_for(lambda: any(query.id.startswith("ASK_") for query in catalog.queries()), 60, "the question")
            [query] = catalog.queries()
            shown = server.http.get("/v1/queries").json()["queries"]
            assert [one["id"] for one in shown] == [query.id]
            done = server.http.post("/v1/statements", json={"sql": f"TERMINATE {query.id};"})
            assert done.status_code == 200, done.text
            asking.join(60)
            wait_for(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), 60, "Spark to rest")
        assert failed[0].status_code >= 400
        assert "terminated" in failed[0].text
