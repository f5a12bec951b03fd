"""Agents under kill -9: every line of the files is in the log, once.

A file grows, is rotated by renaming and by truncating, and is followed by an agent with its channel on disk, which
writes to a server's log; agent and server are killed meanwhile. Then the same through a chain of three agents, the
middle one of which is away for a while.

    python -m tests.chaos.agents --rotations 50 --kills 10 --away 60 --seed 7
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.local import LocalLog
from tests.support import free_port, let_pass, wait_for

TOPIC = "lines"
PATIENCE_S = 60


@dataclass(frozen=True)
class Outcome:
    written: int
    kills: int
    lost: int
    twice: int

    @property
    def good(self) -> bool:
        return self.written > 0 and not (self.lost or self.twice)


class Place:
    """A project with a server, agents beside it, and a file that grows. Everything can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project = folder, folder / "project"
        self.logs = folder / "logs"
        for made in (self.project, self.logs):
            made.mkdir()
        (self.project / "headrace.toml").write_text("")
        self.port = free_port()
        self.file = self.logs / "app.log"
        self.written = self.kills = self.rotations = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start_server(self) -> None:
        """Waited for: without one, an agent would become the log's owner."""
        self._start("server", ["headrace.server.main", "--project", str(self.project), "--port", str(self.port)])
        url = f"http://127.0.0.1:{self.port}/healthz"
        wait_for(lambda: httpx.get(url, timeout=30, trust_env=False).status_code == 200, PATIENCE_S, "the server")

    def start_agent(self, name: str, conf: str) -> None:
        file = self.folder / f"{name}.properties"
        file.write_text(conf)
        more = ["--project", str(self.project)] if "headrace" in conf else []
        self._start(name, ["headrace.cli.main", "agent", "run", "--name", name, "--conf", str(file), *more])

    def _start(self, name: str, module: list[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *module], cwd=self.folder, stdout=out, stderr=out, start_new_session=True
            )

    def kill(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait(120)
        self.kills += 1

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(120)

    def write(self, count: int) -> None:
        with self.file.open("a") as out:
            for number in range(self.written, self.written + count):
                out.write(f"line number {number}\n")
        self.written += count

    def rename(self) -> None:
        self.rotations += 1
        self.file.rename(self.logs / f"app.log.{self.rotations}")

    def truncate(self) -> None:
        """What nobody has read when a file is truncated is gone, whoever reads: so it is read first."""
        self.wait_stored()
        self.rotations += 1
        os.truncate(self.file, 0)

    def stored(self) -> int:
        found = httpx.get(f"http://127.0.0.1:{self.port}/v1/topics/{TOPIC}", timeout=30, trust_env=False)
        return int(found.json()["records"]) if found.status_code == 200 else 0

    def wait_stored(self) -> None:
        wait_for(lambda: self.stored() >= self.written, PATIENCE_S, f"{self.written} lines")

    def outcome(self) -> Outcome:
        """From the log itself, after everybody has gone."""
        self.close()
        log = LocalLog(self.project / ".headrace" / "log", LogSettings(), SystemClock(), serve=False)
        try:
            [ends] = log.snapshot().ends[TOPIC]
            read = log.read(TOPIC, 0, ends.start, ends.end, ["VALUE"])
            found = Counter(int(value.split()[-1]) for records in read for value in records.batch["VALUE"].to_pylist())
        finally:
            log.close()
        lost = len(set(range(self.written)) - set(found))
        return Outcome(self.written, self.kills, lost, sum(count - 1 for count in found.values()))


def agent_conf(name: str, folder: Path, source: Sequence[str], sink: Sequence[str]) -> str:
    parts = {
        "sources.r": [*source, "channels = c"],
        "channels.c": ["type = file", f"dataDirs = {folder / f'{name}-channel'}", "minimumRequiredSpace = 0"],
        "sinks.k": [*sink, "channel = c"],
    }
    lines = [f"{name}.sources = r", f"{name}.channels = c", f"{name}.sinks = k"]
    return "\n".join([*lines, *(f"{name}.{part}.{line}" for part, told in parts.items() for line in told)]) + "\n"


def tail_source(place: Place) -> list[str]:
    positions = place.folder / "positions.json"
    return [
        "type = TAILDIR",
        "filegroups = f",
        f"filegroups.f = {place.logs}/app[.]log.*",
        f"positionFile = {positions}",
    ]


LOG_SINK = ("type = headrace", f"topic = {TOPIC}", "batchSize = 50")


def through_rotations(folder: Path, rotations: int, kills: int, seed: int = 7, lines: int = 150) -> Outcome:
    """The agent is killed, and now and then the server."""
    place, chance = Place(folder), random.Random(seed)
    conf = agent_conf("a1", folder, tail_source(place), LOG_SINK)
    fatal = {chance.randrange(rotations) for _ in range(kills)} | set(range(min(kills, rotations)))
    fatal = set(chance.sample(sorted(fatal), kills))
    try:
        place.start_server()
        place.start_agent("a1", conf)
        for rotation in range(rotations):
            for _ in range(3):
                place.write(chance.randrange(1, lines))
                let_pass(chance.random() * 0.05)
            if rotation in fatal:
                # Not before it has something to forget.
                wait_for(lambda: place.stored() > 0, PATIENCE_S, "the first lines")
                victim = "server" if chance.random() < 0.3 else "a1"
                place.kill(victim)
                place.write(chance.randrange(1, lines))
                place.rename()
                place.write(chance.randrange(1, lines))
                place.start_server() if victim == "server" else place.start_agent("a1", conf)
            elif chance.random() < 0.3:
                place.truncate()
            else:
                place.rename()
        place.wait_stored()
        return place.outcome()
    finally:
        place.close()


def through_a_chain(folder: Path, away_s: float, seed: int = 7, lines: int = 200) -> Outcome:
    """Three agents; the middle one is killed and comes back after a while."""
    place, chance = Place(folder), random.Random(seed)
    ports = free_port(), free_port()
    avro = [["type = avro", "bind = 127.0.0.1", f"port = {port}"] for port in ports]
    towards = [["type = avro", "hostname = 127.0.0.1", f"port = {port}", "batch-size = 50"] for port in ports]
    confs = {
        "first": agent_conf("first", folder, tail_source(place), towards[0]),
        "middle": agent_conf("middle", folder, avro[0], towards[1]),
        "last": agent_conf("last", folder, avro[1], LOG_SINK),
    }
    try:
        place.start_server()
        for name, conf in confs.items():
            place.start_agent(name, conf)
        place.write(lines)
        wait_for(lambda: place.stored() > 0, PATIENCE_S, "the first lines")
        place.kill("middle")
        for _ in range(max(3, int(away_s))):
            place.write(chance.randrange(1, lines))
            let_pass(away_s / max(3, int(away_s)))
        place.rename()
        place.write(lines)
        place.start_agent("middle", confs["middle"])
        place.wait_stored()
        return place.outcome()
    finally:
        place.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rotations", type=int, default=50)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--away", type=float, default=60.0, help="seconds that the middle agent is away")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    good = True
    for name in ("rotations", "chain"):
        with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder:
            if name == "rotations":
                found = through_rotations(Path(folder), options.rotations, options.kills, options.seed)
            else:
                found = through_a_chain(Path(folder), options.away, options.seed)
        print(f"{name}: {found}")
        good &= found.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
