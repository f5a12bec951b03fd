"""The engine's process: PySpark, its JVM, and one streaming query per query of the catalog.

    python -m headrace.coordinate.engine --project DIR

It connects to the log, waits for it if it is not there, and goes on when it comes back. It reports twice a second, and
at once when something changed. How it does both depends on where the log is: `links`.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from headrace.access.files import keep_private
from headrace.clock import Clock, GuardedClock
from headrace.config import Project, load_project
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.catalog_file import FILE, CatalogFile
from headrace.coordinate.child import EXIT_STALLED, MARK, STALLS
from headrace.coordinate.heartbeat import Heartbeat
from headrace.coordinate.links import Link, link_to
from headrace.coordinate.reconcile import Reconciler, sweep_checkpoints
from headrace.coordinate.status import EngineReport
from headrace.coordinate.supervisor import EXIT_HOPELESS
from headrace.errors import ConfigError, HeadraceError, LogError, NotFound, QueryFailed
from headrace.functions.compiled import Limits
from headrace.functions.direct import DirectRuntime
from headrace.log.base import Log
from headrace.process.base import QueryStatus
from headrace.process.stalls import Stalled

LOOK_S, REPORT_S = 0.1, 0.5
MOST_DOUBLED = 4
"""Each engine that was restarted for a stalled query lets the next one be twice as patient, so often at the most."""
STOP_S = 15.0
"""A batch that takes longer is cut off: it will be run again."""

logger = logging.getLogger("headrace.engine")


class Reporter(threading.Thread):
    """Connects to the log, and from then on tells the server how the engine is, while the engine itself is busy."""

    def __init__(
        self, link: Link, statuses: Callable[[], list[QueryStatus]], reconciled: Callable[[], int] = lambda: 0
    ) -> None:
        super().__init__(name="headrace-report", daemon=True)
        self._link = link
        self._statuses, self._reconciled = statuses, reconciled
        self._changed = threading.Event()
        self._connected = threading.Event()
        self._stopping = False
        self._log: Log | None = None
        self._state, self._detail = "starting", "Spark is starting"

    def run(self) -> None:
        while not self._stopping:
            if self._log is None:
                self._connect()
            self._report()
            self._changed.wait(REPORT_S if self._log else LOOK_S)
            self._changed.clear()

    def log(self, timeout: float) -> Log | None:
        """The connection, once there is one."""
        return self._log if self._connected.wait(timeout) else None

    def say(self, state: str, detail: str = "") -> None:
        self._state, self._detail = state, detail
        self._changed.set()

    def changed(self) -> None:
        self._changed.set()

    def stop(self) -> None:
        self._stopping = True
        self._changed.set()
        self.join(2)

    def _connect(self) -> None:
        try:
            self._log = self._link.connect()
            self._connected.set()
        except (HeadraceError, OSError) as error:
            # It is not there yet.
            logger.debug("not connected: %s", error)
        except Exception:
            # Nobody else would try again.
            logger.exception("not connected")

    def _report(self) -> None:
        try:
            # First: what it says must not be more than the queries run by.
            reconciled = self._reconciled()
            report = EngineReport(self._state, os.getpid(), self._statuses(), self._detail or None, reconciled)
            self._link.report(msgspec.to_builtins(report))
        except (HeadraceError, OSError) as error:
            # The server is away; it will hear again when it is back.
            logger.debug("not reported: %s", error)
        except Exception:
            # Without reports everybody would think that the engine is gone.
            logger.exception("how the engine is could not be told")


class Engine:
    def __init__(self, project: Project, clock: Clock, heartbeat: Heartbeat) -> None:
        self._project = project
        self._heartbeat = heartbeat
        self._clock = clock
        self._stopping = threading.Event()
        self._parent = os.getppid() if MARK in os.environ else None
        self._reconciler: Reconciler | None = None
        self._exit_code = 1
        """Of an engine that has to be cut off."""

    def stop(self, number: int = 0, frame: FrameType | None = None) -> None:
        self._stopping.set()

    def run(self) -> None:
        from headrace.process.jvm import spark_session

        link = link_to(self._project, self._clock)
        reporter = Reporter(link, self._statuses, lambda: self._reconciler.reconciled if self._reconciler else 0)
        reporter.start()
        # Seconds, in which the server opens the log.
        spark = spark_session(self._project.settings.spark, f"headrace {self._project.name}")
        # Any call that the JVM has to answer: one that is stopped, or collects garbage only, does not.
        jvm: Any = spark.sparkContext._jvm
        self._heartbeat.probe(jvm.System.nanoTime)
        try:
            reporter.say("starting", f"waiting for {link.name}")
            while not self._done():
                log = reporter.log(LOOK_S)
                if log is not None:
                    self._serve(spark, link.where(log), log, reporter)
                    return
        finally:
            self._cut_off_later()
            reporter.stop()
            spark.stop()

    def _serve(self, spark: Any, where: Any, log: Log, reporter: Reporter) -> None:
        from headrace.process.ask.jobs import Jobs
        from headrace.process.runner import SparkQueryRunner

        settings = self._project.settings.spark
        restarts = int(os.environ.get(STALLS, "0"))
        runner = SparkQueryRunner(spark, where, settings, self._clock, log, patience=2 ** min(restarts, MOST_DOUBLED))
        limits = self._project.settings.functions
        runtime = DirectRuntime(Limits(limits.seconds, limits.memory_mb * 1024 * 1024))
        catalog = Catalog(log, runtime, CatalogFile(self._project.data / FILE))
        jobs = Jobs(spark, where, log, self._clock, settings)
        self._reconciler = Reconciler(catalog, runner, self._project.checkpoints_folder, self._clock, jobs)
        try:
            sweep_checkpoints(catalog, self._project.checkpoints_folder)
            self._reconciler.reconcile()
            reporter.say("running")
            while not self._done():
                if runner.spark_lost.is_set():
                    # The supervisor starts us again, with a new one.
                    raise QueryFailed("Spark's Java process is gone", hint="logs/engine.log may say why")
                if runner.stalls.hopeless is not None:
                    self._exit_code = EXIT_STALLED
                    raise Stalled(runner.stalls.hopeless, hint="the engine is restarted")
                changed = self._refresh(catalog)
                if (changed or self._reconciler.unfinished) and self._reconciler.reconcile():
                    reporter.changed()
                self._stopping.wait(LOOK_S)
        finally:
            reporter.say("stopping")
            self._cut_off_later()
            jobs.close()
            runner.close()

    def _refresh(self, catalog: Catalog) -> bool:
        try:
            return catalog.refresh()
        except LogError as error:
            # Kafka is away. The queries wait for it too.
            logger.warning("the catalog cannot be read: %s", error)
            return False

    def _done(self) -> bool:
        """Told to stop, or left alone: without a supervisor nobody would."""
        orphaned = self._parent is not None and os.getppid() != self._parent
        return orphaned or self._stopping.is_set()

    def _statuses(self) -> list[QueryStatus]:
        return self._reconciler.statuses() if self._reconciler else []

    def _cut_off_later(self) -> None:
        """A batch that hangs must not keep the project from stopping; what it did not commit is done again."""
        timer = threading.Timer(STOP_S, lambda: os._exit(self._exit_code))
        timer.daemon = True
        timer.start()


def main() -> int:
    parser = argparse.ArgumentParser(description="The engine's process; `headrace up` starts it.")
    parser.add_argument("--project", type=Path, required=True)
    options = parser.parse_args()
    keep_private()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    # Py4J reports every command it sends.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        project = load_project(options.project)
        engine = Engine(project, GuardedClock(project.settings.server.clock_trust_seconds), Heartbeat())
        signal.signal(signal.SIGTERM, engine.stop)
        signal.signal(signal.SIGINT, engine.stop)
        engine.run()
    except Stalled as error:
        logger.error("%s", error)
        return EXIT_STALLED
    except (ConfigError, NotFound) as error:
        print(error, file=sys.stderr)
        return EXIT_HOPELESS
    return 0


if __name__ == "__main__":
    sys.exit(main())
