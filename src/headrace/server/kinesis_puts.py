"""Records that AWS's clients put: the same in the server and in collector processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from starlette.requests import Request

from headrace.collect.base import Outcome
from headrace.collect.kinesis.account import Account
from headrace.collect.kinesis.put import (
    Entry,
    Events,
    PutRecord,
    PutRecords,
    Result,
    Write,
    check_records,
    plan_events,
    plan_write,
)
from headrace.errors import Conflict, HeadraceError, UsageError
from headrace.log.base import Appended, Topic
from headrace.server.events import INLINE_BYTES, arrival
from headrace.server.services import Intake

TRIES = 8
"""How often records are placed again because the stream was split or merged just then."""
RESHAPED_S = 0.001
MAX_INVOCATION = 128


async def put(
    request: Request, services: Intake, account: Account, wanted: PutRecord | PutRecords, size: int
) -> tuple[Topic, Sequence[Result]]:
    entries: Sequence[Entry | PutRecord] = wanted.records if isinstance(wanted, PutRecords) else (wanted,)
    check_records(account, entries)
    topic = account.topic(wanted.name)
    if topic.spec.role != "events":
        raise Conflict(f"stream {topic.name} is written by a query", hint="put records into one of its inputs")
    if topic.spec.kind == "raw":
        return await put_bytes(request, services, account, topic.name, entries, size)
    return topic, await put_events(request, services, account, topic, [entry.data for entry in entries], size)


def invocation_of(request: Request) -> str | None:
    """The same for every try of one call."""
    found = request.headers.get("amz-sdk-invocation-id", "")
    return found if 0 < len(found) <= MAX_INVOCATION else None


async def put_bytes(
    request: Request,
    services: Intake,
    account: Account,
    name: str,
    entries: Sequence[Entry | PutRecord],
    size: int,
) -> tuple[Topic, Sequence[Result]]:
    def begin() -> tuple[Write, Future[list[Appended]] | None]:
        write = plan_write(account, services.log.topic(name), entries, invocation_of(request))
        return write, services.log.append(write.appends) if write.appends else None

    gate = account.gate(name)
    if gate is not None:
        gate.admit_bytes(len(entries), arrival(request, size))
    try:
        write, appended = await _append(services, begin, size)
    except HeadraceError as error:
        if gate is not None:
            gate.counters.refused(len(entries), error.message)
        raise
    known, throttled = sum(len(one.duplicates) for one in appended), len(write.failed)
    outcome = Outcome(len(entries) - throttled - known, known)
    services.metrics.collected(name, outcome)
    if gate is not None:
        gate.counters.took(outcome, len(entries) - throttled, size)
        if throttled:
            gate.counters.refused(throttled, "try again later: above the rate of a shard")
    results = await services.run(write.results, account, appended) if known else write.results(account, appended)
    return write.topic, results


async def _append(
    services: Intake, begin: Callable[[], tuple[Write, Future[list[Appended]] | None]], size: int
) -> tuple[Write, list[Appended]]:
    tries = 0
    while True:
        try:
            write, future = begin() if size <= INLINE_BYTES else await services.run(begin)
            return write, [] if future is None else await asyncio.wrap_future(future)
        except UsageError:
            # A shard that was chosen is closed, or not quite open yet: the stream is being split or merged.
            tries += 1
            if tries == TRIES:
                raise
            await asyncio.sleep(RESHAPED_S * 2**tries)


async def put_events(
    request: Request, services: Intake, account: Account, topic: Topic, data: Sequence[bytes], size: int
) -> Sequence[Result]:
    """JSON events for a topic with columns, under the rules of its collector if it has one."""
    gate = account.gate(topic.name)
    collect = services.collector.collect
    if gate is not None:
        collect = partial(gate.collect, arrived=arrival(request, size))

    def begin() -> tuple[Events, Future[Outcome]]:
        events = plan_events(account, topic, data, invocation_of(request), _source(request))
        return events, collect(events.raw)

    events, future = begin() if size <= INLINE_BYTES else await services.run(begin)
    outcome = await asyncio.wrap_future(future)
    services.metrics.collected(topic.name, outcome)
    return await services.run(events.results, account, outcome)


def _source(request: Request) -> str:
    return f"kinesis {request.client.host}" if request.client else "kinesis"
