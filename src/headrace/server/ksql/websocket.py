"""`/ws/query`: a push query over a WebSocket. The first message is the schema, then one for each row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from headrace.coordinate.definitions import substitute
from headrace.deliver.base import FeedEvent
from headrace.deliver.pull import pull
from headrace.errors import HeadraceError, UsageError
from headrace.log.codecs.json_encode import to_json
from headrace.server.ksql.errors import error_object, ksql_error, message_of
from headrace.server.ksql.queries import COMPLETED, LIMIT_REACHED
from headrace.server.ksql.requests import KsqlRequest, from_beginning
from headrace.server.ksql.schemas import schema_json
from headrace.server.ksql.values import row_converter
from headrace.server.pump import Pump, too_slow
from headrace.server.query import plan_allowed
from headrace.server.services import Services
from headrace.server.websocket import close
from headrace.sql.plan import PushQuery
from headrace.structs import ready
from headrace.types import Column

REFUSED, MOST_REASON = 1008, 120
"""A close frame takes 123 bytes."""


async def needs_upgrade(request: Request, services: Services) -> Response:
    return ksql_error(UsageError("this is a WebSocket", hint="POST /query-stream does the same over HTTP"))


async def query_socket(websocket: WebSocket, services: Services) -> None:
    await websocket.accept()
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        try:
            await _serve(websocket, services)
        except HeadraceError as error:
            services.audit.note(websocket, error.status)
            await websocket.send_text(to_json(error_object(error)).decode())
            await websocket.close(REFUSED, message_of(error, error.message)[:MOST_REASON])
        else:
            await websocket.close()


async def _serve(websocket: WebSocket, services: Services) -> None:
    try:
        wanted = msgspec.json.decode(websocket.query_params.get("request", ""), type=ready(KsqlRequest))
    except msgspec.MsgspecError as error:
        raise UsageError(f"`request` is not as expected: {error}", hint='?request={"ksql": "SELECT …"}') from error
    text = substitute(wanted.ksql, wanted.session_variables)
    plan = await services.run(plan_allowed, websocket, text, services)
    if not isinstance(plan, PushQuery):
        server = services.project.settings.server
        answer = await services.run_query(
            text, pull, services.delivery, plan, server.query_seconds, server.query_rows, server.query_bytes
        )
        await websocket.send_text(_schema(answer.columns))
        convert = row_converter(answer.columns)
        for row in answer.rows:
            await websocket.send_text(to_json({"row": {"columns": convert(row)}}).decode())
        return
    events = websocket.app.state.push_queries.listen(plan, text, websocket, from_beginning(wanted.streams_properties))

    convert, pump = row_converter(plan.root.columns), Pump(events, services, "push")

    async def write(batch: list[FeedEvent]) -> None:
        for event in batch:
            if message := _message(event, convert):
                await websocket.send_text(message)
                pump.taken()

    await websocket.send_text(_schema(plan.root.columns))
    with services.subscribers.client(websocket, "push"):
        if not await pump.run(write, _gone(websocket), websocket.scope):
            await close(websocket, REFUSED, too_slow())


def _schema(columns: tuple[Column, ...]) -> str:
    return to_json([{"name": c.name, "schema": schema_json(c.type)} for c in columns]).decode()


def _message(event: FeedEvent, convert: Callable[[list[Any]], list[Any]]) -> str:
    match event.event:
        case "row":
            dead = {"tombstone": True} if event.data.get("tombstone") else {}
            return to_json({"row": {"columns": convert(event.data["row"])} | dead}).decode()
        case "end":
            return to_json({"finalMessage": LIMIT_REACHED if event.data["reason"] == "limit" else COMPLETED}).decode()
        case "error":
            return to_json({"errorMessage": error_object(HeadraceError(event.data["error"]["message"]))}).decode()
        case _:
            return ""


async def _gone(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
