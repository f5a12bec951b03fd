"""Subscribers of a view over server-sent events: what a delivery, an idle subscriber and a connection cost the server.

The server under test is the real one, in a process of its own. The baseline is Starlette on granian, embedded the same
way, that puts what it is sent into a queue for each client, without a log, rights, ids or signs of life. Both get the
same number of clients and of events, a second apart, so that all have an event before the next one comes.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.http_bench import is_answering
from benchmarks.measure import Measure
from tests.chaos.connections import server_process, subscribe, usage
from tests.support import free_port, wait_for

EVENTS, IDLE_S, APART_S = 20, 30.0, 1.0
NAME = b"everybody-gets-this"
FEED, SEND = "/v1/views/users/feed", "/v1/topics/users/events"


@dataclass(frozen=True)
class Cost:
    deliveries: float
    """Per second of processor time."""
    idle: float
    """Per cent of a core for 1,000 idle subscribers."""
    kilobytes: float


def run(quick: bool = False) -> list[Measure]:
    count, events, idle_s = (200, 3, 2.0) if quick else (3000, EVENTS, IDLE_S)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with _broadcaster() as (port, process):
        plain = asyncio.run(_measure(port, process, count, events, idle_s))
    with tempfile.TemporaryDirectory() as folder, server_process(Path(folder)) as (port, process):
        wait_for(lambda: is_answering(port, "/v1/views/users"), 60, "the view")
        ours = asyncio.run(_measure(port, process, count, events, idle_s))
    against, detail = "a bare broadcaster", f"{count:,} subscribers"
    return [
        Measure("deliveries of an event", ours.deliveries, "/CPU s", plain.deliveries, against, "≥ 0.5", detail),
        Measure("1,000 idle subscribers", ours.idle, "% of a core", None, "", "< 2.5 %", detail),
        Measure("memory of a subscriber", ours.kilobytes, "kB", plain.kilobytes, against, "", detail),
    ]


async def _measure(port: int, process: int, count: int, events: int, idle_s: float) -> Cost:
    """What the server does anyway is measured first, without subscribers, and taken off."""
    alone_s, alone = await _processor(process, asyncio.sleep(idle_s))
    before, _ = usage(process)
    doors = asyncio.Semaphore(50)
    readers = await asyncio.gather(*(subscribe(port, False, doors) for _ in range(count)))
    after, _ = usage(process)
    await asyncio.sleep(1)
    quiet_s, quiet = await _processor(process, asyncio.sleep(idle_s))
    idle = max(0.0, quiet / quiet_s - alone / alone_s)
    body = [{"id": "u1", "name": NAME.decode()}]

    async def deliver() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            for _ in range(events):
                receiving = asyncio.gather(*(reader.readuntil(NAME) for reader in readers))
                began = time.monotonic()
                (await client.post(f"http://127.0.0.1:{port}{SEND}", json=body)).raise_for_status()
                await receiving
                await asyncio.sleep(max(0.0, APART_S - (time.monotonic() - began)))

    taken, busy = await _processor(process, deliver())
    for reader in readers:
        reader.writer.close()  # type: ignore[attr-defined]
    busy = max(1e-9, busy - quiet / quiet_s * taken)
    return Cost(count * events / busy, idle * 100 / count * 1000, (after - before) * 1024 / count)


async def _processor(process: int, work: Awaitable[None]) -> tuple[float, float]:
    """Seconds that `work` took, and of processor time that the process used meanwhile."""
    _, before = usage(process)
    began = time.monotonic()
    await work
    _, after = usage(process)
    return time.monotonic() - began, after - before


@contextmanager
def _broadcaster() -> Iterator[tuple[int, int]]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.subscribers_bench", str(port)]
    with subprocess.Popen(command) as process:
        try:
            wait_for(lambda: is_answering(port, "/"), 60, "the baseline")
            yield port, process.pid
        finally:
            process.terminate()


def _serve_baseline(port: int) -> None:
    from collections.abc import AsyncIterator

    from granian.constants import Interfaces
    from granian.server.embed import Server
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    clients: set[asyncio.Queue[bytes]] = set()

    async def answer(request: Request) -> Response:
        return Response("ok")

    async def send(request: Request) -> Response:
        event = b"event: change\ndata: " + await request.body() + b"\n\n"
        for client in clients:
            client.put_nowait(event)
        return Response("ok")

    async def events() -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        clients.add(queue)
        try:
            yield b":\n\n"
            while True:
                yield await queue.get()
        finally:
            clients.discard(queue)

    async def feed(request: Request) -> Response:
        return StreamingResponse(events(), media_type="text/event-stream")

    routes = [Route("/", answer), Route(FEED, feed), Route(SEND, send, methods=["POST"])]
    app = Starlette(routes=routes)
    server = Server(app, port=port, interface=Interfaces.ASGINL, backpressure=20_000, backlog=4096, log_enabled=False)
    asyncio.run(server.serve())


if __name__ == "__main__":
    _serve_baseline(int(sys.argv[1]))
