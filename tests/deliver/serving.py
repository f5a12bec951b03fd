"""A project that is served: statements in, answers and feeds out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from headrace.deliver.base import Answer, Delivery, FeedEvent
from headrace.deliver.pull import pull
from headrace.sql.api import parse, plan_select
from headrace.sql.ask_plan import AskQuery
from headrace.sql.functions.function import Function
from headrace.sql.plan import PullQuery, PushQuery
from headrace.sql.source import Source
from headrace.sql.statements import SelectStatement
from headrace.types import DataType
from tests.store.project import Project, create_topic

PATIENCE = 120.0


class Serving(Project):
    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.known: dict[str, Source] = {}
        self.delivery = Delivery(self.log, self.followers)

    def add(self, *sources: Source, partitions: int = 1) -> None:
        """Topics and, for tables, views."""
        for source in sources:
            if source.topic not in self.log.snapshot().ends:
                create_topic(self.log, source, partitions)
            self.known[source.name] = source
        self.serve(*(source for source in self.known.values() if source.kind == "table"))

    def plan(self, sql: str) -> PullQuery | AskQuery | PushQuery:
        [statement] = parse(sql)
        assert isinstance(statement, SelectStatement)
        return plan_select(statement, _Sources(self.known))

    def query(self, sql: str, **options: Any) -> Answer:
        plan = self.plan(sql)
        assert not isinstance(plan, PushQuery)
        return pull(self.delivery, plan, **options)

    def rows(self, sql: str) -> list[list[Any]]:
        for name in self.followers.names():
            self.caught_up(name)
        return self.query(sql).rows

    def close(self) -> None:
        self.delivery.close()
        super().close()


class _Sources:
    def __init__(self, known: dict[str, Source]) -> None:
        self._known = known

    def source(self, name: str) -> Source | None:
        return self._known.get(name)

    def sources(self) -> Iterable[Source]:
        return self._known.values()

    def types(self) -> Mapping[str, DataType]:
        return {}

    def functions(self) -> Mapping[str, Function]:
        return {}


async def take(events: AsyncIterator[FeedEvent], count: int) -> list[FeedEvent]:
    """The next events, heartbeats left out."""
    found: list[FeedEvent] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            event = await anext(events)
            if event.event != "heartbeat":
                found.append(event)
    return found


async def take_until(events: AsyncIterator[FeedEvent], last: Callable[[FeedEvent], bool]) -> list[FeedEvent]:
    found: list[FeedEvent] = []
    async with asyncio.timeout(PATIENCE):
        while not found or not last(found[-1]):
            found += await take(events, 1)
    return found


async def take_all(events: AsyncIterator[FeedEvent]) -> list[FeedEvent]:
    """Until the feed ends by itself."""
    async with asyncio.timeout(PATIENCE):
        return [event async for event in events if event.event != "heartbeat"]
