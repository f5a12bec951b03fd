"""A server process that deploys a change, rolls it back, undoes that, rolls back again and repairs, and kills itself
around one of the log's appends.

    python -m tests.chaos.deploying FOLDER before 3 [--spark]

`before 3` or `after 3`: the third append from the deployment's start on. What it did is in the log; nothing else of it
is left. Without Spark, what the queries would write, it writes itself; with it, an engine in another process computes
(`tests.chaos.engine`), and what came late is repaired at the end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from headrace.clock import SystemClock
from headrace.collect.base import RawEvents
from headrace.config import load_project
from headrace.coordinate.deployments import Options
from headrace.log.base import Append, Appended, Log
from headrace.server.assemble import open_services
from headrace.server.services import Services
from tests.support import wait_for

SQL = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR, at BIGINT)
  WITH (KAFKA_TOPIC='clicks', TIMESTAMP='at', PARTITIONS=1);
CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
CREATE TABLE busy AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page HAVING COUNT(*) > 2;
"""
PER_MINUTE = """
CREATE TABLE per_minute AS SELECT page, COUNT(*) AS n FROM clicks
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY page;
"""
CHANGED = ("FROM clicks GROUP BY", "FROM clicks WHERE userid <> 'bob' GROUP BY")
QUIET = "[views]\ncheck_every_seconds = 0\n"
"""Rows that no query has written would be found to be wrong."""
NAMES = ("BY_PAGE", "BUSY")
# The last comes too late for its minute.
CLICKS = (("ann", 0), ("ann", 1_000), ("bob", 2_000), ("bob", 200_000), ("ann", 1_500))
FIRST_MINUTE, REPAIRED = 3, 4
PATIENCE = 60.0


@dataclass(frozen=True)
class Story:
    spark: bool

    @property
    def sql(self) -> str:
        return SQL + PER_MINUTE if self.spark else SQL

    @property
    def counts(self) -> dict[int, int]:
        """What each version of each table counts."""
        return {1: 5, 2: 3} if self.spark else {1: 5, 2: 7}


class Appends:
    """Counts the log's appends, and dies at one of them. What is told of a catalog, and what a repair writes."""

    def __init__(self, log: Log, when: str, number: int) -> None:
        self._append, self._when, self._number, self.count = log.append, when, number, 0
        self._lock = threading.Lock()
        log.append = self.append  # type: ignore[method-assign, assignment]

    def append(self, appends: Sequence[Append], *more: Any) -> Future[list[Appended]]:
        with self._lock:
            self.count += 1
            number = self.count
        self._die_if("before", number)
        done = self._append(appends, *more)
        done.result()
        self._die_if("after", number)
        return done

    def _die_if(self, when: str, number: int) -> None:
        if (when, number) == (self._when, self._number):
            os.kill(os.getpid(), signal.SIGKILL)


def write(services: Services, topic: str, count: int) -> None:
    columns = {"PAGE": pa.array(["/"]), "N": pa.array([count], pa.int64()), "$time": pa.array([0], pa.int64())}
    services.log.append([Append(topic, pa.record_batch(columns))]).result()


def first_minute(services: Services) -> list[tuple[Any, ...]]:
    rows = services.followers.view("PER_MINUTE").select(["WINDOWSTART", "N"])[0].rows
    return [row for row in rows if row[0] == 0]


def begin(services: Services, story: Story) -> None:
    """What runs before anything is changed."""
    services.deployments.start({"all.sql": story.sql}, Options())
    if not story.spark:
        for name in NAMES:
            write(services, name, story.counts[1])
        return
    for user, at in CLICKS:
        event = msgspec.json.encode({"userid": user, "page": "/", "at": at})
        services.collector.collect(RawEvents("clicks", event, source="test")).result()
    for name in NAMES:
        view = services.followers.view(name)
        wait_for(lambda: view.select(["N"])[0].rows == [(story.counts[1],)], PATIENCE, name)  # noqa: B023
    wait_for(lambda: first_minute(services) == [(0, FIRST_MINUTE)], PATIENCE, "the first minute")
    [query] = [query for query in services.catalog.queries() if query.sink == "PER_MINUTE"]
    wait_for(lambda: services.log.stats(f"_late.{query.id}").records == 1, PATIENCE, "the late ledger")


def finish(services: Services, story: Story) -> str:
    """Deploy the change, from wherever it is; the stage it ended in."""
    deployments = services.deployments
    running = [deployment for deployment in services.catalog.deployments() if not deployment.over]
    changed = {"all.sql": story.sql.replace(*CHANGED)}
    deployment = running[0] if running else deployments.start(changed, Options())
    if deployment is None:
        return "switched"
    number = deployment.id
    for name in NAMES if not story.spark else ():
        version = services.catalog.state.versions[name].get(2)
        if version is not None and not services.log.stats(version.source.topic).records:
            write(services, version.source.topic, story.counts[2])
    # One row of each has changed, or, if it was looked at before it was written, is missing: somebody has to approve.
    wait_for(lambda: deployments.get(number).stage in ("waiting", "switching", "switched"), PATIENCE, "the comparison")
    if deployments.get(number).stage == "waiting":
        deployments.approve(number)
    wait_for(lambda: deployments.get(number).stage == "switched", PATIENCE, "the switch")
    return deployments.get(number).stage


def repair(services: Services) -> int:
    """How many rows were revised."""
    view = services.catalog.view("PER_MINUTE")
    assert view is not None
    return len(services.care.repair(view).revised)


def main() -> None:
    folder, when, number, story = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Story("--spark" in sys.argv)
    with open_services(load_project(folder), SystemClock()) as services:
        begin(services, story)
        appends = Appends(services.log, when, number)
        finish(services, story)
        services.deployments.rollback("BUSY")
        finish(services, story)
        services.deployments.rollback("BUSY")
        if story.spark:
            repair(services)
        print(appends.count)


if __name__ == "__main__":
    main()
