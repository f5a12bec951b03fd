"""Confluent's metadata of a field, of which a DECIMAL's precision and scale are part.

Whether the extension is known where a descriptor was read decides if it is a field or bytes that were kept; writing the
options out and reading field 1088 of the result finds it either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from google.protobuf.message import Message

_FIELD = 1088


@dataclass(frozen=True, slots=True)
class Meta:
    doc: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


def meta_of(options: Message) -> Meta | None:
    for number, payload in _parts(options.SerializeToString()):
        if number == _FIELD:
            return _meta(payload)
    return None


def _meta(payload: bytes) -> Meta:
    doc, tags, params = "", [], {}
    for number, inner in _parts(payload):
        if number == 1:
            doc = inner.decode("utf-8", "replace")
        elif number == 2:
            pair = {place: text.decode("utf-8", "replace") for place, text in _parts(inner)}
            params[pair.get(1, "")] = pair.get(2, "")
        elif number == 3:
            tags.append(inner.decode("utf-8", "replace"))
    return Meta(doc, params, tuple(tags))


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message; the others are passed over."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        match tag & 7:
            case 0:
                _, place = _varint(data, place)
            case 1:
                place += 8
            case 2:
                length, place = _varint(data, place)
                yield tag >> 3, data[place : place + length]
                place += length
            case 5:
                place += 4
            case _:
                return


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(data):
        byte = data[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return number, place
