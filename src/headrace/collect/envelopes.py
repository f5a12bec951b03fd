"""Records with all their parts, `{"key", "value", "headers", "partition", "time", "id"}`, → events as the codecs read
them. For clients that know Kafka's records; plain events need none of this."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from headrace.collect.base import Sent
from headrace.collect.split import Limits
from headrace.errors import UsageError
from headrace.log.base import HEADERS, ID, TIME, TOMBSTONE, Topic
from headrace.log.codecs.json_codec import Unreadable
from headrace.structs import ready
from headrace.types import display_name

Fields = dict[str, bytes]
"""Field → its JSON."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
NULL = b"null"


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`value` left out or null is a tombstone."""

    key: msgspec.Raw = msgspec.Raw(NULL)
    value: msgspec.Raw = msgspec.Raw(NULL)
    headers: msgspec.Raw = msgspec.Raw(NULL)
    partition: int | None = None
    time: msgspec.Raw = msgspec.Raw(NULL)
    id: msgspec.Raw = msgspec.Raw(NULL)


class Envelopes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    records: list[msgspec.Raw]


_envelopes = msgspec.json.Decoder(ready(Envelopes))
_envelope = msgspec.json.Decoder(ready(Envelope))


class Misfit(Exception):
    """Why a record cannot be an event."""


def read_records(
    body: bytes, topic: Topic, decoder: msgspec.json.Decoder[Any], limits: Limits
) -> tuple[Sent, list[int | None]]:
    """The events, and the partition each asks for. `UsageError` if the body is no list of records."""
    try:
        records = _envelopes.decode(body).records
    except _UNREADABLE as error:
        raise UsageError(
            f"the body does not fit: {error}", hint='send {"records": [{"key": …, "value": {…}}, …]}'
        ) from None
    limits.check(len(records))
    events: list[Any] = []
    texts: list[bytes] = []
    partitions: list[int | None] = []
    for record in map(bytes, records):
        text, partition = record, None
        try:
            if len(record) > limits.max_event_bytes:
                raise Misfit(f"is {len(record)} bytes, more than the {limits.max_event_bytes} an event may have")
            envelope = _envelope.decode(record)
            partition = _partition(envelope, topic)
            text = _event(envelope, topic)
            events.append(decoder.decode(text))
        except _UNREADABLE as error:
            text = record
            events.append(Unreadable(f"is not a record: {error}"))
        except Misfit as misfit:
            events.append(Unreadable(str(misfit)))
        texts.append(text)
        partitions.append(partition)
    return Sent(events, texts.__getitem__), partitions


def _partition(envelope: Envelope, topic: Topic) -> int | None:
    number = envelope.partition
    if number is not None and not 0 <= number < topic.spec.partitions:
        raise Misfit(f"asks for partition {number}: the topic has {topic.spec.partitions}")
    return number


def _event(envelope: Envelope, topic: Topic) -> bytes:
    """The event as it could have been sent by itself."""
    value = bytes(envelope.value)
    fields: Fields = {TOMBSTONE: b"true"} if value == NULL else {}
    if topic.spec.kind == "raw":
        fields |= _raw_fields(bytes(envelope.key), value)
    else:
        fields |= _value_fields(value) | _key_fields(bytes(envelope.key), topic)
    for name, part in ((HEADERS, envelope.headers), (TIME, envelope.time), (ID, envelope.id)):
        if bytes(part) != NULL:
            fields[name] = bytes(part)
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + text for name, text in fields.items()) + b"}"


def _value_fields(value: bytes) -> Fields:
    if value == NULL:
        return {}
    if not value.startswith(b"{"):
        raise Misfit("has a value that is neither an object nor null")
    return {name: bytes(text) for name, text in _fields.decode(value).items()}


def _key_fields(key: bytes, topic: Topic) -> Fields:
    """An object has the key's columns; anything else is the one column there is."""
    if key == NULL:
        return {}
    if key.startswith(b"{"):
        return {name: bytes(text) for name, text in _fields.decode(key).items()}
    if len(topic.spec.key) != 1:
        raise Misfit(f"has a key that is no object: the topic's has {len(topic.spec.key)} columns")
    return {display_name(topic.spec.key[0].name): key}


def _raw_fields(key: bytes, value: bytes) -> Fields:
    fields = {} if key == NULL else {"key": _raw_bytes(key)}
    return fields if value == NULL else fields | {"value": _raw_bytes(value)}


def _raw_bytes(text: bytes) -> bytes:
    """Bytes as the codec of a raw topic wants them, base64: of a string its UTF-8, of `{"base64": …}` what that says,
    of any other JSON its text."""
    if text.startswith(b"{"):
        fields = _fields.decode(text)
        if set(fields) == {"base64"}:
            return bytes(fields["base64"])
    plain = msgspec.json.decode(text).encode() if text.startswith(b'"') else text
    return b'"' + base64.b64encode(plain) + b'"'
