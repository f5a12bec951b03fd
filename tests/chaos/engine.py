"""An engine in this process for a project whose server is another one, and may be killed: as `coordinate.engine`, with
a Spark session that is there already, since starting one takes longer than most stories."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.config import SparkSettings, load_project
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.reconcile import Reconciler
from headrace.coordinate.status import ENGINE_STATUS, EngineReport
from headrace.errors import HeadraceError
from headrace.log.local.open import LocalClient
from headrace.process.ask.jobs import Jobs
from headrace.process.runner import SparkQueryRunner

LOOK_S = 0.05

logger = logging.getLogger("headrace.chaos")


@contextmanager
def engine_beside(folder: Path, spark: SparkSession, begins: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """From when `begins` says so."""
    stop = threading.Event()
    thread = threading.Thread(target=_work, args=(folder, spark, stop, begins), name="engine-beside")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def _work(folder: Path, spark: SparkSession, stop: threading.Event, begins: Callable[[], bool]) -> None:
    project, clock = load_project(folder), SystemClock()
    while not begins():
        if stop.wait(LOOK_S):
            return
    client = _connected(project.log_folder, stop)
    if client is None:
        return
    runner = SparkQueryRunner(spark, project.log_folder, SparkSettings(shuffle_partitions=1), clock, client)
    jobs = Jobs(spark, project.log_folder, client, clock, project.settings.spark)
    try:
        catalog = Catalog(client)
        reconciler = Reconciler(catalog, runner, project.checkpoints_folder, clock, jobs)
        reconciler.reconcile()
        while not stop.wait(LOOK_S):
            if catalog.refresh():
                reconciler.reconcile()
            try:
                report = EngineReport("running", 1, reconciler.statuses(), None, reconciler.reconciled)
                client.call(ENGINE_STATUS, msgspec.to_builtins(report))
            except (HeadraceError, OSError) as error:
                logger.debug("not reported: %s", error)
    finally:
        jobs.close()
        runner.close()
        client.close()


def _connected(folder: Path, stop: threading.Event) -> LocalClient | None:
    while not stop.wait(LOOK_S):
        try:
            return LocalClient(folder)
        except (HeadraceError, OSError):
            continue
    return None
