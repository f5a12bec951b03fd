"""A pull query's answer of any size, sent while it is read.

A thread reads and encodes rows; a `PieceQueue` holds what the client has not received; a `Pump` sends, cuts off a
client that takes nothing, and notices one that has left, which ends the reading."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.deliver.ask.budget import Budget
from headrace.deliver.base import Address, FeedEvent
from headrace.deliver.pull import Pulled, answer_of
from headrace.deliver.row_stream import RowStream, columns_of, open_rows
from headrace.errors import HeadraceError, Overloaded
from headrace.server.answer_models import answer_model
from headrace.server.models.sql import QueryRequest
from headrace.server.piece_queue import PieceQueue
from headrace.server.pump import Pump
from headrace.server.questions import engine_answer, is_for_engine
from headrace.server.records import ARROW
from headrace.server.row_forms import ArrowPieces, JsonLines, RowForm
from headrace.server.services import Services
from headrace.server.sse import EventStream
from headrace.sql.ask_plan import AskQuery
from headrace.sql.plan import PullQuery
from headrace.store.readers import ON_SPARK

MOST_STREAMS = 16
"""Streamed answers at once, those that wait for a thread included: each may take its share of the disk."""
READY_S = 2.0
"""An error within this time is an HTTP status; a later one is the stream's last event."""
PROGRESS_S = 1.0
GATHER = 4
HINT = f"[server] stream_seconds bounds it; narrow it with WHERE or a range, or {ON_SPARK}"


async def stream_answer(
    request: Request, services: Services, plan: PullQuery | AskQuery, wanted: QueryRequest
) -> Response:
    """Answer a pull query with a stream of its rows."""
    form: RowForm = (ArrowPieces if ARROW in request.headers.get("accept", "") else JsonLines)(columns_of(plan))
    answer = RowAnswer(services, wanted, form)
    if isinstance(plan, AskQuery) and await is_for_engine(services, plan):
        events = answer.engine_events(plan)
    else:
        await answer.begin(plan)
        events = answer.events()
    return RowResponse(answer, events, services, form)


class RowAnswer:
    """One streamed answer. `begin` starts reading, `events` yields what to send."""

    def __init__(self, services: Services, wanted: QueryRequest, form: RowForm) -> None:
        self._services, self._wanted, self._form = services, wanted, form
        server = services.project.settings.server
        asked = wanted.deadline_ms
        self._seconds = server.stream_seconds if asked is None else min(server.stream_seconds, asked / 1000)
        self._started = time.monotonic()
        self._queue = PieceQueue(asyncio.get_running_loop(), services.delivery.scratch, self._disk_bytes())
        self._budget: Budget | None = None
        self._reading: Future[None] | None = None
        self._addresses: tuple[Address, ...] | None = None
        """What the engine read, if it answers."""

    def _disk_bytes(self) -> int:
        """The share of the disk, without what the log must keep free."""
        settings = self._services.project.settings
        free = shutil.disk_usage(self._services.project.data).free - settings.log.min_free_bytes
        return max(0, min(settings.server.stream_disk_bytes, free // 2))

    def encode(self, event: FeedEvent) -> bytes:
        """Return a piece as it is; of another event its form's."""
        piece: bytes = event.data["piece"] if event.event == "piece" else self._form.event(event)
        return piece

    async def begin(self, plan: PullQuery | AskQuery) -> None:
        """Start reading. What fails soon is raised."""
        services = self._services
        if services.streams >= MOST_STREAMS:
            raise Overloaded(f"{MOST_STREAMS} answers are being streamed already", retry_after=5.0)
        services.streams += 1
        self._reading = services.stream_workers.submit(self._watch, plan)
        await self._queue.wait(READY_S)
        if self._queue.ended and self._queue.error is not None:
            self.close()
            raise self._queue.error

    def close(self) -> None:
        """Stop reading, if it has not ended."""
        self._queue.close()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
            self._services.streams -= 1

    def _watch(self, plan: PullQuery | AskQuery) -> None:
        """Read, cancelled by the watchdog where an expression never comes to look at the clock."""
        try:
            self._services.delivery.watchdog.call(self._wanted.sql, self._seconds, self._read, plan)
        except BaseException as error:
            self._queue.fail(error)

    def _read(self, plan: PullQuery | AskQuery) -> None:
        """Read and encode, in a thread of its own."""
        queue, wanted = self._queue, self._wanted
        most_bytes = self._services.project.settings.server.query_bytes
        budget = self._budget = Budget(self._seconds, most_bytes, lambda: queue.closed, HINT)
        deadline, rows = time.monotonic() + self._seconds, 0
        try:
            with open_rows(self._services.delivery, plan, budget, wanted.limit) as stream:
                queue.put(self._form.event(self._header(stream)), deadline)
                for chunk in stream.limited():
                    rows += len(chunk)
                    for piece in self._form.rows(chunk):
                        queue.put(piece, deadline)
            took = round((time.monotonic() - self._started) * 1000, 3)
            data = {"rows": rows, "truncated": stream.truncated, "took_ms": took}
            # What waits for a slow client holds nothing but disk from here on.
            queue.put(self._form.event(FeedEvent("end", data)), None)
            queue.end()
        except HeadraceError as error:
            queue.fail(error)

    def _header(self, stream: RowStream) -> FeedEvent:
        shown = answer_model(
            answer_of(Pulled(stream.columns, [], False, self._addresses or stream.reads)), self._services
        )
        data = {
            "columns": shown.columns,
            "view": shown.view,
            "version": shown.version,
            "through": shown.through,
            "reads": shown.reads,
            "query_rows": self._services.project.settings.server.query_rows,
        }
        return FeedEvent("header", data)

    async def events(self) -> AsyncIterator[FeedEvent]:
        """Yield pieces as they are read, and progress while there are none."""
        queue = self._queue
        try:
            while True:
                if not await queue.wait(PROGRESS_S):
                    yield FeedEvent("progress", {"read": 0 if self._budget is None else self._budget.read})
                    continue
                # Large answers are on disk: not on the event loop.
                piece = await self._services.run(queue.take)
                if piece is not None:
                    yield FeedEvent("piece", {"piece": piece})
                elif queue.ended:
                    break
            if queue.error is not None:
                raise queue.error
        finally:
            self.close()

    async def engine_events(self, plan: AskQuery) -> AsyncIterator[FeedEvent]:
        """The same for a question that the engine answers first: its rows are then read from a topic."""
        async with engine_answer(self._services, plan, self._wanted.sql, _stays) as (found, self._addresses):
            await self.begin(found)
            async for event in self.events():
                yield event


class RowResponse(EventStream):
    """Ends the reading however the sending ends, also if it never began."""

    def __init__(self, answer: RowAnswer, events: AsyncIterator[FeedEvent], services: Services, form: RowForm) -> None:
        pump, client = Pump(events, services, "pull", GATHER), services.metrics.client("pull")
        super().__init__(pump, client, form.media_type, answer.encode, form.alive, form.first)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.close()


async def _stays() -> bool:
    """The pump notices that a client has left, and ends the events."""
    return False
