"""A server process that deploys a change, and kills itself around one of the catalog's appends.

    python -m tests.chaos.deploying FOLDER POINT

POINT is `before 3` or `after 3`: the third append from the deployment's start on. What it did is in the log; nothing
else of it is left. Without Spark: what the queries would write, it writes itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.config import load_project
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.deployments import Options
from headrace.coordinate.events import Event
from headrace.log.base import Append
from headrace.server.assemble import open_services
from headrace.server.services import Services
from tests.support import wait_for

SQL = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
CREATE TABLE busy AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page HAVING COUNT(*) > 2;
"""
CHANGED = SQL.replace("FROM clicks GROUP BY", "FROM clicks WHERE userid <> 'bob' GROUP BY")
QUIET = "[views]\ncheck_every_seconds = 0\n"
"""Rows that no query has written would be found to be wrong."""
NAMES = ("BY_PAGE", "BUSY")
PATIENCE = 60.0


class Appends:
    """Counts the catalog's appends, and dies at one of them."""

    def __init__(self, catalog: Catalog, when: str, number: int) -> None:
        self._append, self._when, self._number, self.count = catalog.append, when, number, 0
        catalog.append = self.append  # type: ignore[method-assign]

    def append(self, events: Sequence[Event]) -> None:
        self.count += 1
        self._die_if("before")
        self._append(events)
        self._die_if("after")

    def _die_if(self, when: str) -> None:
        if (when, self.count) == (self._when, self._number):
            os.kill(os.getpid(), signal.SIGKILL)


def write(services: Services, topic: str, count: int) -> None:
    columns = {"PAGE": pa.array(["/"]), "N": pa.array([count], pa.int64()), "$time": pa.array([0], pa.int64())}
    services.log.append([Append(topic, pa.record_batch(columns))]).result()


def begin(services: Services) -> None:
    """What runs before anything is changed."""
    services.deployments.start({"all.sql": SQL}, Options())
    for name in NAMES:
        write(services, name, 5)


def finish(services: Services) -> str:
    """Deploy the change, from wherever it is; the stage it ended in."""
    deployments = services.deployments
    running = [deployment for deployment in services.catalog.deployments() if not deployment.over]
    deployment = running[0] if running else deployments.start({"all.sql": CHANGED}, Options())
    if deployment is None:
        return "switched"
    number = deployment.id
    for name in NAMES:
        version = services.catalog.state.versions[name].get(2)
        if version is not None and not services.log.stats(version.source.topic).records:
            write(services, version.source.topic, 7)
    # One row of each has changed, or, if it was looked at before it was written, is missing: somebody has to approve.
    wait_for(lambda: deployments.get(number).stage in ("waiting", "switching", "switched"), PATIENCE, "the comparison")
    if deployments.get(number).stage == "waiting":
        deployments.approve(number)
    wait_for(lambda: deployments.get(number).stage == "switched", PATIENCE, "the switch")
    return deployments.get(number).stage


def main() -> None:
    folder, when, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with open_services(load_project(folder), SystemClock()) as services:
        begin(services)
        appends = Appends(services.catalog, when, number)
        finish(services)
        services.deployments.rollback("BUSY")
        print(appends.count)


if __name__ == "__main__":
    main()
