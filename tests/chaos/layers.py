"""kill -9 before and after every record that a Lambda deployment and a refresh write: one pair of layers serves.

    python -m tests.chaos.layers                     every point
    python -m tests.chaos.layers FOLDER before 3     the process that dies there; `writing 2` is inside the second job

Without Spark: what the batch job and the stream would write, it writes itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.config import load_project
from headrace.coordinate.deployments import Options
from headrace.errors import NotFound
from headrace.log.base import Append, BatchIdentity, Route
from headrace.server.assemble import open_services
from headrace.server.services import Services
from headrace.views.versions import Version
from tests.chaos.batch_points import TOLD, TRANSACTION, BatchPoints
from tests.chaos.deploying import PATIENCE, QUIET, Appends
from tests.support import wait_for

SQL = """
CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);
CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;
"""
CHANGED = SQL.replace("FROM clicks GROUP BY", "FROM clicks WHERE userid <> 'bob' GROUP BY")
KILLED = -9
BATCH, SPEED = 5, 2
MOST_APPENDS, LEAST_APPENDS = 30, 6


def rows_of(services: Services, name: str, count: int, column: str) -> Append:
    columns = {"PAGE": pa.array(["/"]), column: pa.array([count], pa.int64()), "$time": pa.array([0], pa.int64())}
    return Append(name, pa.record_batch(columns))


def batch_job(services: Services, version: Version, count: int) -> None:
    """What the engine's job does, once: whoever runs it again changes nothing."""
    assert version.layers is not None
    id_, topic, log = version.layers.batch, version.source.topic, services.log
    append = rows_of(services, topic, count, "PART_0")
    route = Route(topic, {name: name for name in append.batch.schema.names})
    for attempt in range(2):
        if log.last_identity(id_, 1) is None or attempt:
            transaction = f"{TRANSACTION}{id_}-{attempt}"
            log.stage(transaction, 0, 0, [route], iter([append.batch]))
            log.commit(transaction, [(0, 0)], BatchIdentity(id_, 1, "batch", 0, '{"arrival": 0}'))


def advance(services: Services, number: int, count: int) -> None:
    """A version from its batch layer to serving; `count` is what the batch has."""
    version = services.catalog.state.versions["BY_PAGE"][number]
    batch_job(services, version, count)
    wait_for(lambda: _layers_end(services, number), PATIENCE, "the stream to begin")
    wait_for(lambda: services.catalog.state.serving["BY_PAGE"] == number, PATIENCE, "the switch")


def _layers_end(services: Services, number: int) -> bool:
    layers = services.catalog.state.versions["BY_PAGE"][number].layers
    return layers is not None and layers.ends is not None


def finish(services: Services) -> None:
    """The whole story, from wherever it is: a kappa view becomes a Lambda one, a change comes, it is refreshed."""
    deployments, state = services.deployments, services.catalog.state
    if 2 not in state.versions["BY_PAGE"] and state.serving["BY_PAGE"] == 1:
        deployments.start({"all.sql": CHANGED}, Options(strategy="lambda", approve=True))
    if services.catalog.state.serving["BY_PAGE"] == 1:
        advance(services, 2, BATCH)
    if services.catalog.state.serving["BY_PAGE"] == 2:
        second = services.catalog.state.versions["BY_PAGE"][2].source.topic
        if services.log.stats(second).records < 2:
            services.log.append([rows_of(services, second, SPEED, "PART_0")]).result()
        if not any(not deployment.over for deployment in services.catalog.deployments()):
            deployments.refresh("BY_PAGE", "chaos")
        advance(services, 3, BATCH + SPEED)


def check_one_pair(services: Services) -> int:
    """One version serves, and shows what its layers have together."""
    state = services.catalog.state
    serving = state.serving["BY_PAGE"]
    states = [version.state for version in state.versions["BY_PAGE"].values()]
    assert states.count("serving") == 1, states
    allowed = {1: (BATCH,), 2: (BATCH, BATCH + SPEED), 3: (BATCH + SPEED,)}[serving]
    wait_for(lambda: _shown(services) in allowed, PATIENCE, f"version {serving} to show one of {allowed}")
    return serving


def _shown(services: Services) -> int | None:
    with suppress(NotFound):
        rows = services.followers.view("BY_PAGE").select(["N"])[0].rows
        return int(rows[0][0]) if len(rows) == 1 else None
    return None


def die(folder: Path, point: str) -> bool:
    """Run the story in a process that kills itself there; False if it was over before."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "headrace.toml").write_text(QUIET)
    command = [sys.executable, "-m", "tests.chaos.layers", str(folder), *point.split()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert ended.returncode in (KILLED, 0), ended.stderr
    return ended.returncode == KILLED


def recover(folder: Path) -> None:
    with open_services(load_project(folder), SystemClock()) as services:
        check_one_pair(services)
        finish(services)
        assert check_one_pair(services) == 3


def sweep(say: Callable[[str], None]) -> int:
    points = [f"{point} {job}" for job in (1, 2) for point in TOLD]
    points += [f"{when} {number}" for number in range(1, MOST_APPENDS) for when in ("before", "after")]
    for count, point in enumerate(points):
        with tempfile.TemporaryDirectory() as folder:
            if not die(Path(folder), point):
                return count
            recover(Path(folder))
        say(f"killed {point}: one pair of layers serves")
    return len(points)


def main() -> None:
    folder, when, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with open_services(load_project(folder), SystemClock()) as services:
        services.deployments.start({"all.sql": SQL}, Options())
        services.log.append([rows_of(services, "BY_PAGE", BATCH, "N")]).result()
        if when in TOLD:
            BatchPoints(services.log, when, number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        else:
            Appends(services.log, when, number)
        finish(services)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main()
    else:
        found = sweep(lambda text: print(text, flush=True))
        assert found >= 2 * LEAST_APPENDS, f"only {found} points"
        print(f"{found} points, each survived")
