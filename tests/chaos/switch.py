"""A view is switched and rolled back while a thousand reads a second and two hundred subscribers look at it: no read
fails or sees rows of two versions, nobody sees the old version after somebody saw the new one, and no subscriber misses
a change or gets one twice.

    python -m tests.chaos.switch --reads 1000 --feeds 200 --rounds 5

Reads and feeds go over HTTP from this process; the server is another one (`tests.chaos.switching`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.switching import BASE, PAGES, SQL
from tests.support import wait_for

CHANGED = SQL.replace("GROUP BY", "WHERE userid <> '{}' GROUP BY")
CONNECTIONS = 20
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Read:
    began: float
    ended: float
    version: int


@dataclass
class Follower:
    """Somebody who follows, and notices what should not come."""

    held: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def take(self, event: str, data: dict[str, Any]) -> None:
        if event != "change":
            self.failures.append(f"{event}: {data}")
            return
        page, now, before = data["key"]["page"], data["value"]["n"], self.held.get(data["key"]["page"])
        if "switch" not in data and before is not None and now != before + 1:
            # Each round adds one, so anything else than the next number is a gap or a repeat.
            self.failures.append(f"{page}: {before} and then {now}")
        self.held[page] = now

    def holds(self, version: int) -> bool:
        return {count // BASE for count in list(self.held.values())} == {version}


@dataclass
class Load:
    """All who look, in one thread's event loop."""

    port: int
    reads_per_second: int
    followers: list[Follower]
    reads: list[Read] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    final: dict[str, int] = field(default_factory=dict)
    """What every page counts in the end, once that is known."""

    async def run(self) -> None:
        feeds = [asyncio.create_task(self._follow(follower)) for follower in self.followers]
        pace = CONNECTIONS / self.reads_per_second
        await asyncio.gather(*(self._read(pace) for _ in range(CONNECTIONS)))
        done, late = await asyncio.wait(feeds, timeout=4 * PATIENCE)
        for task in late:
            task.cancel()
        if late:
            self.failures.append(f"{len(late)} feeds never got the last round")
        self.failures += [f"a feed broke: {task.exception()}" for task in done if task.exception()]

    async def _read(self, pace: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        due = time.monotonic()
        while not self.stop.is_set():
            due = max(due + pace, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            writer.write(b"GET /v1/views/by_page/rows?limit=100 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status, body = await _answer(reader)
            self._note(began, status, body)
        writer.close()

    def _note(self, began: float, status: int, body: bytes) -> None:
        if status != 200:
            self.failures.append(f"{status}: {body[:200]!r}")
            return
        found = json.loads(body)
        versions = {row[1] // BASE for row in found["rows"]}
        if versions != {found["version"]} or len(found["rows"]) != PAGES:
            self.failures.append(f"version {found['version']} has {len(found['rows'])} rows of {versions}")
        self.reads.append(Read(began, time.monotonic(), found["version"]))

    async def _follow(self, follower: Follower) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = (
            "GET /v1/views/by_page/feed?snapshot=true HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
        )
        writer.write(head.encode())
        status, _ = await _head(reader)
        assert status == 200, status
        async for event, data in _events(reader):
            follower.take(event, data)
            if self.final and follower.held == self.final:
                break
        writer.close()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split()[1]), fields


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    status, fields = await _head(reader)
    if "content-length" in fields:
        return status, await reader.readexactly(int(fields["content-length"]))
    return status, b"".join([chunk async for chunk in _chunks(reader)])


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline(), 16):
        chunk = await reader.readexactly(size + 2)
        yield chunk[:-2]
    await reader.readline()


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    held, event = b"", "message"
    async for chunk in _chunks(reader):
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"event: "):
                event = line[7:].decode().strip()
            elif line.startswith(b"data: "):
                yield event, json.loads(line[6:])


def after_the_new_nobody_sees_the_old(reads: list[Read], moves: list[int]) -> list[str]:
    """`moves`: the versions that served, one after the other."""
    found, place, seen = [], 0, 0.0
    for read in sorted(reads, key=lambda read: read.ended):
        if read.began <= seen:
            continue  # it was on its way when the switch was first seen, and may show either
        if place + 1 < len(moves) and read.version == moves[place + 1]:
            place, seen = place + 1, read.ended
        elif read.version != moves[place]:
            found.append(f"a read of version {read.version} began after one of version {moves[place]} had ended")
    return found


@dataclass(frozen=True, slots=True)
class Outcome:
    failures: list[str]
    reads: int
    seconds: float
    switches_ms: list[float]
    """How long each took."""
    work_ms: list[float]
    """What each took of the processor: on a busy machine, most of the time is waiting for it."""
    longest_read_ms: float
    usual_read_ms: float


def run(folder: Path, reads: int, feeds: int, rounds: int) -> Outcome:
    command = [sys.executable, "-m", "tests.chaos.switching", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        said: list[list[str]] = []
        listening = threading.Thread(target=lambda: said.extend(line.split() for line in server.stdout or ()))
        listening.start()
        try:
            wait_for(lambda: any(words[0] == "port" for words in said), PATIENCE, "the server")
            return _look(folder, int(said[0][1]), said, reads, feeds, rounds)
        finally:
            server.stdin.close()
            listening.join(4 * PATIENCE)


def _look(folder: Path, port: int, said: list[list[str]], reads: int, feeds: int, rounds: int) -> Outcome:
    load = Load(port, reads, [Follower() for _ in range(feeds)])
    looking = threading.Thread(target=lambda: asyncio.run(load.run()))
    looking.start()
    began = time.monotonic()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as http:
            wait_for(lambda: all(len(one.held) == PAGES for one in load.followers), PATIENCE, "all feeds to begin")
            moves = _switches(http, load, rounds)
    finally:
        took = time.monotonic() - began
        (folder / "stop").touch()
        wait_for(lambda: said[-1][0] == "rounds", PATIENCE, "the last round")
        load.final |= {f"/{page}": moves[-1] * BASE + int(said[-1][1]) for page in range(PAGES)}
        (folder / "known").touch()
        load.stop.set()
        looking.join(5 * PATIENCE)
    failures = load.failures + [failure for one in load.followers for failure in one.failures]
    failures += after_the_new_nobody_sees_the_old(load.reads, moves)
    times = sorted(1000 * (read.ended - read.began) for read in load.reads)
    switches = [words[1:] for words in said if words[0] in ("switched", "rolled-back")]
    took_ms, work_ms = ([float(words[place]) for words in switches] for place in (0, 1))
    return Outcome(failures, len(times), took, took_ms, work_ms, times[-1], times[len(times) // 2])


def _switches(http: httpx.Client, load: Load, rounds: int) -> list[int]:
    """Forward and back; the versions that served."""
    moves = [1]

    def serves(version: int) -> None:
        moves.append(version)
        wait_for(lambda: bool(load.reads) and load.reads[-1].version == version, PATIENCE, f"reads of v{version}")
        # A feed that has not noticed yet when the way back is taken has nothing to cross.
        wait_for(lambda: all(one.holds(version) for one in load.followers), PATIENCE, f"feeds of v{version}")

    for number in range(rounds):
        files = {"all.sql": CHANGED.format(number)}
        started = http.post("/v1/deployments", json={"files": files, "approve": True}).json()["deployment"]
        path = f"/v1/deployments/{started['id']}"
        wait_for(lambda path=path: http.get(path).json()["stage"] == "switched", PATIENCE, "the switch")  # type: ignore[misc]
        serves(started["items"][0]["version"])
        assert http.post("/v1/views/by_page/rollback").status_code == 200
        serves(1)
    return moves


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=1000, help="a second")
    parser.add_argument("--feeds", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5, help="each a switch and a rollback")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        outcome = run(Path(scratch), options.reads, options.feeds, options.rounds)
    for failure in outcome.failures[:20]:
        print(failure)
    print(
        f"{len(outcome.switches_ms)} switches, half in {statistics.median(outcome.switches_ms):.0f} ms, the longest "
        f"{max(outcome.switches_ms):.0f} ms, at most {max(outcome.work_ms):.0f} ms of work; {outcome.reads:,} reads "
        f"({outcome.reads / outcome.seconds:,.0f}/s, half in {outcome.usual_read_ms:.1f} ms, the longest "
        f"{outcome.longest_read_ms:.0f} ms), {options.feeds} feeds; {len(outcome.failures)} failures"
    )
    sys.exit(bool(outcome.failures))
