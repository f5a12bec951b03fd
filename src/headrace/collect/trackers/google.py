"""Google's Measurement Protocol, version 2 (GA4): several events of one client in a request.

The protocol has no message ids. An event with a time of its own, in microseconds, is known by its content: sent again
it is taken once. One without is taken as often as it is sent, unless the request has an `Idempotency-Key`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headrace.collect.base import Sent
from headrace.collect.translate import Posted, digest, event_of, read_object, sent
from headrace.errors import UsageError
from headrace.log.codecs.json_codec import Event, Unreadable

EXPECTED = '{"client_id": "…", "events": [{"name": "page_view", "params": {…}}, …]}'
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_IDS = ("measurement_id", "firebase_app_id")


def translate(posted: Posted) -> tuple[Sent, str | None]:
    """The events of a request, and its `api_secret`."""
    body = read_object(posted.body, EXPECTED)
    events = body.get("events")
    if type(events) is not list:
        raise UsageError("the body has no list `events`", hint=f"send {EXPECTED}")
    shared = {name: value for name, value in body.items() if name != "events"}
    shared |= {name: posted.query[name] for name in _IDS if name in posted.query}
    translated = [_event(event, shared, row) for row, event in enumerate(events)]
    return sent(translated, events), posted.query.get("api_secret")


def _event(event: Any, shared: dict[str, Any], row: int) -> Event | Unreadable:
    if type(event) is not dict:
        return Unreadable("is no object, as an event must be")
    fields = shared | event
    micros = _micros(fields.get("timestamp_micros"))
    if micros is None:
        return event_of(fields, None, None)
    id_ = digest(msgspec.json.encode(fields, order="deterministic"), str(row).encode())
    return event_of(fields, id_, micros // 1000)


def _micros(value: Any) -> int | None:
    """A number, or the digits of one."""
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def problems(body: bytes) -> list[dict[str, str]]:
    """What `/debug/mp/collect` says about a request, in Google's shape."""
    try:
        request = read_object(body, EXPECTED)
    except UsageError as error:
        return [_problem("", "VALUE_INVALID", error.message)]
    found: list[dict[str, str]] = []
    if not any(request.get(name) for name in ("client_id", "app_instance_id")):
        found.append(_problem("client_id", "VALUE_REQUIRED", "client_id or app_instance_id is required"))
    events = request.get("events")
    if type(events) is not list:
        return [*found, _problem("events", "VALUE_REQUIRED", "events must be a list")]
    for row, event in enumerate(events):
        name = event.get("name") if type(event) is dict else None
        if type(name) is not str or not _NAME.fullmatch(name):
            found.append(
                _problem(
                    f"events[{row}].name", "NAME_INVALID", "a name is up to 40 letters, digits and _, a letter first"
                )
            )
        elif "params" in event and type(event["params"]) is not dict:
            found.append(_problem(f"events[{row}].params", "VALUE_INVALID", "params must be an object"))
    return found


def _problem(path: str, code: str, description: str) -> dict[str, str]:
    return {"fieldPath": path, "description": description, "validationCode": code}
