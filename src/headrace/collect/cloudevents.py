"""CloudEvents over HTTP: in the headers (binary), in the body (structured), or several in a list (batched).

`source` and `id` together are the event's id, `time` its time. Attributes and extensions are fields; `data` is one too,
or, with `data = "columns"`, its fields are the event's, and the attributes are headers `ce_…`, as on Kafka.
"""

from __future__ import annotations

import base64
from typing import Any, Literal
from urllib.parse import unquote

import msgspec

from headrace.collect.base import Sent
from headrace.collect.definitions import CollectorSettings
from headrace.collect.translate import (
    UNREADABLE,
    Posted,
    base64_bytes,
    digest,
    event_of,
    moment_ms,
    read_value,
    sent,
    text_of,
)
from headrace.errors import UsageError
from headrace.log.codecs.json_codec import Event, Unreadable

Place = Literal["field", "columns"]

STRUCTURED, BATCHED = "application/cloudevents+json", "application/cloudevents-batch+json"
VERSIONS = ("1.0", "0.3")
EXPECTED = '{"specversion": "1.0", "id": "…", "source": "…", "type": "…", "data": {…}}'
_REQUIRED = ("specversion", "id", "source", "type")


class CloudEventsSettings(CollectorSettings, frozen=True, kw_only=True):
    data: Place = "field"
    """`field`: the event has attributes and a field `data`. `columns`: the fields of `data` are the event's, and the
    attributes are its headers, `ce_id`, `ce_type`, …"""


def translate(posted: Posted, place: Place = "field") -> Sent:
    media = posted.media_type
    originals: list[Any]
    if media == BATCHED:
        originals = read_value(posted.body, f"[{EXPECTED}, …]")
        if type(originals) is not list:
            raise UsageError("a batch of CloudEvents is a JSON array", hint=f"send [{EXPECTED}, …]")
    elif media == STRUCTURED:
        originals = [read_value(posted.body, EXPECTED)]
    elif "ce-id" in posted.headers or "ce-specversion" in posted.headers:
        attributes = _of_headers(posted)
        return sent([_event(attributes, place)], [posted.body])
    else:
        raise UsageError(
            "this is no CloudEvent: it has neither headers `ce-…` nor the content type of one",
            hint=f"send {EXPECTED} as {STRUCTURED}, or several as {BATCHED}",
        )
    return sent([_event(original, place) for original in originals], originals)


def _of_headers(posted: Posted) -> dict[str, Any]:
    """The event that a binary request is, as a structured one would have said it."""
    attributes: dict[str, Any] = {
        name[3:]: unquote(value) for name, value in posted.headers.items() if name.startswith("ce-")
    }
    media = posted.headers.get("content-type")
    if media is not None:
        attributes["datacontenttype"] = media
    if not posted.body:
        return attributes
    if is_json(posted.media_type):
        try:
            return attributes | {"data": msgspec.json.decode(posted.body)}
        except UNREADABLE:
            # It says that it is JSON and is not: kept as the bytes it is.
            return attributes | {"data_base64": base64.b64encode(posted.body).decode()}
    if posted.media_type.startswith("text/"):
        return attributes | {"data": posted.body.decode("utf-8", "replace")}
    return attributes | {"data_base64": base64.b64encode(posted.body).decode()}


def is_json(media_type: str) -> bool:
    """
    >>> is_json(""), is_json("application/json"), is_json("application/geo+json"), is_json("application/xml")
    (True, True, True, False)
    """
    return media_type in ("", "application/json", "text/json") or media_type.endswith("+json")


def _event(attributes: Any, place: Place) -> Event | Unreadable:
    if type(attributes) is not dict:
        return Unreadable("is no object, as a CloudEvent must be")
    for name in _REQUIRED:
        if text_of(attributes.get(name)) is None:
            return Unreadable(f"is no CloudEvent: `{name}` must be a string that is not empty")
    if attributes["specversion"] not in VERSIONS:
        return Unreadable(f"has specversion `{attributes['specversion'][:20]}`: {' and '.join(VERSIONS)} are known")
    time = attributes.get("time")
    time_ms = moment_ms(time) if type(time) is str else None
    if time is not None and time_ms is None:
        return Unreadable("has a `time` that is no timestamp of RFC 3339")
    encoded = attributes.get("data_base64")
    if encoded is not None and (type(encoded) is not str or base64_bytes(encoded) is None):
        return Unreadable("has `data_base64` that is not base64")
    id_ = f"{attributes['source']} {attributes['id']}"
    if attributes["type"].startswith("io.debezium."):
        # Its ids are places in the database's log, which the rows of a snapshot share.
        parts = (attributes.get("iodebeziumop"), attributes.get("data"))
        id_ += " " + digest(msgspec.json.encode(parts, order="deterministic"))
    if place == "field":
        return event_of(attributes, id_, time_ms)
    data = attributes.get("data")
    if type(data) is not dict:
        return Unreadable("has no object as `data`, whose fields could be columns")
    names = {name: value for name, value in attributes.items() if name not in ("data", "data_base64")}
    return event_of(data, id_, time_ms, {f"ce_{name}": _text(value) for name, value in names.items()})


def _text(value: Any) -> str | None:
    return value if value is None or type(value) is str else msgspec.json.encode(value).decode()
