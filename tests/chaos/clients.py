"""Real clients of trackers, CloudEvents and OpenTelemetry, while the server is killed: each event once.

Seven clients send numbered events at once, in processes of their own, each by its own rules of retrying; the server is
killed with kill -9 at random moments and started again. At the end each client's numbers must be in its topic, once.

    python -m tests.chaos.clients --events 5000 --kills 20 --seed 7
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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support import free_port, let_pass, wait_for

ROOT = Path(__file__).parents[2]
NODE = ROOT / "tests" / "clients" / "node"
PATIENCE_S = 120.0
SQL = """
CREATE STREAM {topic} (n BIGINT, properties STRUCT<n BIGINT>, attributes STRUCT<n BIGINT>, data STRUCT<n BIGINT>,
    se_value DOUBLE) WITH (KAFKA_TOPIC='{topic}', VALUE_FORMAT='JSON', PARTITIONS=1);
"""
COLLECTORS = {
    "segment": ("segment", 'keys = ["w1"]'),
    "segment_node": ("segment", 'keys = ["w2"]'),
    "snowplow": ("snowplow", ""),
    "posthog": ("posthog", 'keys = ["phc_1"]'),
    "cloudevents": ("cloudevents", ""),
    "otlp": ("otlp", ""),
}
SENDERS = {"segment": 1, "segment_node": 1, "snowplow": 2, "posthog": 1, "cloudevents": 1, "otlp": 1}
"""How many clients send all the numbers to a topic."""


@dataclass
class Outcome:
    kills: int = 0
    wrong: dict[str, str] = field(default_factory=dict)
    """Topic → what is missing or too much in it."""

    @property
    def good(self) -> bool:
        return not self.wrong


class Server:
    """The server process, on one port, killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30, trust_env=False)
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "headrace.server.main", "--project", str(self.folder)]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--port", str(self.port)], stderr=log, cwd=ROOT)
        wait_for(lambda: "the pipelines" not in self.http.get("/readyz").json()["waiting_for"], 60, "the server")

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self.http.close()

    def stored(self, topic: str) -> int:
        count: int = self.http.get(f"/v1/topics/{topic}").json()["records"]
        return count

    def numbers(self, topic: str) -> Iterator[int]:
        offset = 0
        while True:
            page = self.http.get(
                f"/v1/topics/{topic}/records", params={"partition": 0, "offset": offset, "limit": 1000}
            )
            events: list[dict[str, Any]] = page.raise_for_status().json()["records"]
            if not events:
                return
            yield from map(number_of, events)
            offset = events[-1]["offset"] + 1


def number_of(event: dict[str, Any]) -> int:
    value = event["value"]
    inner = value["properties"] or value["attributes"] or value["data"] or {"n": value["se_value"]}
    return int(inner["n"])


def write_project(folder: Path) -> None:
    (folder / "pipelines").mkdir()
    (folder / "collectors").mkdir()
    (folder / "headrace.toml").write_text("")
    (folder / "pipelines" / "all.sql").write_text("".join(SQL.format(topic=topic) for topic in COLLECTORS))
    for name, (kind, more) in COLLECTORS.items():
        text = f'type = "{kind}"\ntopic = "{name}"\n{more}\n'
        (folder / "collectors" / f"{name}.toml").write_text(text)


@contextmanager
def client(command: list[str], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of clients. What they say goes to a file: a pipe that nobody reads would stop them."""
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run(folder: Path, events: int, kills: int, seed: int, say: Callable[[str], object] = print) -> Outcome:
    chance = random.Random(seed)
    write_project(folder)
    server, outcome = Server(folder), Outcome()
    expected = {topic: events * senders for topic, senders in SENDERS.items()}
    with ExitStack() as closing:
        closing.callback(server.close)
        numbers = [str(server.port), str(events)]
        commands = {
            "python": ([sys.executable, "-m", "tests.clients.trackers", *numbers], ROOT),
            "node": (["node", "trackers.js", *numbers], NODE),
        }
        clients = {
            name: closing.enter_context(client(command, where, folder / f"{name}.log"))
            for name, (command, where) in commands.items()
        }
        for number in range(kills):
            # Not before all have sent something since the last time.
            share = {topic: count * (number + 1) // (kills * 4 + 4) for topic, count in expected.items()}
            wait_for(lambda share=share: _all(server, share), PATIENCE_S, f"events before kill {number}")  # type: ignore[misc]
            let_pass(chance.uniform(0.0, 0.3))
            server.kill()
            let_pass(chance.choice([0.0, 0.0, 0.5]))
            server.start()
            outcome.kills += 1
            say(f"kill {outcome.kills}: { ({topic: server.stored(topic) for topic in expected}) }")
        wait_for(lambda: _all(server, expected) or _failed(clients), PATIENCE_S, f"all events of {expected}")
        for name in clients:
            if clients[name].poll():
                outcome.wrong[name] = (folder / f"{name}.log").read_text()[-2000:]
        for topic, senders in SENDERS.items():
            found = Counter(server.numbers(topic))
            if found != Counter(dict.fromkeys(range(events), senders)):
                missing = sum(max(0, senders - found[number]) for number in range(events))
                outcome.wrong[topic] = f"{missing} missing, {sum(found.values()) - events * senders + missing} too much"
    return outcome


def _all(server: Server, expected: dict[str, int]) -> bool:
    return all(server.stored(topic) >= count for topic, count in expected.items())


def _failed(clients: dict[str, subprocess.Popen[bytes]]) -> bool:
    return any(one.poll() for one in clients.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder:
        outcome = run(Path(folder), options.events, options.kills, options.seed)
    print(json.dumps({"kills": outcome.kills, "wrong": outcome.wrong}))
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
