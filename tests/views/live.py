"""A project that runs in the test's process: log, views, deployer, and queries in the tests' Spark session."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.collect.base import RawEvents
from headrace.config import SparkSettings, load_project
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.deployments import Options
from headrace.coordinate.links import link_to
from headrace.coordinate.reconcile import Reconciler
from headrace.coordinate.status import EngineReport
from headrace.deliver.pull import pull
from headrace.process.ask.jobs import Jobs
from headrace.process.runner import SparkQueryRunner
from headrace.server.assemble import open_services
from headrace.server.services import Services
from headrace.sql.api import parse, plan_select
from headrace.sql.plan import PullQuery
from headrace.sql.statements import SelectStatement
from headrace.views.versions import Deployment
from tests.support import wait_for

PATIENCE = 120.0
SETTINGS = SparkSettings(shuffle_partitions=1)


class Live:
    def __init__(self, services: Services) -> None:
        self.services = services
        self.files: dict[str, str] = {}

    def write(self, sql: str, functions: Mapping[str, str] | None = None) -> None:
        """The project's one file, and its functions."""
        self.files = {"pipelines/all.sql": sql, **(functions or {})}

    def send(self, topic: str, *events: Mapping[str, Any]) -> None:
        for event in events:
            body = msgspec.json.encode(event)
            answer = self.services.collector.collect(RawEvents(topic, body, source="test")).result()
            assert not answer.rejected

    def rows(self, sql: str) -> list[list[Any]]:
        [statement] = parse(sql)
        assert isinstance(statement, SelectStatement)
        plan = plan_select(statement, self.services.catalog)
        assert isinstance(plan, PullQuery)
        return pull(self.services.delivery, plan).rows

    def eventually(self, sql: str, rows: list[list[Any]]) -> None:
        try:
            wait_for(
                lambda: sorted(self.rows(sql), key=str) == sorted(rows, key=str), PATIENCE, f"{sql} to give {rows}"
            )
        except TimeoutError:
            assert sorted(self.rows(sql), key=str) == sorted(rows, key=str)
            raise

    def deploy(self, **options: Any) -> Deployment:
        started = self.services.deployments.start(self.files, Options(**options))
        assert started is not None
        return started

    def reaches(self, deployment: Deployment, *stages: str) -> Deployment:
        def there() -> bool:
            found = self.services.deployments.get(deployment.id)
            assert found.stage != "failed" or "failed" in stages, found.detail
            return found.stage in stages

        wait_for(there, PATIENCE, f"deployment {deployment.id} to be {' or '.join(stages)}")
        return self.services.deployments.get(deployment.id)

    def serving(self, name: str) -> int:
        return self.services.catalog.state.serving[name]


@contextmanager
def live(
    folder: Path,
    spark: SparkSession,
    sql: str,
    toml: str = "",
    functions: Mapping[str, str] | None = None,
    settings: SparkSettings = SETTINGS,
) -> Iterator[Live]:
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    (folder / "headrace.toml").write_text(toml)
    project = load_project(folder)
    with open_services(project, SystemClock()) as services:
        made = Live(services)
        made.write(sql, functions)
        with engine(services, spark, settings):
            if sql:
                services.deployments.start(made.files, Options())
            yield made


@contextmanager
def engine(services: Services, spark: SparkSession, settings: SparkSettings = SETTINGS) -> Iterator[None]:
    """What `coordinate.engine` does, in a thread."""
    link, stop = link_to(services.project, services.clock), threading.Event()
    client = link.connect()
    where = link.where(client)
    runner = SparkQueryRunner(spark, where, settings, services.clock, client)
    catalog = Catalog(client)
    jobs = Jobs(spark, where, client, services.clock)
    reconciler = Reconciler(catalog, runner, services.project.checkpoints_folder, services.clock, jobs)

    def work() -> None:
        reconciler.reconcile()
        while not stop.wait(0.05):
            if catalog.refresh():
                reconciler.reconcile()
            report = EngineReport("running", 1, reconciler.statuses(), None, reconciler.reconciled)
            services.engine.receive(msgspec.to_builtins(report))

    thread = threading.Thread(target=work, name="engine-under-test")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        jobs.close()
        runner.close()
        client.close()
