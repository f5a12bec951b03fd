"""What translators of protocols share: a request in, events with ids and times out.

A translator is a function of a request's parts and the clock. It loses nothing: fields it does not know stay, what is
no event becomes `Unreadable` alone, with the bytes it was sent as. What it makes is JSON as the topic's codec reads it,
with `$id` and `$time`, so a dead letter of it can be mended and sent again like any other.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from headrace.collect.base import Sent, sent_objects
from headrace.collect.split import BYTE_ORDER_MARK
from headrace.errors import UsageError
from headrace.log.base import HEADERS, ID, TIME
from headrace.log.codecs.json_codec import MAX_ID_BYTES, RESERVED, Event, Unreadable
from headrace.log.codecs.json_encode import to_json
from headrace.log.codecs.times import EPOCH, parse_iso

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
LATEST_MS = 253_402_300_800_000
"""The end of the year 9999."""
MILLISECOND = datetime.timedelta(milliseconds=1)
_EPOCH_PLAIN = EPOCH.replace(tzinfo=None)
_RESERVED = frozenset(RESERVED)
_json: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Posted:
    """A request as a translator sees it. Names of headers are in lower case; the body is not compressed any more."""

    body: bytes = b""
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    now_ms: int = 0

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def sent(events: Sequence[Any], originals: Sequence[Any] = ()) -> Sent:
    """Events with what they were: of one that cannot be read its original, bytes or JSON."""

    def original(row: int) -> bytes:
        found = originals[row] if originals else b""
        return found if isinstance(found, bytes) else to_json(found)

    return sent_objects(events, original)


def event_of(
    fields: Mapping[str, Any], id_: str | None, time_ms: int | None, headers: Any = None
) -> Event | Unreadable:
    """An event; its id and time are what the protocol says, never what a field that is called so claims."""
    if not _RESERVED.isdisjoint(fields):
        name = next(name for name in RESERVED if name in fields)
        return Unreadable(f"has a field `{name}`, which is Headrace's own")
    event = dict(fields)
    if id_:
        event[ID] = bounded(id_)
    if time_ms is not None:
        event[TIME] = time_ms
    if headers:
        event[HEADERS] = headers
    return event


def bounded(id_: str) -> str:
    """An id as long as ids may be: a longer one is told by its digest."""
    return id_ if len(id_) * 4 <= MAX_ID_BYTES or len(id_.encode()) <= MAX_ID_BYTES else digest(id_.encode())


def digest(*parts: bytes) -> str:
    """Of bytes, the same for the same parts."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little") + part)
    return hashed.hexdigest()


def read_object(body: bytes, expected: str) -> dict[str, Any]:
    """The JSON object a body is. `UsageError` if it is none: then nobody can say which events it holds."""
    value = read_value(body, expected)
    if type(value) is not dict:
        raise UsageError("the body is not a JSON object", hint=f"send {expected}")
    return value


def read_value(body: bytes, expected: str) -> Any:
    try:
        return _json.decode(body.removeprefix(BYTE_ORDER_MARK))
    except UNREADABLE as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"the body is not JSON: {reason}", hint=f"send {expected}") from None


def base64_bytes(text: str) -> bytes | None:
    """Either alphabet, padded or not, as browsers send it; None if it is not base64."""
    plain = text.strip().replace("-", "+").replace("_", "/").replace(" ", "+")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def moment_ms(value: Any) -> int | None:
    """Milliseconds since 1970 of a number of them or of ISO 8601; None if it is neither.

    >>> moment_ms("2026-11-16T10:00:00.5Z"), moment_ms("1970-01-01"), moment_ms(7.9), moment_ms("12"), moment_ms("x")
    (1794823200500, 0, 7, 12, None)
    """
    if type(value) is str:
        text = value.strip()
        if text.endswith("Z") and len(text) >= 20:
            with suppress(ValueError):  # more digits than this parser knows, or nonsense
                return (datetime.datetime.fromisoformat(text) - EPOCH) // MILLISECOND
        micros = parse_iso(text)
        if micros is not None:
            return micros // 1000
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
    return int(value) if type(value) in (int, float) and abs(value) < 1e16 else None


def corrected(happened: int | None, sent_at: int | None, now_ms: int) -> int | None:
    """When it happened by our clock, if the sender's clock is as wrong about that as about when it was sent.

    >>> corrected(100, 150, 1_000), corrected(100, None, 1_000), corrected(None, 150, 1_000), corrected(200, 150, 1_000)
    (950, 100, None, 1000)
    """
    if happened is None or sent_at is None:
        return happened
    return now_ms - max(0, sent_at - happened)


@lru_cache(maxsize=1024)
def iso(time_ms: int) -> str:
    """
    >>> iso(0), iso(1_794_823_200_005)
    ('1970-01-01T00:00:00.000Z', '2026-11-16T10:00:00.005Z')
    """
    return (_EPOCH_PLAIN + MILLISECOND * time_ms).isoformat(timespec="milliseconds") + "Z"


def moment_text(time_ms: int) -> str | int:
    """As text; a time that no calendar has stays the number it is, for the topic to judge."""
    return iso(time_ms) if 0 <= time_ms < LATEST_MS else time_ms


def text_of(value: Any) -> str | None:
    """A string that says something, else None."""
    return value if type(value) is str and value else None


def first(values: Iterable[Any]) -> str | None:
    """The first string that says something."""
    return next((found for value in values if (found := text_of(value)) is not None), None)
