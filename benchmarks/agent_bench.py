"""Lines of a file through an agent, beside a loop that only reads and splits the same file.

One agent is thrown away into, to see what source and channel cost; one writes to the log, each line with its id, in a
server's process of its own; one does so through the channel on disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.measure import Measure
from tests.support import free_port, wait_for

LINE = '10.1.2.{n} - u{n} [16/Nov/2026:13:00:00 +0000] "GET /page/{n} HTTP/1.1" 200 {n}\n'
AIM = "≥ 300 k lines/s"


def run(quick: bool = False) -> Iterator[Measure]:
    lines = 200_000 if quick else 3_000_000
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        file = folder / "lines.log"
        _write(file, lines)
        reading = lines / _bare_loop(file)
        yield _measure("taildir, thrown away", folder, "type = null\nbatchSize = 10000", "memory", lines, reading, None)
        with _server(folder) as project:
            sink = "type = headrace\ntopic = {topic}\nbatchSize = 20000"
            yield _measure("taildir into the log", folder, sink.format(topic="one"), "memory", lines, reading, project)
            two = sink.format(topic="two")
            yield _measure("taildir, file channel, into the log", folder, two, "file", lines, reading, project)


def _write(file: Path, lines: int) -> None:
    with file.open("w") as out:
        for first in range(0, lines, 10_000):
            out.write("".join(LINE.format(n=n) for n in range(first, min(lines, first + 10_000))))


def _bare_loop(file: Path) -> float:
    """Seconds to read the lines, in the size of chunks an agent uses."""
    started = time.perf_counter()
    count = 0
    with file.open("rb") as source:
        rest = b""
        while chunk := source.read(1024 * 1024):
            *found, rest = (rest + chunk).split(b"\n")
            count += len(found)
    assert count
    return time.perf_counter() - started


def _measure(
    name: str, folder: Path, sink: str, channel: str, lines: int, baseline: float, project: Path | None
) -> Measure:
    conf = folder / f"{name.replace(' ', '-').replace(',', '')}.properties"
    positions = conf.with_suffix(".json")
    parts = {
        "sources.r": f"type = TAILDIR\nchannels = c\nfilegroups = f\nfilegroups.f = {folder}/lines[.]log\n"
        f"positionFile = {positions}\nbatchSize = 10000",
        "channels.c": f"type = {channel}\ncapacity = 200000\ntransactionCapacity = 20000"
        + (f"\ndataDirs = {conf.with_suffix('.channel')}" if channel == "file" else ""),
        "sinks.k": f"{sink}\nchannel = c",
    }
    text = "a.sources = r\na.channels = c\na.sinks = k\n"
    conf.write_text(text + "".join(f"a.{part}.{one}\n" for part, told in parts.items() for one in told.splitlines()))
    port = free_port()
    command = [sys.executable, "-m", "headrace.cli.main", "agent", "run", "--conf", str(conf)]
    where = ["--project", str(project)] if project else []
    agent = subprocess.Popen(
        [*command, "--metrics-port", str(port), *where],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        seconds = _time_between(port, lines)
    finally:
        agent.terminate()
        agent.wait()
    return Measure(name, lines / seconds, "lines/s", baseline, "lines/s read and split", AIM)


def _time_between(port: int, lines: int) -> float:
    """From the first batch that is delivered to the last. What was there at the start does not count."""
    counted = 0
    first: tuple[float, int] | None = None
    deadline = time.monotonic() + 600
    while counted < lines:
        try:
            found = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30, trust_env=False).json()
            counted = int(found["SINK.k"]["EventDrainSuccessCount"])
        except (httpx.HTTPError, KeyError):
            counted = 0
        if counted and first is None:
            first = (time.perf_counter(), counted)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{counted} of {lines} lines after 600 s")
        time.sleep(0.01)
    assert first is not None
    return (time.perf_counter() - first[0]) * lines / max(1, lines - first[1])


@contextmanager
def _server(folder: Path) -> Iterator[Path]:
    project = folder / "project"
    project.mkdir()
    (project / "headrace.toml").write_text("")
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "headrace.server.main", "--project", str(project), "--port", str(port)],
        stderr=subprocess.DEVNULL,
        env=os.environ,
    )
    try:
        wait_for(
            lambda: httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).status_code == 200, 60, "the server"
        )
        yield project
    finally:
        server.terminate()
        server.wait()
