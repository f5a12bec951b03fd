"""Questions about more records than the server should read go to the engine; whoever asks waits, and can leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.layers import is_layered
from headrace.deliver.base import Address
from headrace.deliver.pull import Pulled, pull_rows
from headrace.errors import DeadlineExceeded, NotRunning, QueryFailed
from headrace.log.base import Log
from headrace.server.services import Services
from headrace.sql.ask_plan import AskQuery, Read, walk_nodes
from headrace.sql.clauses import AsOf
from headrace.sql.expressions import ColumnRef
from headrace.sql.plan import Named, PullQuery
from headrace.store.arrivals import position_at_end
from headrace.store.ranges import clip

LOOK_S = 0.1
ANSWER_SECONDS = 60.0
"""Deadline for reading what the engine wrote."""

Gone = Callable[[], Awaitable[bool]]


def records_to_read(log: Log, query: AskQuery) -> int:
    """Records of streams that the question is about; those of tables are found by the stores."""
    now, found = log.snapshot(), 0
    for node in walk_nodes(query.root):
        if isinstance(node, Read) and node.source.kind == "stream":
            found += sum(ends.end - ends.start for ends in clip(log, now, node).ends[node.source.topic])
    return found


async def is_for_engine(services: Services, query: object) -> bool:
    """Without an engine the server tries itself, as far as its deadline allows."""
    if not isinstance(query, AskQuery) or services.engine.state()["state"] != "running":
        return False
    # How a table was is known here only, and so is what the layers of a Lambda view are together.
    reads = [node for node in walk_nodes(query.root) if isinstance(node, Read)]
    if any(isinstance(node.range, AsOf) or is_layered(services.catalog, node.source) for node in reads):
        return False
    return await services.run(records_to_read, services.log, query) > services.project.settings.server.engine_records


@asynccontextmanager
async def engine_answer(
    services: Services, query: AskQuery, sql: str, gone: Gone
) -> AsyncIterator[tuple[PullQuery, tuple[Address, ...]]]:
    """Have the engine answer a question; yields the pull query that reads its rows, and what they were made of.
    `QueryFailed` with what the engine says; cancelled when the asker leaves, or time is up."""
    snapshot = services.log.snapshot()
    definition = await services.run(services.statements.start_question, query, sql)
    try:
        await _answered(services, definition, gone)
        sink = services.catalog.source(definition.sink)
        if sink is None:
            raise QueryFailed(f"question `{definition.id}` was terminated")
        items = tuple(
            Named(shown.name, ColumnRef(column.name, type=column.type))
            for shown, column in zip(query.columns, sink.value, strict=True)
        )
        reads = tuple(
            Address(source.name, None, position_at_end(services.log, snapshot, source.topic)) for source in query.inputs
        )
        yield PullQuery(sink, items), reads
    finally:
        await asyncio.shield(services.run(services.statements.drop_transient, definition.id))


async def ask_engine(services: Services, query: AskQuery, sql: str, max_rows: int, gone: Gone) -> Pulled:
    """Answer a question by the engine, as one list of rows."""
    async with engine_answer(services, query, sql, gone) as (rows, reads):
        arguments = (services.delivery, rows, ANSWER_SECONDS, max_rows)
        found = await services.run_query(sql, pull_rows, *arguments, seconds=ANSWER_SECONDS)
    return Pulled(query.columns, found.rows, found.truncated, reads)


async def _answered(services: Services, definition: QueryDefinition, gone: Gone) -> None:
    seconds = services.project.settings.server.engine_seconds
    end = time.monotonic() + seconds
    while True:
        status = services.engine.status(definition.id)
        if status is not None and status.state == "failed":
            raise QueryFailed(status.last_error.message if status.last_error else "the question failed")
        if status is not None and status.state == "stopped" and status.batch == 0:
            return
        if services.catalog.query(definition.id) is None:
            raise QueryFailed(f"question `{definition.id}` was terminated")
        if services.engine.state()["state"] != "running":
            raise NotRunning("the engine has stopped while it was answering", hint="ask again; see /readyz")
        if await gone():
            raise QueryFailed("nobody waits for the answer any more")
        if time.monotonic() > end:
            hint = "narrow it with WHERE or a range, or let it run on: CREATE TABLE … AS SELECT"
            raise DeadlineExceeded(f"the engine took longer than `{seconds:g}` s", hint=hint)
        await asyncio.sleep(LOOK_S)
