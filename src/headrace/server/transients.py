"""Push queries that need state run in the engine, one for all who ask the same, for as long as somebody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from starlette.requests import HTTPConnection

from headrace.coordinate.base import QueryDefinition
from headrace.deliver.base import FeedEvent
from headrace.deliver.push import push, push_from_topic
from headrace.deliver.throttle import throttled
from headrace.errors import HeadraceError, NotRunning, QueryFailed
from headrace.server.services import Services
from headrace.sql.plan import PushQuery

CHECK_S = 1.0
"""How often a silent query's health is looked at."""


@dataclass(slots=True)
class _Shared:
    listeners: int
    definition: asyncio.Future[QueryDefinition]


def _paced(events: AsyncIterator[FeedEvent], query: PushQuery) -> AsyncIterator[FeedEvent]:
    """With EMIT CHANGES EVERY, no faster than that."""
    if query.every_ms is None:
        return events
    names = [column.name for column in query.root.columns]
    places = [names.index(name) for name in query.key]
    return throttled(events, places, query.every_ms / 1000, query.limit)


class PushQueries:
    """All push queries being listened to. Belongs to one event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._shared: dict[PushQuery, _Shared] = {}

    def listen(
        self, query: PushQuery, sql: str, connection: HTTPConnection, from_beginning: bool = False
    ) -> AsyncIterator[FeedEvent]:
        """The query's events. `Overloaded` or `NotRunning` at once. A query with state has all there is behind it."""
        self._services.subscribers.check_push(connection)
        if query.stateless:
            unlimited = replace(query, limit=None) if query.every_ms else query
            events = push(self._services.delivery, unlimited, from_beginning=from_beginning)
            return self._counted(_paced(events, query), connection)
        if self._services.engine.state()["state"] != "running":
            raise NotRunning("the engine is not running yet, and this query needs it", hint="see /readyz")
        return self._counted(_paced(self._listen(query, sql), query), connection)

    async def _counted(self, events: AsyncIterator[FeedEvent], connection: HTTPConnection) -> AsyncIterator[FeedEvent]:
        with self._services.subscribers.push(connection):
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()  # type: ignore[attr-defined]

    async def _listen(self, query: PushQuery, sql: str) -> AsyncIterator[FeedEvent]:
        async with self._transient(query, sql) as definition:
            sink = self._services.catalog.source(definition.sink)
            if sink is None:
                raise QueryFailed(f"query `{definition.id}` was dropped")
            events = push_from_topic(
                self._services.delivery,
                sink,
                query.root.columns,
                limit=None if query.every_ms else query.limit,
                query_id=definition.id,
                heartbeat_s=CHECK_S,
            )
            async for event in events:
                if event.event == "heartbeat":
                    self._check(definition)
                else:
                    yield event

    def _check(self, definition: QueryDefinition) -> None:
        status = self._services.engine.status(definition.id)
        if status is not None and status.state == "failed":
            error = status.last_error
            raise QueryFailed(error.message if error else "the query failed", detail=error.detail if error else None)

    @asynccontextmanager
    async def _transient(self, query: PushQuery, sql: str) -> AsyncIterator[QueryDefinition]:
        """The transient query of this plan, started for the first who asks and dropped after the last."""
        plan = replace(query, limit=None)
        shared = self._shared.get(plan)
        if shared is None:
            starting = asyncio.ensure_future(self._services.run(self._services.statements.start_transient, plan, sql))
            shared = self._shared[plan] = _Shared(0, starting)
        shared.listeners += 1
        try:
            yield await asyncio.shield(shared.definition)
        finally:
            shared.listeners -= 1
            if not shared.listeners:
                self._shared.pop(plan, None)
                await asyncio.shield(self._drop(shared))

    async def _drop(self, shared: _Shared) -> None:
        # Also when the listener left before the query had started: then as soon as it has.
        try:
            definition = await shared.definition
        except HeadraceError:
            return  # it never started, and whoever waited for it was told
        await self._services.run(self._services.statements.drop_transient, definition.id)
