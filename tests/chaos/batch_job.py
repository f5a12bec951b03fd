"""kill -9 inside the batch job of a Lambda view, while Spark computes it: at every named point, of the job that builds
the view and of the one that refreshes it, the server or the engine. One pair of layers serves, and it is right.

    python -m tests.chaos.batch_job                                    every point
    python -m tests.chaos.batch_job FOLDER writing 1 PID               the server, which kills PID there; 0 is itself
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.collect.base import RawEvents
from headrace.config import SparkSettings, load_project
from headrace.coordinate.deployments import Options
from headrace.errors import NotFound
from headrace.process.jvm import spark_session
from headrace.server.assemble import open_services
from headrace.server.services import Services
from tests.chaos.batch_points import POINTS, BatchPoints
from tests.chaos.deploying import QUIET
from tests.chaos.engine import engine_beside
from tests.chaos.layers import CHANGED, KILLED, SQL
from tests.support import wait_for

PATIENCE = 120.0
FIRST, MORE = 600, 90
"""Events before the view is built, and before it is refreshed."""
PAGES = 40
AT_ONCE = 66
"""Rows: a layer is made of several stretches."""
LAST = 3
"""The version that serves in the end: the first is plain, the second has layers, the third is refreshed."""
JOBS = (1, 2)
VICTIMS = ("server", "engine")


def send(services: Services, start: int, end: int) -> None:
    """Each once, whoever sends it again."""
    for at in range(start, end, 100):
        events = [_event(number) for number in range(at, min(end, at + 100))]
        raw = RawEvents("clicks", msgspec.json.encode(events), source="chaos", idempotency_key=f"from {at}")
        services.collector.collect(raw).result()


def _event(number: int) -> dict[str, str]:
    return {"userid": "bob" if number % 3 == 0 else "ann", "page": f"/{number % PAGES}"}


def right(events: int, all_of_them: bool) -> dict[str, int]:
    """What the events make of the first definition, or of the changed one."""
    found: dict[str, int] = {}
    for event in map(_event, range(events)):
        if all_of_them or event["userid"] != "bob":
            found[event["page"]] = found.get(event["page"], 0) + 1
    return found


def shown(services: Services) -> dict[str, int]:
    with contextlib.suppress(NotFound):
        return dict(services.followers.view("BY_PAGE").select(["PAGE", "N"])[0].rows)
    return {}


def serving(services: Services) -> int:
    return services.catalog.state.serving["BY_PAGE"]


def check_one_pair(services: Services) -> None:
    """One version serves, and shows what came before the refresh or all of it."""
    states = [version.state for version in services.catalog.versions("BY_PAGE")]
    assert states.count("serving") == 1, states

    def is_right() -> bool:
        found, first = shown(services), serving(services) == 1
        return found in (right(FIRST, first), right(FIRST + MORE, first))

    wait_for(is_right, PATIENCE, "rows that are right")


def finish(services: Services) -> None:
    """The whole story, from wherever it is: it becomes a Lambda view, more comes, it is refreshed."""
    deployments = services.deployments
    if len(services.catalog.versions("BY_PAGE")) == 1:
        deployments.start({"all.sql": CHANGED}, Options(strategy="lambda", approve=True))
    _until(services, 2)
    send(services, FIRST, FIRST + MORE)
    if serving(services) == 2 and all(deployment.over for deployment in services.catalog.deployments()):
        deployments.refresh("BY_PAGE", "chaos")
    _until(services, 3)
    wait_for(lambda: shown(services) == right(FIRST + MORE, False), PATIENCE, "all of it")


def _until(services: Services, number: int) -> None:
    def there() -> bool:
        failed = [one.detail for one in services.catalog.deployments() if one.stage == "failed"]
        assert not failed, failed
        return serving(services) >= number

    wait_for(there, PATIENCE, f"version {number} to serve")


def main() -> None:
    folder, point, number, pid = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with open_services(load_project(folder), SystemClock()) as services:
        services.deployments.start({"all.sql": SQL}, Options())
        send(services, 0, FIRST)
        wait_for(lambda: shown(services) == right(FIRST, True), PATIENCE, "the first version")
        points = BatchPoints(services.log, point, number, lambda: _strike(pid))
        points.watch(services.project.checkpoints_folder)
        finish(services)


def _strike(pid: int) -> None:
    print("struck", flush=True)
    os.kill(pid or os.getpid(), signal.SIGKILL)


def survive(folder: Path, point: str, job: int, victim: str, spark: SparkSession) -> int:
    """An engine that is killed is one of its own, and the story goes on with another. The version that serves in the
    end."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "headrace.toml").write_text(QUIET + f"[spark]\nmax_rows_per_batch = {AT_ONCE}\n")
    if victim == "server":
        with engine_beside(folder, spark):
            assert _run(folder, point, job, 0).returncode == KILLED
            return recover(folder)
    with _engine(folder) as pid, _beside_once_gone(folder, pid, spark):
        ended = _run(folder, point, job, pid)
        assert ended.returncode == 0, ended.stderr
        assert "struck" in ended.stdout
        return recover(folder)


def _run(folder: Path, point: str, job: int, pid: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.chaos.batch_job", str(folder), point, str(job), str(pid)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode in (KILLED, 0), ended.stderr
    return ended


@contextlib.contextmanager
def _engine(folder: Path) -> Iterator[int]:
    """The engine's own process."""
    with (folder / "engine.log").open("w") as log:
        command = [sys.executable, "-m", "headrace.coordinate.engine", "--project", str(folder)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield process.pid
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _beside_once_gone(folder: Path, pid: int, spark: SparkSession) -> Iterator[None]:
    """What the supervisor does: another engine, as soon as that one is gone."""
    with engine_beside(folder, spark, lambda: not _runs(pid)):
        yield


def _runs(pid: int) -> bool:
    """Somebody who was killed and not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def recover(folder: Path) -> int:
    """To the end of the story; the version that serves then."""
    with open_services(load_project(folder), SystemClock()) as services:
        check_one_pair(services)
        finish(services)
        check_one_pair(services)
        return serving(services)


def sweep(spark: SparkSession, say: Callable[[str], None]) -> int:
    points = list(product(VICTIMS, JOBS, POINTS))
    for victim, job, point in points:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            assert survive(Path(folder) / "project", point, job, victim, spark) == LAST
        say(f"killed the {victim}, {point}, job {job}: one pair of layers serves, and is right")
    return len(points)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main()
    else:
        settings = SparkSettings(master="local[2]", memory="1g", shuffle_partitions=1)
        found = sweep(spark_session(settings, "headrace chaos"), lambda text: print(text, flush=True))
        print(f"{found} points, each survived")
