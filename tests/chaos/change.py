"""kill -9 while a running pipeline is changed, with Spark computing and events arriving.

Somebody deploys one change after the other, approves or cancels, rolls back, repairs what came late and gives up old
versions; somebody else sends events; and the server, the engine, the supervisor or all of them are killed: right after
each named point (`STAGES`, each with each victim), and at random moments. Afterwards exactly one version serves, it is
what DuckDB computes from the events that were acknowledged, what was begun has come to its end, and so has the way
back.

    python -m tests.chaos.change --points --rounds 100 --seed 7
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import httpx

from tests.chaos.crash import START_MS, VICTIMS, Client, Installation, ready
from tests.support import wait_for

PIPELINE = """
CREATE STREAM clicks (user_id VARCHAR KEY, page VARCHAR, amount BIGINT, at TIMESTAMP)
  WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', TIMESTAMP='at', PARTITIONS=2);
CREATE TABLE by_page AS
  SELECT page, COUNT(*) AS clicks, SUM(amount) AS amount FROM clicks WHERE amount >= 0 GROUP BY page;
CREATE TABLE busy AS SELECT page, clicks FROM by_page WHERE clicks > 5;
CREATE TABLE per_minute AS
  SELECT page, COUNT(*) AS clicks FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 5 SECONDS) GROUP BY page;
