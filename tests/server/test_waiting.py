"""While Kafka is away, the server says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
from starlette.types import ASGIApp

from headrace.server.waiting import wait_until_there, waiting_app

NAME = "Kafka at 127.0.0.1:9"


def test_what_it_answers_meanwhile() -> None:
    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(waiting_app(NAME))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
            return [await http.get(path) for path in ("/healthz", "/readyz", "/v1/topics")]

    alive, ready, other = asyncio.run(ask())
    assert (alive.status_code, ready.status_code, other.status_code) == (200, 503, 503)
    assert ready.json()["waiting_for"] == [NAME]
    assert other.json()["error"]["message"] == f"{NAME} does not answer"


def served() -> tuple[list[str], Callable[[ASGIApp], tuple[Awaitable[None], Callable[[], None]]]]:
    seen: list[str] = []

    def serve(app: ASGIApp) -> tuple[Awaitable[None], Callable[[], None]]:
        ended = asyncio.Event()
        seen.append("served")

        async def run() -> None:
            await ended.wait()
            seen.append("ended")

        return run(), ended.set

    return seen, serve


def test_it_looks_again_until_somebody_answers() -> None:
    answers = iter([False, False, True])
    seen, serve = served()
    found = asyncio.run(wait_until_there(NAME, lambda: next(answers), serve, asyncio.Event()))
    assert found
    assert seen == ["served", "ended"]


def test_it_can_be_stopped() -> None:
    async def story() -> bool:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, stop.set)
        return await wait_until_there(NAME, lambda: False, serve, stop)

    seen, serve = served()
    assert asyncio.run(story()) is False
    assert seen == ["served", "ended"]


def test_nothing_is_served_if_it_is_there() -> None:
    seen, serve = served()
    assert asyncio.run(wait_until_there(NAME, lambda: True, serve, asyncio.Event()))
    assert seen == []
