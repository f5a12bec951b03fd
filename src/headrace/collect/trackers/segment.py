"""Segment's tracking API: `/v1/batch`, and one path per type of call.

A message keeps its fields, and gets what Segment itself would add: `receivedAt`, `originalTimestamp`, and a `timestamp`
corrected by how wrong the sender's clock was when it was sent. `messageId` is the event's id.
"""

from __future__ import annotations

from typing import Any

from headrace.collect.base import Sent
from headrace.collect.translate import (
    Posted,
    corrected,
    event_of,
    first,
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
    events = [_event(message, type_, shared, sent_at, posted.now_ms) for message in messages]
    return sent(events, messages), text_of(body.get("writeKey"))


def _event(message: Any, type_: str | None, shared: dict[str, Any], sent_at: Any, now_ms: int) -> Event | Unreadable:
    if type(message) is not dict:
        return Unreadable("is no object, as a message must be")
    fields = {name: value for name, value in message.items() if name not in _OF_THE_REQUEST}
    if type_ is not None:
        fields["type"] = type_
    for name, values in shared.items():
        own = fields.get(name)
        fields[name] = values | own if type(own) is dict else values if own is None else own
    if sent_at is not None:
        fields.setdefault("sentAt", sent_at)
    original = first((fields.get("originalTimestamp"), fields.get("timestamp")))
    time_ms = corrected(moment_ms(original), moment_ms(fields.get("sentAt")), now_ms)
    fields["receivedAt"] = iso(now_ms)
    if original is not None:
        fields["originalTimestamp"] = original
    if time_ms is not None:
        fields["timestamp"] = moment_text(time_ms)
    return event_of(fields, first((fields.get("messageId"),)), time_ms)