"""
STAGES = ("building", "comparing", "waiting", "switching", "switched", "rolled back", "cancelled", "repairing")
OVER = ("switched", "cancelled", "failed", "rolled back")
TABLES = ("by_page", "busy")
LOWEST = re.compile(r"amount >= (\d+)")
PATIENCE = 180.0


@dataclass
class Outcome:
    kills: Counter[str] = field(default_factory=Counter)
    deployments: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.acknowledged > 0 and bool(self.deployments) and not self.problems

    def __str__(self) -> str:
        kills = ", ".join(f"{count} × {what}" for what, count in sorted(self.kills.items()))
        ends = ", ".join(f"{count} {stage}" for stage, count in sorted(self.deployments.items()))
        lines = [f"{sum(self.kills.values())} kills ({kills}); deployments: {ends}; {self.acknowledged} events"]
        return "\n".join(lines + self.problems[:20])


class Sender(Client):
    """One in a hundred comes too late: there is something to repair, and not everything."""

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        for batch in super().batches():
            for event in batch:
                late = self.random.randrange(60_000) if self.random.random() < 0.01 else 0
                event["at"] = START_MS + event["n"] * 20 - late
            yield batch
            self.finish.wait(0.02)


class Operator(threading.Thread):
    """Changes the pipeline, one change after the other. Whatever is not answered is asked again: it may have been
    done."""

    def __init__(self, installation: Installation, seed: int) -> None:
        super().__init__(daemon=True)
        self.url, self.random = installation.url, random.Random(seed)
        self.finish, self.turn = threading.Event(), 0
        self.stage, self.moves = "", 0
        """What was last seen of it, and how often that was something else than before."""
        self.wish = ""
        """A stage that somebody waits for."""
        self.ended: dict[int, str] = {}
        self.failure: str | None = None

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=30, trust_env=False) as http:
            while not self.finish.wait(0.02):
                try:
                    self.step(http)
                except httpx.TransportError:
                    continue
                except Exception as error:
                    self.failure = repr(error)
                    return

    def step(self, http: httpx.Client) -> None:
        """Whatever comes next, by what the server says."""
        answer = http.get("/v1/deployments")
        if answer.status_code != 200:
            return
        newest = next(iter(answer.json()["deployments"]), None)
        self._see(newest["stage"] if newest else "")
        if newest is None or newest["stage"] in OVER:
            if newest is not None and newest["id"] not in self.ended:
                self._after(http, newest)
            else:
                self._begin(http)
        elif newest["stage"] == "waiting":
            cancels = self.wish == "cancelled" or (not self.wish and self.random.random() < 0.2)
            answer = http.post(f"/v1/deployments/{newest['id']}/{'cancel' if cancels else 'approve'}")
            # `switching` is over before the next look.
            self._see(answer.json().get("stage", self.stage))
        elif newest["stage"] == "building" and self.random.random() < 0.05:
            http.post(f"/v1/deployments/{newest['id']}/{self.random.choice(('pause', 'throttle'))}", json=PACE)
            http.post(f"/v1/deployments/{newest['id']}/resume")
        elif newest["paused"]:
            # Whoever paused it was told that the server had gone.
            http.post(f"/v1/deployments/{newest['id']}/resume")

    def _see(self, stage: str) -> None:
        self.moves += stage != self.stage
        self.stage = stage

    def _begin(self, http: httpx.Client) -> None:
        self.turn += 1
        sql = PIPELINE.replace("amount >= 0", f"amount >= {self.turn % 90 + 1}")
        http.post("/v1/deployments", json={"files": {"pipelines/pipeline.sql": sql}})

    def _after(self, http: httpx.Client, deployment: dict[str, Any]) -> None:
        """Once it is over: perhaps back, then room for the next."""
        back = self.wish == "rolled back" or (not self.wish and self.random.random() < 0.4)
        if deployment["stage"] == "switched" and back:
            http.post("/v1/views/by_page/rollback")
            return  # the next step sees it rolled back
        self._see("repairing")
        http.post("/v1/views/per_minute/repair", json={})
        if deployment["stage"] == "failed":
            http.post(f"/v1/deployments/{deployment['id']}/cancel")
        for view in TABLES:
            http.post(f"/v1/views/{view}/forget")
        self.ended[deployment["id"]] = deployment["stage"]


PACE = {"rows_per_second": 0}


def one_serves(installation: Installation) -> list[str]:
    """Of every table exactly one version serves, and it is the one that is read."""
    found = []
    for view in TABLES:
        versions = installation.get(f"/v1/views/{view}/versions")["versions"]
        serving = [version["version"] for version in versions if version["state"] == "serving"]
        shown = installation.get(f"/v1/views/{view}")["version"]
        if serving != [shown]:
            found.append(f"{view}: {serving} serve, {shown} is read")
    return found


def check_rows(installation: Installation, ledger: Path, outcome: Outcome) -> None:
    """The tables as the serving version's own definition makes them of the ledger."""
    versions = installation.get("/v1/views/by_page/versions")["versions"]
    [statement] = [version["statement"] for version in versions if version["state"] == "serving"]
    [lowest] = LOWEST.findall(statement)
    truth = duckdb.connect()
    truth.execute(f"CREATE TABLE ledger AS SELECT * FROM read_json('{ledger}', format='newline_delimited')")
    by_page = f"SELECT page, count(*) AS n, sum(amount)::BIGINT FROM ledger WHERE amount >= {lowest} GROUP BY page"
    for name, ours, theirs in (
        ("by_page", "SELECT page, clicks, amount FROM by_page;", by_page),
        ("busy", "SELECT page, clicks FROM busy;", f"SELECT page, n FROM ({by_page}) WHERE n > 5"),
        (
            "per_minute",
            "SELECT page, WINDOWSTART AS w, clicks FROM per_minute;",
            'SELECT page, ("at" // 60000) * 60000, count(*) FROM ledger GROUP BY ALL',
        ),
    ):
        mine = Counter(tuple(row) for row in installation.query(ours))
        right = Counter(tuple(row) for row in truth.execute(theirs).fetchall())
        outcome.problems += [f"{name}, amount >= {lowest}: missing or wrong {row}" for row in right - mine]
        outcome.problems += [f"{name}, amount >= {lowest}: should not be {row}" for row in mine - right]


def caught_up(installation: Installation) -> bool:
    installation.ensure_up()
    queries = installation.get("/v1/queries")["queries"]
    views = installation.get("/v1/views")["views"]
    return all(query["state"] == "running" and query["lag"] == 0 for query in queries) and all(
        view["lag"] == 0 for view in views
    )


def settle(installation: Installation, outcome: Outcome) -> None:
    """Whatever was begun is brought to its end by asking for it again."""

    def over() -> bool:
        installation.ensure_up()
        newest = installation.get("/v1/deployments")["deployments"][0]
        if newest["stage"] == "waiting":
            httpx.post(f"{installation.url}/v1/deployments/{newest['id']}/approve", timeout=30)
        if newest["paused"]:
            httpx.post(f"{installation.url}/v1/deployments/{newest['id']}/resume", timeout=30)
        return newest["stage"] in OVER

    wait_for(over, PATIENCE, "the last deployment to end")
    wait_for(lambda: caught_up(installation), PATIENCE, "the queries to catch up")
    wait_for(lambda: _repaired(installation), PATIENCE, "the last repair")
    wait_for(lambda: caught_up(installation), PATIENCE, "the views to show it")
    outcome.problems += one_serves(installation)


