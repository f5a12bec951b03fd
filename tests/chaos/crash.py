"""Kill -9 under load, and count: every acknowledged event is in the tables, once.

A client sends events in numbered batches, each with an idempotency key, and tries a batch again until it is
acknowledged; only then it goes into a ledger outside the system. Meanwhile the owner, the engine, the supervisor
or all of them are killed at random moments, each at least once. At the end the topic must hold exactly the ledger's
events, and the tables must be what DuckDB computes from the ledger.

    python -m tests.chaos.crash --rounds 300 --seed 7
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
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

from tests.support import free_port, wait_for

PIPELINE = """
CREATE STREAM clicks (user_id VARCHAR KEY, page VARCHAR, amount BIGINT, at TIMESTAMP)
  WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', TIMESTAMP='at', PARTITIONS=2);
CREATE TABLE clicks_by_page AS
  SELECT page, COUNT(*) AS clicks, SUM(amount) AS amount FROM clicks GROUP BY page;
CREATE TABLE clicks_per_minute AS
  SELECT page, COUNT(*) AS clicks, COUNT_DISTINCT(user_id) AS users
  FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY page;
CREATE STREAM big_clicks AS SELECT user_id, page, amount FROM clicks WHERE amount > 50;
"""
VICTIMS = ("server", "engine", "supervisor", "everything")
START_MS = 1_790_000_000_000


@dataclass
class Outcome:
    acknowledged: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    twice: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.acknowledged > 0 and not (self.lost or self.twice or self.differences)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} × {victim}" for victim, count in sorted(self.kills.items()))
        lines = [f"{self.acknowledged} acknowledged, kills: {kills}; lost {self.lost}, twice {self.twice}"]
        return "\n".join(lines + self.differences[:20])


class Installation:
    """One project, started and killed as a user's would be."""

    def __init__(self, folder: Path, pipeline: str = PIPELINE) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "pipelines").mkdir(parents=True)
        (folder / "pipelines" / "pipeline.sql").write_text(pipeline)
        (folder / "headrace.toml").write_text(f'[server]\nport = {self.port}\n[spark]\nmemory = "1g"\n')
        self.supervisor: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        output = (self.folder / "up.log").open("ab")
        self.supervisor = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "up", "--project", str(self.folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def ensure_up(self) -> None:
        if self.supervisor is None or self.supervisor.poll() is not None:
            self.up()

    def pids(self, role: str) -> list[int]:
        """Processes of this project, by the module they run."""
        module = {"server": "headrace.server.main", "engine": "headrace.coordinate.engine"}.get(
            role, "headrace.cli.main"
        )
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                except OSError:
                    continue
                if str(self.folder) in words and module in words:
                    found.append(int(entry.name))
        return found

    def kill(self, victim: str) -> bool:
        roles = ("supervisor", "server", "engine") if victim == "everything" else (victim,)
        killed = False
        for role in roles:
            for pid in self.pids(role):
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed = True
                except ProcessLookupError:
                    continue
        if self.supervisor is not None and victim in ("supervisor", "everything"):
            self.supervisor.wait(120)
        return killed

    def down(self) -> None:
        if self.supervisor is not None and self.supervisor.poll() is None:
            self.supervisor.send_signal(signal.SIGINT)
            try:
                self.supervisor.wait(60)
            except subprocess.TimeoutExpired:
                self.kill("everything")

    def get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = httpx.get(self.url + path, timeout=60).raise_for_status().json()
        return answer

    def query(self, sql: str) -> list[list[Any]]:
        answer = httpx.post(f"{self.url}/v1/query", json={"sql": sql, "limit": 10_000}, timeout=90).raise_for_status()
        rows: list[list[Any]] = answer.json()["rows"]
        return rows


class Client(threading.Thread):
    """Sends batches until told to stop; what is in `ledger` was acknowledged."""

    def __init__(self, installation: Installation, ledger: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.installation = installation
        self.ledger = ledger
        self.random = random.Random(seed)
        self.acknowledged = 0
        self.finish = threading.Event()
        self.failure: str | None = None

    def run(self) -> None:
        try:
            with self.ledger.open("a") as ledger, httpx.Client(timeout=60) as http:
                for number, batch in enumerate(self.batches()):
                    self.send(http, number, batch)
                    ledger.writelines(json.dumps(event) + "\n" for event in batch)
                    ledger.flush()
                    self.acknowledged += len(batch)
                    if self.finish.is_set():
                        return
        except Exception as error:
            self.failure = repr(error)

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        number = 0
        while True:
            batch = []
            for _ in range(self.random.choice((1, 5, 20, 100))):
                number += 1
                # Out of order by up to a minute, never beyond the default grace.
                at = START_MS + number * 20 - self.random.randrange(60_000)
                page, user = f"/p{self.random.randrange(20)}", f"u{self.random.randrange(200)}"
                batch.append(
                    {"user_id": user, "page": page, "amount": self.random.randrange(100), "at": at, "n": number}
                )
            yield batch

    def send(self, http: httpx.Client, number: int, batch: list[dict[str, Any]]) -> None:
        deadline = time.monotonic() + 600
        while True:
            try:
                answer = http.post(
                    f"{self.installation.url}/v1/topics/clicks/events",
                    json=batch,
                    headers={"Idempotency-Key": f"batch-{number}"},
                )
                if answer.status_code == 200:
                    said = answer.json()
                    if said["accepted"] + said["duplicates"] != len(batch):
                        raise AssertionError(f"batch {number}: {said}")
                    return
                if answer.status_code < 500 and answer.status_code not in (404, 429):
                    raise AssertionError(f"batch {number}: {answer.status_code} {answer.text}")
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"batch {number} was not taken for ten minutes")
            self.finish.wait(0.05)


def ready(installation: Installation) -> bool:
    return httpx.get(f"{installation.url}/readyz", timeout=20).status_code == 200


def caught_up(installation: Installation, acknowledged: int) -> bool:
    """All queries have read every event, all views have applied what the queries wrote."""
    installation.ensure_up()
    topic = installation.get("/v1/topics/clicks")
    queries = installation.get("/v1/queries")["queries"]
    views = installation.get("/v1/views")["views"]
    return (
        topic["records"] >= acknowledged
        and len(queries) == 3
        and all(query["state"] == "running" and query["lag"] == 0 for query in queries)
        and all(view["lag"] == 0 for view in views)
    )


def compare(installation: Installation, ledger: Path, outcome: Outcome) -> None:
    rows = installation.query
    sent = Counter(json.loads(line)["n"] for line in ledger.read_text().splitlines())
    stored = stored_numbers(installation)
    outcome.lost = sum((sent - stored).values())
    outcome.twice = sum((stored - sent).values())
    truth = duckdb.connect()
    truth.execute(f"CREATE TABLE ledger AS SELECT * FROM read_json('{ledger}', format='newline_delimited')")

    def check(name: str, ours: list[list[Any]], sql: str) -> None:
        theirs = Counter(tuple(row) for row in truth.execute(sql).fetchall())
        mine = Counter(tuple(row) for row in ours)
        outcome.differences += [f"{name}: missing or wrong {row}" for row in (theirs - mine)]
        outcome.differences += [f"{name}: should not be {row}" for row in (mine - theirs)]

    check(
        "clicks_by_page",
        rows("SELECT page, clicks, amount FROM clicks_by_page;"),
        "SELECT page, count(*), sum(amount)::BIGINT FROM ledger GROUP BY page",
    )
    check(
        "clicks_per_minute",
        rows("SELECT page, WINDOWSTART AS w, clicks, users FROM clicks_per_minute;"),
        'SELECT page, ("at" // 60000) * 60000, count(*), count(DISTINCT user_id) FROM ledger GROUP BY ALL',
    )
    check(
        "big_clicks",
        [[len(list(events(installation, "BIG_CLICKS")))]],
        "SELECT count(*) FROM ledger WHERE amount > 50",
    )


def events(installation: Installation, topic: str) -> Iterator[dict[str, Any]]:
    """Every event of a topic, through the public API."""
    for part in installation.get(f"/v1/topics/{topic}")["partitions"]:
        offset = part["start"]
        while offset < part["end"]:
            answer = installation.get(
                f"/v1/topics/{topic}/events?partition={part['partition']}&from={offset}&limit=1000"
            )
            yield from answer["events"]
            offset = answer["events"][-1]["offset"] + 1


def stored_numbers(installation: Installation) -> Counter[int]:
    return Counter(event["rest"]["n"] for event in events(installation, "clicks"))


def run(folder: Path, rounds: int, seed: int, say: Callable[[str], None] = lambda line: None) -> Outcome:
    chance = random.Random(seed)
    installation = Installation(folder / "project")
    ledger = folder / "ledger.jsonl"
    outcome = Outcome()
    client = Client(installation, ledger, seed)
    untried = chance.sample(VICTIMS, len(VICTIMS))
    try:
        installation.up()
        wait_for(lambda: ready(installation), 90, "the first start")
        client.start()
        while sum(outcome.kills.values()) < rounds:
            # A real pause: the moment of the kill is what is tried here.
            threading.Event().wait(chance.uniform(0.2, 9.0))
            installation.ensure_up()
            victim = untried[-1] if untried else chance.choice(VICTIMS)
            if installation.kill(victim):
                outcome.kills[victim] += 1
                del untried[-1:]
                say(f"{sum(outcome.kills.values())}: killed {victim}; {client.acknowledged} acknowledged so far")
            installation.ensure_up()
            if client.failure:
                break
        installation.ensure_up()
        client.finish.set()
        client.join(620)
        if client.failure or client.is_alive():
            outcome.differences.append(client.failure or "the client never finished")
            return outcome
        outcome.acknowledged = client.acknowledged
        wait_for(lambda: caught_up(installation, client.acknowledged), 180, "the queries to catch up")
        compare(installation, ledger, outcome)
        return outcome
    finally:
        client.finish.set()
        installation.down()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        outcome = run(Path(folder), options.rounds, options.seed, lambda line: print(line, flush=True))
    print(outcome)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
