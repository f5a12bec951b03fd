"""kill -9 before and after every record that a deployment writes: afterwards one version serves, and it goes on.

python -m tests.chaos.deploy
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from headrace.clock import SystemClock
from headrace.config import load_project
from headrace.server.assemble import open_services
from headrace.server.services import Services
from tests.chaos.deploying import NAMES, PATIENCE, QUIET, finish
from tests.support import wait_for

KILLED = -9
# The appends of one story, in order: the deployment is saved with its versions, caught up, bounded for the comparison,
# let go, waiting, approved, switched, rolled back. How often it is bounded depends on what it finds.
LEAST_APPENDS, MOST_APPENDS = 7, 30


def every_point(most: int = MOST_APPENDS) -> list[str]:
    return [f"{when} {number}" for number in range(1, most) for when in ("before", "after")]


def die(folder: Path, point: str) -> bool:
    """Deploy in a process that kills itself there; False if it was done before."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "headrace.toml").write_text(QUIET)
    command = [sys.executable, "-m", "tests.chaos.deploying", str(folder), *point.split()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode in (KILLED, 0), ended.stderr
    return ended.returncode == KILLED


def check_one_serves(services: Services) -> int:
    """All names of the deployment are at one version, which is there, with the rows that were written for it."""
    state = services.catalog.state
    [serving] = {state.serving[name] for name in NAMES}
    count = {1: 5, 2: 7}[serving]
    for name in NAMES:
        states = [version.state for version in state.versions[name].values()]
        assert states.count("serving") == 1, states
        assert state.sources[name] == state.versions[name][serving].source
        view = services.followers.view(name)
        assert view.version == serving
        wait_for(lambda: view.select(["N"])[0].rows == [(count,)], PATIENCE, "its rows")  # noqa: B023
    return serving


def recover(folder: Path) -> None:
    """One version serves, and the deployment goes on to its end and back."""
    with open_services(load_project(folder), SystemClock()) as services:
        serving = check_one_serves(services)
        if any(deployment.stage == "rolled back" for deployment in services.catalog.deployments()):
            assert serving == 1
            return
        assert finish(services) == "switched"
        assert check_one_serves(services) == 2
        assert all(query.until is None for query in services.catalog.queries())
        services.deployments.rollback("BY_PAGE")
        assert check_one_serves(services) == 1


def sweep(say: Callable[[str], None]) -> int:
    """Every point, until the story is over before it; how many there were."""
    for count, point in enumerate(every_point()):
        with tempfile.TemporaryDirectory() as folder:
            if not die(Path(folder), point):
                return count
            recover(Path(folder))
        say(f"killed {point}: goes on")
    return len(every_point())


if __name__ == "__main__":
    points = sweep(lambda text: print(text, flush=True))
    assert points >= 2 * LEAST_APPENDS, f"only {points} points"
    print(f"{points} points, each survived")