def _repaired(installation: Installation) -> bool:
    answer = httpx.post(f"{installation.url}/v1/views/per_minute/repair", json={}, timeout=120)
    return answer.status_code == 200 and answer.json()["revised"] == 0 and answer.json()["waiting"] == 0


def moments(points: bool, rounds: int, chance: random.Random) -> Iterator[tuple[str, str]]:
    """(when, whom): every named point with every victim, then random moments."""
    if points:
        yield from itertools.product(STAGES, VICTIMS)
    for _ in range(rounds):
        yield "at random", chance.choice(VICTIMS)


def run(
    folder: Path, points: bool, rounds: int, seed: int, minutes: float, say: Callable[[str], None] = lambda line: None
) -> Outcome:
    chance, outcome, deadline = random.Random(seed), Outcome(), time.monotonic() + 60 * minutes
    installation, ledger = Installation(folder / "project", PIPELINE), folder / "ledger.jsonl"
    client, operator = Sender(installation, ledger, seed), Operator(installation, seed)
    try:
        installation.up()
        wait_for(lambda: ready(installation), 90, "the first start")
        client.start()
        operator.start()
        for when, victim in moments(points, rounds, chance):
            _strike(installation, operator, when, victim, chance, outcome)
            say(f"{sum(outcome.kills.values())}: killed {victim}, {when}; {operator.stage}, {len(operator.ended)} over")
            outcome.problems += [failure for failure in (client.failure, operator.failure) if failure]
            if outcome.problems:
                return outcome
            if time.monotonic() > deadline:
                break
        for thread in (operator, client):
            thread.finish.set()
            thread.join(200)
        outcome.acknowledged = client.acknowledged
        settle(installation, outcome)
        outcome.deployments += Counter(d["stage"] for d in installation.get("/v1/deployments")["deployments"])
        check_rows(installation, ledger, outcome)
        if httpx.post(f"{installation.url}/v1/views/by_page/rollback", timeout=60).status_code == 200:
            say("rolled back")
            settle(installation, outcome)
            check_rows(installation, ledger, outcome)
        return outcome
    finally:
        client.finish.set()
        operator.finish.set()
        installation.down()


def _strike(
    installation: Installation, operator: Operator, when: str, victim: str, chance: random.Random, outcome: Outcome
) -> None:
    """Kill, then see that one version serves. A stage that does not come in time is struck wherever it is."""
    pause = threading.Event()
    if when == "at random":
        # A real pause: the moment of the kill is what is tried here. Mostly something is being done again then, but
        # an engine that is killed before it runs would never get anywhere. By stages and not by the clock, or a slow
        # machine would meet nothing but builds.
        if chance.random() < 0.8:
            wait_for(lambda: ready(installation), PATIENCE, "the engine")
            goal = operator.moves + chance.randrange(5)
            wait_for(lambda: operator.moves >= goal or bool(operator.failure), PATIENCE, "the change to get on")
        pause.wait(chance.uniform(0.0, 3.0))
    else:
        installation.ensure_up()
        operator.stage, operator.wish = "", when
        for _ in range(int(PATIENCE / 0.02)):
            if operator.stage == when or operator.failure:
                break
            pause.wait(0.02)
        else:
            when = f"not {when}"
        operator.wish = ""
    installation.ensure_up()
    if installation.kill(victim):
        outcome.kills[f"{victim} {when}"] += 1
    installation.ensure_up()
    wait_for(lambda: httpx.get(f"{installation.url}/healthz", timeout=5).status_code == 200, 60, "the server")
    wait_for(lambda: not one_serves(installation), 30, "exactly one version to serve")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", action="store_true", help="every named point with every victim first")
    parser.add_argument("--rounds", type=int, default=100, help="random moments")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--minutes", type=float, default=60, help="kill nobody any more after this")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        outcome = run(
            Path(folder),
            options.points,
            options.rounds,
            options.seed,
            options.minutes,
            lambda line: print(line, flush=True),
        )
    print(outcome)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
