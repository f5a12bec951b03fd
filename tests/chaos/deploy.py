"""kill -9 before and after every record that a deployment writes, from its start to its rollback and a repair:
afterwards one version serves, it is right, and what was begun goes on. In between the rollback is undone, so that a
version that was kept serves again.

    python -m tests.chaos.deploy            the queries' rows are written by hand
    python -m tests.chaos.deploy --spark    Spark computes them, in this process, while the server is killed
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.config import SparkSettings, load_project
from headrace.process.jvm import spark_session
from headrace.server.assemble import open_services
from headrace.server.services import Services
from tests.chaos.deploying import NAMES, PATIENCE, QUIET, REPAIRED, Story, finish, first_minute, repair
from tests.chaos.engine import engine_beside
from tests.support import wait_for

KILLED = -9
# The appends of one story, in order: the deployment is saved with its versions, caught up, bounded for the comparison,
# let go, waiting, approved, switched, rolled back, then most of that again, repaired. How often it is bounded depends
# on what it finds.
LEAST_APPENDS, MOST_APPENDS = 12, 60
BY_HAND, WITH_SPARK = Story(False), Story(True)


def every_point(most: int = MOST_APPENDS) -> list[str]:
    return [f"{when} {number}" for number in range(1, most) for when in ("before", "after")]


def die(folder: Path, point: str, story: Story = BY_HAND) -> bool:
    """Deploy in a process that kills itself there; False if it was done before."""
    command = [sys.executable, "-m", "tests.chaos.deploying", str(folder), *point.split()]
    command += ["--spark"] if story.spark else []
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert ended.returncode in (KILLED, 0), ended.stderr
    return ended.returncode == KILLED


def check_one_serves(services: Services, story: Story) -> int:
    """All names of the deployment are at one version, which is there, with the rows that were written for it."""
    state, views = services.catalog.state, [services.followers.view(name) for name in NAMES]

    def as_one() -> bool:
        """What was approved goes on by itself, and may be switched just now."""
        nonlocal state, views
        state, views = services.catalog.state, [services.followers.view(name) for name in NAMES]
        return all(view.version == state.serving[view.source.name] for view in views)

    wait_for(as_one, PATIENCE, "the versions that serve")
    [serving] = {state.serving[name] for name in NAMES}
    count = story.counts[serving]
    for name, view in zip(NAMES, views, strict=True):
        states = [version.state for version in state.versions[name].values()]
        assert states.count("serving") == 1, states
        assert state.sources[name] == state.versions[name][serving].source
        wait_for(lambda: view.select(["N"])[0].rows == [(count,)], PATIENCE, "its rows")  # noqa: B023
    return serving


def rolled_back(services: Services) -> int:
    return sum(1 for deployment in services.catalog.deployments() if deployment.stage == "rolled back")


def recover(folder: Path, story: Story = BY_HAND) -> None:
    """One version serves, the deployment goes on to its end and back, and what came late is counted, once."""
    with open_services(load_project(folder), SystemClock()) as services:
        serving = check_one_serves(services, story)
        if services.catalog.deployments()[-1].stage == "rolled back":
            assert serving == 1
        # The change, and the same again from what is kept of it.
        while rolled_back(services) < 2:
            assert finish(services, story) == "switched"
            assert check_one_serves(services, story) == 2
            assert all(query.until is None for query in services.catalog.queries())
            services.deployments.rollback("BY_PAGE")
            assert check_one_serves(services, story) == 1
        if story.spark:
            assert repair(services) <= 1
            wait_for(lambda: first_minute(services) == [(0, REPAIRED)], PATIENCE, "the repaired minute")
            assert repair(services) == 0


def survive(folder: Path, point: str, spark: SparkSession | None = None) -> bool:
    """Killed there, it goes on; False if the story was over before."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "headrace.toml").write_text(QUIET)
    story = BY_HAND if spark is None else WITH_SPARK
    with nullcontext() if spark is None else engine_beside(folder, spark):
        killed = die(folder, point, story)
        if killed:
            recover(folder, story)
        return killed


def sweep(say: Callable[[str], None], spark: SparkSession | None = None) -> int:
    """Every point, until the story is over before it; how many there were."""
    for count, point in enumerate(every_point()):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            if not survive(Path(folder), point, spark):
                return count
        say(f"killed {point}: goes on")
    return len(every_point())


if __name__ == "__main__":
    settings = SparkSettings(master="local[2]", memory="1g", shuffle_partitions=1)
    session = spark_session(settings, "headrace chaos") if "--spark" in sys.argv else None
    points = sweep(lambda text: print(text, flush=True), session)
    assert points >= 2 * LEAST_APPENDS, f"only {points} points"
    print(f"{points} points, each survived")
