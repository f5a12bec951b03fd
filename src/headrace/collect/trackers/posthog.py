"""PostHog's capture API: one event, several, or a batch, in every wrapping its clients have used.

`uuid` is the event's id. `distinct_id` may be in the properties; it is put where SQL finds it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from headrace.collect.base import Sent
from headrace.collect.http.bodies import decompress
from headrace.collect.translate import (
    Posted,
    base64_bytes,
    corrected,
    event_of,
    first,
    moment_ms,
    read_value,
    sent,
    text_of,
)
from headrace.errors import UnsupportedMedia, UsageError
from headrace.log.codecs.json_codec import Event, Unreadable

EXPECTED = '{"api_key": "…", "batch": [{"event": "…", "distinct_id": "…", "uuid": "…", "properties": {…}}, …]}'
FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 20
_OF_THE_REQUEST = ("api_key", "token", "batch", "historical_migration")
NO_FLAGS: dict[str, Any] = {
    "flags": {},
    "featureFlags": {},
    "featureFlagPayloads": {},
    "errorsWhileComputingFlags": False,
    "config": {"enable_collect_everything": True},
    "supportedCompression": ["gzip", "gzip-js"],
    "sessionRecording": False,
    "surveys": False,
    "autocapture_opt_out": False,
    "capturePerformance": False,
    "toolbarParams": {},
    "isAuthenticated": False,
    "siteApps": [],
    "editorParams": {},
}
"""What a client is told that asks which features are on: none, and nothing is to be recorded but events."""


def translate(posted: Posted, max_bytes: int) -> tuple[Sent, str | None]:
    """The events of a request, and the project's key."""
    body = read_value(unwrap(posted, max_bytes), EXPECTED)
    request: dict[str, Any] = body if type(body) is dict else {}
    events = body.get("batch", [body]) if type(body) is dict else body
    if type(events) is not list:
        raise UsageError("the body is neither an event nor a batch", hint=f"send {EXPECTED}")
    sent_at = moment_ms(request.get("sent_at", posted.query.get("_")))
    translated = [_event(event, sent_at, posted.now_ms) for event in events]
    key = first((request.get("api_key"), request.get("token"), posted.query.get("token"), _token(events)))
    return sent(translated, events), key


def unwrap(posted: Posted, max_bytes: int) -> bytes:
    """The JSON in a body or in `?data=`: plain, base64, gzip, in a form or not."""
    data = posted.query.get("data")
    compression = posted.query.get("compression", "")
    body = posted.body
    # What curl sends says that it is a form, too.
    form_like = posted.media_type == FORM and body.lstrip()[:1] not in (b"{", b"[", b"\x1f")
    if data is None and (form_like or body.startswith(b"data=")):
        form = _form(body)
        data = form.get("data", [""])[0]
        compression = form.get("compression", [compression])[0]
    if data is not None:
        body = data.encode("utf-8", "surrogatepass")
    match compression:
        case "gzip" | "gzip-js":
            return decompress(body, "gzip", max_bytes)
        case "base64":
            return _from_base64(body)
        case "":
            # Older ones say nothing about base64 and gzip; both begin with what no JSON begins with.
            if body.startswith(b"\x1f\x8b"):
                return decompress(body, "gzip", max_bytes)
            return body if data is None or body.lstrip()[:1] in (b"{", b"[") else _from_base64(body)
        case other:
            raise UnsupportedMedia(
                f"cannot read a body compressed as `{other[:40]}`", hint="use gzip-js, base64 or none in the client"
            )


def _form(body: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(body.decode("utf-8", "replace"), max_num_fields=MAX_FIELDS)
    except ValueError:
        raise UsageError(
            f"the form has more than {MAX_FIELDS} fields", hint="the events are in its field `data`"
        ) from None


def _from_base64(body: bytes) -> bytes:
    found = base64_bytes(body.decode("ascii", "replace"))
    if found is None:
        raise UsageError("the body is not valid base64")
    return found


def _event(event: Any, sent_at: int | None, now_ms: int) -> Event | Unreadable:
    if type(event) is not dict:
        return Unreadable("is no object, as an event must be")
    fields = {name: value for name, value in event.items() if name not in _OF_THE_REQUEST}
    properties: dict[str, Any] = fields["properties"] if type(fields.get("properties")) is dict else {}
    distinct = first((fields.get("distinct_id"), properties.get("distinct_id"), properties.get("$distinct_id")))
    if distinct is not None:
        fields["distinct_id"] = distinct
    happened = moment_ms(fields.get("timestamp"))
    offset = moment_ms(fields.get("offset"))
    if happened is None and offset is not None:
        happened, sent_at = now_ms - offset, None
    id_ = first((fields.get("uuid"), properties.get("$insert_id")))
    return event_of(fields, id_, corrected(happened, sent_at, now_ms))


def _token(events: list[Any]) -> str | None:
    """posthog-js names the project in each event's properties."""
    for event in events[:1]:
        if type(event) is dict:
            properties = event.get("properties")
            return first(
                (
                    event.get("api_key"),
                    event.get("token"),
                    properties.get("token") if type(properties) is dict else None,
                )
            )
    return text_of(None)
