"""What the server does by itself goes on, whatever went wrong once: nobody would begin it again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import pytest

from headrace.clock import SystemClock
from headrace.collect.gates import report_statuses
from headrace.errors import DiskFull
from headrace.server import main
from headrace.server.consumers import Members
from headrace.server.history import History
from headrace.sql.api import parse, plan_select
from headrace.sql.plan import PushQuery
from headrace.sql.statements import SelectStatement
from tests.log.support import PLAIN, open_owner
from tests.server.running import Running
from tests.support import wait_for

Loop = Callable[["Failing"], Awaitable[None]]


class Failing:
    """Raises what nobody thought of."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: object) -> NoReturn:
        self.calls += 1
        raise RuntimeError("dictionary changed size during iteration")

    async def awaited(self) -> NoReturn:
        self()


def loops(server: Running, monkeypatch: pytest.MonkeyPatch) -> dict[str, Loop]:
    services = server.services

    async def sweep(failing: Failing) -> None:
        monkeypatch.setattr(services.queues, "sweep", failing)
        await main._sweep(services)

    async def sample(failing: Failing) -> None:
        monkeypatch.setattr(services.rates, "sample", failing)
        await services.rates.run()

    async def remember(failing: Failing) -> None:
        await History(services.clock).run(failing.awaited, failing.awaited)

    async def write(failing: Failing) -> None:
        monkeypatch.setattr(services.counts, "write", failing)
        await services.counts.run()

    async def read(failing: Failing) -> None:
        monkeypatch.setattr(services.gates, "look", failing)
        await services.gates.run()

    async def report(failing: Failing) -> None:
        await report_statuses(services.gates, "collector 1", "http", call=failing)

    return {"sweep": sweep, "sample": sample, "remember": remember, "write": write, "read": read, "report": report}


@pytest.mark.parametrize("name", ["sweep", "sample", "remember", "write", "read", "report"])
def test_it_goes_on_after_what_nobody_thought_of(server: Running, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for pause in ("main.SWEEP_S", "rates.SAMPLE_S", "history.SAMPLE_S", "counts.WRITE_S"):
        monkeypatch.setattr(f"headrace.server.{pause}", 0.01)
    monkeypatch.setattr("headrace.collect.gates.LOOK_S", 0.01)
    monkeypatch.setattr("headrace.collect.gates.REPORT_S", 0.01)
    failing = Failing()

    async def run() -> None:
        task = asyncio.ensure_future(loops(server, monkeypatch)[name](failing))
        async with asyncio.timeout(60):
            while failing.calls < 3 and not task.done():
                await asyncio.sleep(0.01)
        assert not task.done(), task.exception()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(run())


class LeavesWhenLookedAt(asyncio.Lock):
    """Somebody else's thread is quicker."""

    def __init__(self, leave: Callable[[], None]) -> None:
        super().__init__()
        self._leave = leave

    def locked(self) -> bool:
        self._leave()
        return super().locked()


def test_members_leave_while_somebody_looks_for_silent_ones(tmp_path: Path) -> None:
    clock = SystemClock()
    with contextlib.closing(open_owner(tmp_path / "log")) as log:
        log.create_topic(PLAIN)
        members = Members(log, clock)
        first, second = (members.join("g", [PLAIN.name], "earliest", "", 60.0) for _ in range(2))
        first.heard = second.heard = float("-inf")
        first.lock = LeavesWhenLookedAt(lambda: members.leave(second))
        assert first in members.silent()
        members.close()


def test_a_query_that_could_not_be_dropped_when_its_listener_left_is_dropped_later(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would run in the engine for nobody until the server is started again."""
    monkeypatch.setattr("headrace.coordinate.deployer.SWEEP_S", 0.1)
    services = server.services
    sql = "SELECT pageid, COUNT(*) AS n FROM pageviews GROUP BY pageid EMIT CHANGES;"
    [statement] = parse(sql)
    assert isinstance(statement, SelectStatement)
    push = plan_select(statement, services.catalog)
    assert isinstance(push, PushQuery)
    query = services.statements.start_transient(push, sql)

    def full(*_: object, **__: object) -> NoReturn:
        raise DiskFull("full")

    with monkeypatch.context() as patched:
        patched.setattr(services.log, "append", full)
        with pytest.raises(DiskFull):
            services.statements.drop_transient(query.id)
    assert services.catalog.query(query.id) is not None
    wait_for(lambda: services.catalog.query(query.id) is None, 20, "the query to be gone")
