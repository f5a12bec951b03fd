"""A body → its events, each with the very bytes it was sent as. What cannot be read is `Unreadable`, alone."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headrace.collect.base import Sent
from headrace.errors import TooLarge
from headrace.log.codecs.json_codec import Unreadable

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_elements = msgspec.json.Decoder(list[msgspec.Raw])

# Strings (possessive, so that a hostile one costs no more than its length), runs of brackets, commas.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]+|[\]}]+|,', re.DOTALL)


class Limits(msgspec.Struct, frozen=True):
    max_events: int
    max_event_bytes: int

    def check(self, events: int) -> None:
        if events > self.max_events:
            raise TooLarge(
                f"more than {self.max_events} events in one request",
                hint="send them in several, or raise [collect] max_events",
            )


def read_json(body: bytes, decoder: msgspec.json.Decoder[Any], limits: Limits) -> Sent:
    """One event, an array of them, or lines of objects."""
    try:
        value = decoder.decode(body)
    except _UNREADABLE as error:
        return _read_broken(body, decoder, limits, error)
    if not isinstance(value, list):
        return limited(Sent([value], lambda row: body), len(body), limits)
    limits.check(len(value))
    return limited(Sent(value, _Elements(body, limits)), len(body), limits)


def read_lines(body: bytes, decoder: msgspec.json.Decoder[Any], limits: Limits) -> Sent:
    """One event a line; empty lines are nothing."""
    lines = [line for line in body.split(b"\n") if line and not line.isspace()]
    limits.check(len(lines))
    try:
        events = decoder.decode_lines(body)
    except _UNREADABLE:
        events = []
    if len(events) != len(lines):
        events = [read_one(line, decoder) for line in lines]
    return limited(Sent(events, lines.__getitem__), len(body), limits)


class _Elements:
    """The elements of an array as they were sent, found only when somebody asks."""

    def __init__(self, body: bytes, limits: Limits) -> None:
        self._body, self._limits = body, limits
        self._found: list[Any] | None = None

    def __call__(self, row: int) -> bytes:
        if self._found is None:
            self._found = _elements.decode(self._body)
        return bytes(self._found[row])


def limited(sent: Sent, size: int, limits: Limits) -> Sent:
    """Events above the size limit are not read, however well they would."""
    if size <= limits.max_event_bytes:
        return sent
    events = [
        event if (length := len(sent.slices(row))) <= limits.max_event_bytes else _too_large(length, limits)
        for row, event in enumerate(sent.events)
    ]
    return Sent(events, sent.slices, sent.refused)


def _too_large(length: int, limits: Limits) -> Unreadable:
    return Unreadable(f"is {length} bytes, more than the {limits.max_event_bytes} an event may have")


def read_one(event: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """One event, or why it cannot be read."""
    try:
        return decoder.decode(event)
    except _UNREADABLE as error:
        return _unreadable(error)


def _unreadable(error: Exception) -> Unreadable:
    if isinstance(error, RecursionError):
        return Unreadable("is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return Unreadable("is not UTF-8")
    message = str(error).removeprefix("JSON is malformed: ")
    return Unreadable(f"is not valid JSON: {message[:1].lower()}{message[1:]}")


def _read_broken(body: bytes, decoder: msgspec.json.Decoder[Any], limits: Limits, error: Exception) -> Sent:
    """Something in the body cannot be read. Find out what, so that only that is lost."""
    text = body.strip()
    if text.startswith(b"["):
        elements = split_array(text, limits)
        if elements is not None:
            events = [read_one(element, decoder) for element in elements]
            return limited(Sent(events, elements.__getitem__), len(body), limits)
    if text.startswith(b"{") and _looks_like_lines(text):
        return read_lines(text, decoder, limits)
    return Sent([_unreadable(error)], lambda row: body)


def _looks_like_lines(text: bytes) -> bool:
    lines = text.split(b"\n")
    return len(lines) > 1 and all(not line or line.isspace() or line.lstrip().startswith(b"{") for line in lines)


def split_array(text: bytes, limits: Limits) -> list[bytes] | None:
    """The elements of something that looks like a JSON array, by its brackets alone; None if they do not match.

    >>> split_array(b'[{"a": NaN}, ["]"], 1]', Limits(10, 10))
    [b'{"a": NaN}', b'["]"]', b'1']
    """
    elements: list[bytes] = []
    depth, start = 1, 1
    for token in _TOKEN.finditer(text, 1):
        first, length = token[0][:1], token.end() - token.start()
        if first == b"," and depth == 1:
            elements.append(text[start : token.start()].strip())
            limits.check(len(elements))
            start = token.end()
        elif first in b"[{":
            depth += length
        elif first in b"]}":
            if depth <= length:
                end = token.start() + depth - 1
                return [*elements, text[start:end].strip()] if end == len(text) - 1 else None
            depth -= length
    return None
