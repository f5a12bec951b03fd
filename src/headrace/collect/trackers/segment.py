"""Segment's tracking API: `/v1/batch`, and one path per type of call.

A message keeps its fields, and gets what Segment itself would add: `receivedAt`, `originalTimestamp`, and a `timestamp`
corrected by how wrong the sender's clock was when it was sent. `messageId` is the event's id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.collect.base import Sent
from headrace.collect.translate import (
    Posted,
    corrected,
    event_of,
    iso,
    moment_ms,
    moment_text,
    read_object,
    sent,
    text_of,
)
from headrace.errors import UsageError
from headrace.log.codecs.json_codec import Event, Unreadable

TYPES = {
    "track": "track",
    "t": "track",
    "page": "page",
    "p": "page",
    "screen": "screen",
    "s": "screen",
    "identify": "identify",
    "i": "identify",
    "group": "group",
    "g": "group",
    "alias": "alias",
    "a": "alias",
}
"""Last part of a path → the type of what is sent there; analytics.js uses the short ones."""
BATCHES = ("batch", "import", "b")
EXPECTED = '{"batch": [{"type": "track", "event": "…", "userId": "…", "messageId": "…"}, …]}'
_OF_THE_REQUEST = ("writeKey", "batch")


def translate(posted: Posted) -> tuple[Sent, str | None]:
    """The events of a request, and the write key its body names."""
    body = read_object(posted.body, EXPECTED)
    call = posted.path.rstrip("/").rpartition("/")[2]
    if call in BATCHES:
        messages = body.get("batch")
        if type(messages) is not list:
            raise UsageError("the body has no list `batch`", hint=f"send {EXPECTED}")
        shared = {name: body[name] for name in ("context", "integrations") if type(body.get(name)) is dict}
        type_ = None
    else:
        messages, shared, type_ = [body], {}, TYPES[call]
    sent_at = body.get("sentAt")
    request = _Request(type_, shared, sent_at, moment_ms(sent_at), posted.now_ms)
    events = [_event(message, request) for message in messages]
    return sent(events, messages), text_of(body.get("writeKey"))


@dataclass(frozen=True, slots=True)
class _Request:
    """What all messages of a request share."""

    type: str | None
    shared: dict[str, Any]
    sent_at: Any
    sent_ms: int | None
    now_ms: int


def _event(message: Any, request: _Request) -> Event | Unreadable:
    if type(message) is not dict:
        return Unreadable("is no object, as a message must be")
    fields = message.copy()
    for name in _OF_THE_REQUEST:
        fields.pop(name, None)
    if request.type is not None:
        fields["type"] = request.type
    for name, values in request.shared.items():
        own = fields.get(name)
        fields[name] = values | own if type(own) is dict else values if own is None else own
    if "sentAt" in fields:
        sent_ms = moment_ms(fields["sentAt"])
    else:
        sent_ms = request.sent_ms
        if request.sent_at is not None:
            fields["sentAt"] = request.sent_at
    original = text_of(fields.get("originalTimestamp")) or text_of(fields.get("timestamp"))
    time_ms = None if original is None else corrected(moment_ms(original), sent_ms, request.now_ms)
    fields["receivedAt"] = iso(request.now_ms)
    if original is not None:
        fields["originalTimestamp"] = original
    if time_ms is not None:
        fields["timestamp"] = moment_text(time_ms)
    return event_of(fields, text_of(fields.get("messageId")), time_ms)
