"""Thousands of connections: silent ones, and subscribers.

A server of its own gets 5,000 connections that say nothing, opened again whenever it closes them, while events are sent
and its health is asked for: everything must be answered. Then 5,000 clients follow a view by server-sent events and
5,000 by WebSocket, first with a single event, then with one a second: each must reach all of them. What that costs, and
how long other requests take meanwhile, is printed.

    python -m tests.chaos.connections --silent 5000 --subscribers 10000
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import httpx

from tests.server.running import write_project
from tests.support import free_port, wait_for

AT_ONCE = 100
PATIENCE_S = 120.0
MARK = b"everybody-gets-this"
APART_S = 1.0
EVENT = re.compile(MARK + rb" [0-9]+(?=\")")
LONGEST = len(MARK) + 10


@dataclass
class Answers:
    """How long requests took while others held their connections."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    events: int = 0
    """How many were sent."""

    def __str__(self) -> str:
        ordered = sorted(self.seconds) or [0.0]
        middle, most = ordered[len(ordered) // 2], ordered[-1]
        return f"{len(self.seconds)} answered, median {middle * 1000:.0f} ms, longest {most * 1000:.0f} ms"


@contextlib.contextmanager
def server_process(folder: Path) -> Iterator[tuple[int, int]]:
    """The port and the process id of a server without an engine."""
    write_project(folder)
    port = free_port()
    command = [sys.executable, "-m", "headrace.server.main", "--project", str(folder), "--port", str(port)]
    with (folder / "server.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            address = f"http://127.0.0.1:{port}/v1/topics/users"
            wait_for(lambda: httpx.get(address).status_code == 200, 120, "the server")
            yield port, process.pid
        finally:
            process.terminate()


async def ask_elsewhere(port: int, seconds: float, apart_s: float = 0.0) -> Answers:
    """Ask in a process of its own: this one is busy with thousands of connections, and would measure itself."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return await asyncio.get_running_loop().run_in_executor(processes, ask_for, port, seconds, apart_s)


def ask_for(port: int, seconds: float, apart_s: float) -> Answers:
    return asyncio.run(ask(port, seconds, apart_s))


async def ask(port: int, seconds: float, apart_s: float) -> Answers:
    """Ask for health and send events at least `apart_s` apart, each time on a new connection."""
    answers, due, end = Answers(), time.monotonic(), time.monotonic() + seconds
    while time.monotonic() < end:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            requests = [client.build_request("GET", "/healthz")]
            if time.monotonic() >= due:
                event = {"id": f"{MARK.decode()} {answers.events}", "name": "Ann"}
                requests.append(client.build_request("POST", "/v1/topics/users/events", json=[event]))
                due, answers.events = time.monotonic() + apart_s, answers.events + 1
            for request in requests:
                began = time.monotonic()
                try:
                    answer = await client.send(request)
                    answers.seconds.append(time.monotonic() - began)
                    if answer.status_code != 200:
                        answers.failures.append(f"{request.url.path}: {answer.status_code}")
                except httpx.HTTPError as error:
                    answers.failures.append(f"{request.url.path}: {error!r}")
        await asyncio.sleep(0.05)
    return answers


async def be_silent(port: int, stop: asyncio.Event, doors: asyncio.Semaphore) -> int:
    """Hold a connection without a word, again and again; returns how often it was closed."""
    closed = 0
    while not stop.is_set():
        try:
            async with doors:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            continue
        reading, stopping = asyncio.ensure_future(reader.read(1)), asyncio.ensure_future(stop.wait())
        await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(OSError):
            closed += reading.done() and reading.result() == b""
        reading.cancel()
        stopping.cancel()
        writer.close()
    return closed


async def silent_sockets(port: int, count: int, seconds: float) -> list[str]:
    stop, doors = asyncio.Event(), asyncio.Semaphore(AT_ONCE)
    silent = [asyncio.ensure_future(be_silent(port, stop, doors)) for _ in range(count)]
    answers = await ask_elsewhere(port, seconds)
    stop.set()
    closed = sum(await asyncio.gather(*silent))
    print(f"{count} silent connections for {seconds:g} s: {closed} closed by the server; meanwhile {answers}")
    return answers.failures + ([] if answers.seconds else ["nothing was answered"])


async def subscribe(port: int, socket: bool, doors: asyncio.Semaphore) -> asyncio.StreamReader:
    host = f"Host: 127.0.0.1:{port}\r\n"
    if socket:
        key = base64.b64encode(os.urandom(16)).decode()
        host += (
            f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        )
    async with doors, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /v1/views/users/feed HTTP/1.1\r\n{host}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith((b"HTTP/1.1 101", b"HTTP/1.1 200")):
            raise RuntimeError(head.decode(errors="replace"))
        reader.writer = writer  # type: ignore[attr-defined]
        return reader


class Receiver:
    """Counts the events that came to a subscriber."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.seen: set[bytes] = set()
        self.reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        rest = b""
        while piece := await self._reader.read(65536):
            text = rest + piece
            # A name that is cut in the middle is found with the next piece.
            self.seen.update(EVENT.findall(text))
            rest = text[-LONGEST:]
        raise RuntimeError("the subscriber was cut off")


def usage(process: int) -> tuple[float, float]:
    """Resident megabytes, and seconds of processor time so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    pages, ticks = int(fields[21]), int(fields[11]) + int(fields[12])
    return pages * resource.getpagesize() / 2**20, ticks / os.sysconf("SC_CLK_TCK")


async def meanwhile(port: int, process: int, seconds: float, apart_s: float) -> tuple[Answers, float]:
    """Ask for a while; the answers, and the share of a core that the server took."""
    (_, before), began = usage(process), time.monotonic()
    answers = await ask_elsewhere(port, seconds, apart_s)
    (_, after), took = usage(process), time.monotonic() - began
    return answers, (after - before) / took


async def subscribers(port: int, process: int, count: int, seconds: float) -> list[str]:
    doors = asyncio.Semaphore(AT_ONCE)
    before, _ = usage(process)
    began = time.monotonic()
    readers = await asyncio.gather(*(subscribe(port, number % 2 == 1, doors) for number in range(count)))
    opened = time.monotonic() - began
    after, _ = usage(process)
    receivers = [Receiver(reader) for reader in readers]
    each = (after - before) * 1024 / count
    print(f"{count} subscribers in {opened:.1f} s: {after:.0f} MB, {each:.1f} kB each")
    # The first event comes at once; the next after the end.
    idle, share = await meanwhile(port, process, seconds, 10 * seconds)
    print(f"one event: {share * 100:.0f} % of a core; meanwhile {idle}")
    busy, share = await meanwhile(port, process, seconds, APART_S)
    print(f"{busy.events} events, one a second, to all: {share * 100:.0f} % of a core; meanwhile {busy}")
    wanted = {f"{MARK.decode()} {number}".encode() for number in range(max(idle.events, busy.events))}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and any(one.seen < wanted and not one.reading.done() for one in receivers):
        await asyncio.sleep(0.1)
    late = sum(not one.seen >= wanted for one in receivers)
    failed = [repr(one.reading.exception()) for one in receivers if one.reading.done()]
    for reader, receiver in zip(readers, receivers, strict=True):
        receiver.reading.cancel()
        reader.writer.close()  # type: ignore[attr-defined]
    return idle.failures + busy.failures + failed + ([f"{late} did not get all events"] if late else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silent", type=int, default=5000)
    parser.add_argument("--subscribers", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder, server_process(Path(folder)) as (port, process):
        failures = asyncio.run(silent_sockets(port, options.silent, options.seconds))
        failures += asyncio.run(subscribers(port, process, options.subscribers, options.seconds))
    for failure in failures[:20]:
        print("failed:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
