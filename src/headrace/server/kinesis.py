"""`POST /` with an `X-Amz-Target`: Kinesis and Firehose, as AWS's clients call them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from headrace.access.rights import Identity
from headrace.collect.http.bodies import ClientGone, read_body
from headrace.collect.kinesis.account import Account
from headrace.collect.kinesis.actions import ACTIONS, Action
from headrace.collect.kinesis.errors import DENIED, INVALID, UNKNOWN, ApiError, api_error
from headrace.collect.kinesis.notes import Notes
from headrace.collect.kinesis.put import put_record_answer, put_records_answer
from headrace.collect.kinesis.quota import Quota
from headrace.collect.kinesis.signature import Signed, verify
from headrace.collect.kinesis.wire import CBOR, JSON, decode, encode, is_cbor
from headrace.errors import NotFound, Refused
from headrace.log.base import Topic
from headrace.server import firehose
from headrace.server.answers import LargeAnswer
from headrace.server.audit import DETAIL, IDENTITY, REFUSAL, ROLE
from headrace.server.auth import refusal_of
from headrace.server.endpoint import Endpoint, Handler, Parameter
from headrace.server.events import INLINE_BYTES
from headrace.server.kinesis_puts import put, put_bytes
from headrace.server.services import Intake, Services

KINESIS, FIREHOSE = "Kinesis_20131202", "Firehose_20150804"
REQUEST_ID, ERROR_TYPE = "x-amzn-requestid", "x-amzn-errortype"


def open_account(services: Intake, check_unused: Callable[[Topic], None]) -> Account:
    return Account(
        log=services.log,
        clock=services.clock,
        collector=services.collector,
        gates=services.gates,
        settings=services.project.settings.kinesis,
        notes=Notes(services.log),
        quota=Quota(services.clock),
        check_unused=check_unused,
    )


async def call_action(request: Request, services: Services) -> Response:
    async def run(action: Action, name: str, body: bytes, cbor: bool) -> Response:
        if _target(request).startswith(FIREHOSE):
            answer = await _run_firehose(request, services, action, body, cbor)
        else:
            answer = await _run(request, services, action, name, body, cbor)
        # An answer may be 10 MiB of records: making it would hold up the others.
        content = await services.run(encode, answer, cbor) if name == "GetRecords" else encode(answer, cbor)
        return LargeAnswer(content, services.answers, CBOR if cbor else JSON, {REQUEST_ID: str(uuid4())})

    return await _serve(request, services, run)


async def put_only(request: Request, services: Intake) -> Response:
    """In a collector process, which takes records in and does nothing else."""

    async def run(action: Action, name: str, body: bytes, cbor: bool) -> Response:
        if action is not ACTIONS.get(name) or action.run is not None:
            raise ApiError(UNKNOWN, "this port takes PutRecord and PutRecords only: use the server's own")
        content = encode(await _run(request, services, action, name, body, cbor), cbor)
        return Response(content, 200, {REQUEST_ID: str(uuid4())}, CBOR if cbor else JSON)

    return await _serve(request, services, run)


async def _serve(
    request: Request, services: Intake, run: Callable[[Action, str, bytes, bool], Awaitable[Response]]
) -> Response:
    headers = request.headers
    cbor = is_cbor(headers.get("content-type", ""))
    try:
        action, name = _action(_target(request))
        with services.budget.share() as share:
            body = await read_body(request.receive, headers.get("content-length"), services.body_limits, share)
            _authorize(request, services, action, body)
            return await run(action, name, body, cbor)
    except (ClientGone, NoTarget):
        raise
    except Exception as error:
        return _error(api_error(error), cbor)


class NoTarget(NotFound):
    """Not a request of AWS's clients."""


def _target(request: Request) -> str:
    target = request.headers.get("x-amz-target")
    if target is None:
        raise NoTarget("`/` takes requests of AWS's clients only", hint="they say `X-Amz-Target`; see /openapi.json")
    return target


def _action(target: str) -> tuple[Action, str]:
    service, _, name = target.partition(".")
    actions = {KINESIS: ACTIONS, FIREHOSE: firehose.ACTIONS}.get(service, {})
    action = actions.get(name)
    if action is None:
        raise ApiError(UNKNOWN, f"`{target[:100]}` is no action of this server")
    return action, name


def _authorize(request: Request, services: Intake, action: Action, body: bytes) -> None:
    """Note who asks, for what."""
    request.scope[DETAIL] = request.headers.get("x-amz-target", "")
    try:
        request.scope[IDENTITY] = _identify(request, services, action, body)
    except ApiError:
        request.scope[REFUSAL] = True
        raise
    request.scope[ROLE] = action.role


def _identify(request: Request, services: Intake, action: Action, body: bytes) -> Identity:
    """Check the signature. Without keys the server's own user needs none, whatever a client signs with."""
    if not services.auth.keys_set:
        try:
            return services.auth.identify_local(request)
        except Refused as error:
            refusal = error
    else:
        refusal = None
    signed = Signed(
        request.method, request.url.path, request.query_params.multi_items(), _signed_headers(request), body
    )
    try:
        identity = verify(signed, services.auth.signing_keys, services.clock.now_ms())
    except ApiError as error:
        raise error if refusal is None else ApiError(DENIED, refusal.message) from None
    if not identity.may(action.role):
        raise ApiError(DENIED, refusal_of(identity, action.role, None))
    return identity


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


async def _run(request: Request, services: Intake, action: Action, name: str, body: bytes, cbor: bool) -> Any:
    account: Account = request.app.state.kinesis
    if action.run is not None:
        return await services.run(action.run, account, decode(body, cbor, action.model))
    if len(body) <= INLINE_BYTES:
        wanted = decode(body, cbor, action.model)
    else:
        wanted = await services.run(decode, body, cbor, action.model)
    topic, results = await put(request, services, account, wanted, len(body))
    return (put_record_answer if name == "PutRecord" else put_records_answer)(topic, results)


async def _run_firehose(request: Request, services: Services, action: Action, body: bytes, cbor: bool) -> Any:
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


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/",
        handler=call_action,
        summary="Kinesis and Firehose, as AWS's clients call them",
        # What is asked for decides; a signature says who asks.
        role="read",
        checks="signature",
        body=(JSON, CBOR),
        answers={200: (JSON, CBOR)},
        parameters=(
            Parameter("X-Amz-Target", "service and action, such as Kinesis_20131202.PutRecords", where="header"),
        ),
    ),
)

COLLECTING = (replace(ENDPOINTS[0], handler=cast(Handler, put_only)),)
"""What collector processes have of it."""
