"""`POST /` with an `X-Amz-Target`: Kinesis and Firehose, as AWS's clients call them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from headrace.collect.base import Outcome
from headrace.collect.http.bodies import read_body
from headrace.collect.kinesis.account import Account
from headrace.collect.kinesis.actions import ACTIONS, Action
from headrace.collect.kinesis.errors import DENIED, INVALID, UNKNOWN, ApiError, api_error
from headrace.collect.kinesis.notes import Notes
from headrace.collect.kinesis.put import (
    Entry,
    Events,
    Failed,
    PutRecord,
    PutRecords,
    Result,
    Write,
    check_records,
    plan_events,
    plan_write,
    put_record_answer,
    put_records_answer,
)
from headrace.collect.kinesis.quota import Quota
from headrace.collect.kinesis.signature import Signed, verify
from headrace.collect.kinesis.wire import CBOR, JSON, decode, encode, is_cbor
from headrace.coordinate.describe import check_unused
from headrace.errors import Conflict, NotFound, UsageError
from headrace.log.base import Appended, Topic
from headrace.server import firehose
from headrace.server.answers import LargeAnswer
from headrace.server.auth import RANK
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.events import INLINE_BYTES, arrival
from headrace.server.services import Services

KINESIS, FIREHOSE = "Kinesis_20131202", "Firehose_20150804"
TRIES = 8
"""How often records are placed again because the stream was split or merged just then."""
RESHAPED_S = 0.002
MAX_INVOCATION = 128
REQUEST_ID, ERROR_TYPE = "x-amzn-requestid", "x-amzn-errortype"


def open_account(services: Services) -> Account:
    return Account(
        log=services.log,
        clock=services.clock,
        collector=services.collector,
        gates=services.gates,
        settings=services.project.settings.kinesis,
        notes=Notes(services.log),
        quota=Quota(services.clock),
        check_unused=lambda topic: check_unused(topic, services.catalog, services.queues),
    )


async def call_action(request: Request, services: Services) -> Response:
    headers = request.headers
    target = headers.get("x-amz-target")
    if target is None:
        raise NotFound("`/` takes requests of AWS's clients only", hint="they say `X-Amz-Target`; see /openapi.json")
    cbor = is_cbor(headers.get("content-type", ""))
    try:
        action, name = _action(target)
        run = _run_firehose if target.startswith(FIREHOSE) else _run
        with services.budget.share() as share:
            body = await read_body(request.receive, headers.get("content-length"), services.body_limits, share)
            _authorize(request, services, action, body)
            answer = await run(request, services, action, name, body, cbor)
        # An answer may be 10 MiB of records: making it would hold up the others.
        content = await services.run(encode, answer, cbor) if name == "GetRecords" else encode(answer, cbor)
    except Exception as error:
        return _error(api_error(error), cbor)
    media_type = CBOR if cbor else JSON
    return LargeAnswer(content, services.answers, media_type, {REQUEST_ID: str(uuid4())})


def _action(target: str) -> tuple[Action, str]:
    service, _, name = target.partition(".")
    actions = {KINESIS: ACTIONS, FIREHOSE: firehose.ACTIONS}.get(service, {})
    action = actions.get(name)
    if action is None:
        raise ApiError(UNKNOWN, f"`{target[:100]}` is no action of this server")
    return action, name


def _authorize(request: Request, services: Services, action: Action, body: bytes) -> None:
    """Without keys, only those at this machine get here, and a signature says nothing."""
    keys = services.project.settings.auth.keys
    if not keys:
        return
    signed = Signed(
        request.method, request.url.path, request.query_params.multi_items(), _signed_headers(request), body
    )
    key = verify(signed, keys, services.clock.now_ms())
    if RANK[key.role] < RANK[action.role]:
        raise ApiError(DENIED, f"this needs the role `{action.role}`, the key has `{key.role}`")


def _signed_headers(request: Request) -> dict[str, str]:
    """Repeated ones are one, with commas."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _error(error: ApiError, cbor: bool) -> Response:
    content = encode({"__type": error.name, "message": error.message}, cbor)
    headers = {ERROR_TYPE: error.name, REQUEST_ID: str(uuid4())}
    return Response(content, error.http_status, headers, CBOR if cbor else JSON)


async def _run(request: Request, services: Services, action: Action, name: str, body: bytes, cbor: bool) -> Any:
    account: Account = request.app.state.kinesis
    if action.run is not None:
        return await services.run(action.run, account, decode(body, cbor, action.model))
    if len(body) <= INLINE_BYTES:
        wanted = decode(body, cbor, action.model)
    else:
        wanted = await services.run(decode, body, cbor, action.model)
    topic, results = await put(request, services, account, wanted, len(body))
    return (put_record_answer if name == "PutRecord" else put_records_answer)(topic, results)


async def _run_firehose(
    request: Request, services: Services, action: Action, name: str, body: bytes, cbor: bool
) -> Any:
    wanted = await services.run(decode, body, cbor, action.model)
    if action.run is not None:
        return await services.run(action.run, services, wanted)
    account: Account = request.app.state.kinesis
    entries = firehose.entries_of(services, wanted)
    note = services.deliveries.get(wanted.delivery_stream_name)
    if note.source:
        raise ApiError(INVALID, f"delivery stream {note.name} reads the stream {note.source}: put records there")
    topic, results = await put_bytes(request, services, account, note.topic, entries, len(body))
    return firehose.put_answer(wanted, topic.id, results)


async def put(
    request: Request, services: Services, account: Account, wanted: PutRecord | PutRecords, size: int
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
    services: Services,
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
    for again in range(TRIES):
        try:
            write, future = begin() if size <= INLINE_BYTES else await services.run(begin)
            appended = [] if future is None else await asyncio.wrap_future(future)
            break
        except UsageError:
            # A shard that was chosen is closed, or not quite open yet: the stream is being split or merged.
            if again == TRIES - 1:
                raise
            await asyncio.sleep(RESHAPED_S * 2**again)
    known = sum(len(one.duplicates) for one in appended)
    results = await services.run(write.results, account, appended) if known else write.results(account, appended)
    failed = sum(isinstance(one, Failed) for one in results)
    outcome = Outcome(len(entries) - failed - known, known)
    services.metrics.collected(name, outcome)
    if gate is not None:
        gate.counters.took(outcome, len(entries), size)
    return write.topic, results


async def put_events(
    request: Request, services: Services, account: Account, topic: Topic, data: Sequence[bytes], size: int
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


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/",
        handler=call_action,
        summary="Kinesis and Firehose, as AWS's clients call them",
        role=None,
        body=(JSON, CBOR),
        answers={200: (JSON, CBOR)},
        parameters=(
            Parameter("X-Amz-Target", "service and action, such as Kinesis_20131202.PutRecords", where="header"),
        ),
    ),
)
