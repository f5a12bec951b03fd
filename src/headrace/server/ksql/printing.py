"""`PRINT topic` over `/query` and `/query-stream`: a line of text for each record, as ksqlDB writes them."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace.deliver.base import FeedEvent
from headrace.deliver.tail import tail
from headrace.log.codecs.json_encode import to_json
from headrace.server.pump import Pump
from headrace.server.services import Services
from headrace.server.sse import EventStream
from headrace.sql.statements import Print

TEXT = "text/plain; charset=utf-8"
NOTHING = "<null>"


def print_topic(statement: Print, from_beginning: bool, request: Request, services: Services) -> Response:
    """Print a topic until the limit, or until the client leaves. `NotFound` or `Overloaded` at once."""
    services.subscribers.check(request)
    events = tail(services.delivery, statement.topic, from_beginning=statement.from_beginning or from_beginning)
    pump = Pump(_wanted(events, statement.interval or 1, statement.limit), services, "push")
    return EventStream(pump, services.subscribers.client(request, "push"), TEXT, _line, b"\n")


async def _wanted(events: AsyncIterator[FeedEvent], every: int, limit: int | None) -> AsyncIterator[FeedEvent]:
    """Every n-th record, and not more than so many."""
    seen = shown = 0
    async with aclosing(events) as source:  # type: ignore[type-var]
        async for event in source:
            if event.event == "event":
                seen += 1
                if (seen - 1) % every:
                    continue
                shown += 1
            yield event
            if shown == limit:
                return


def _line(event: FeedEvent) -> bytes:
    match event.event:
        case "event":
            return f"{record_text(event.data)}\n".encode()
        case "cut":
            return f"{event.data['reason']}\n".encode()
        case "error":
            return f"{event.data['error']['message']}\n".encode()
        case _:
            return b""


def record_text(record: dict[str, Any]) -> str:
    """
    >>> record_text({"time_ms": 0, "key": {"id": 7}, "value": {"a": "x", "n": None}, "rest": None, "partition": 2})
    'rowtime: 1970/01/01 00:00:00.000 Z, key: 7, value: {"a":"x","n":null}, partition: 2'
    """
    moment = datetime.datetime.fromtimestamp(record["time_ms"] / 1000, datetime.UTC)
    time = f"{moment:%Y/%m/%d %H:%M:%S}.{record['time_ms'] % 1000:03} Z"
    return f"rowtime: {time}, key: {_key_text(record)}, value: {_value_text(record)}, partition: {record['partition']}"


def _key_text(record: dict[str, Any]) -> str:
    """The one column's value alone; several as an object."""
    columns = record["key"]
    if all(value is None for value in columns.values()):
        return NOTHING
    key = next(iter(columns.values())) if len(columns) == 1 else columns
    text = key if isinstance(key, str) else to_json(key).decode()
    window = record.get("window")
    return f"[{text}@{window['start']}/{window['end']}]" if window else text


def _value_text(record: dict[str, Any]) -> str:
    if record["value"] is None:
        return NOTHING
    undeclared = {} if record["rest"] is None else {"rest": record["rest"]}
    return to_json(record["value"] | undeclared).decode()
