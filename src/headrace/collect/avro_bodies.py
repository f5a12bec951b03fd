"""Avro bodies → events: a container file, or one record framed with its schema's id as Confluent's clients send it.

A record becomes an event as JSON would have told it, and goes the way of all events from there: what the topic does not
declare is kept, what does not fit is a dead letter.
"""

from __future__ import annotations

import datetime
import decimal
import io
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import msgspec

from headrace.collect.base import Sent
from headrace.collect.split import Limits
from headrace.errors import HeadraceError, TooLarge, UsageError
from headrace.log.codecs.avro_files import MAGIC, open_container
from headrace.log.codecs.avro_loading import UNREADABLE, load_schema, reason
from headrace.log.codecs.avro_shapes import Types, kind_of
from headrace.log.codecs.base import Schemas
from headrace.log.codecs.framing import HEADER, schema_ids
from headrace.log.codecs.json_codec import Unreadable
from headrace.log.codecs.json_encode import bytes_to_json, to_json

Convert = Callable[[Any], Any]


def read_avro(
    body: bytes, schemas: Schemas | None, decoder: msgspec.json.Decoder[Any], limits: Limits, max_bytes: int
) -> Sent:
    """The events of a body. What cannot be read is `Unreadable`, and what it was sent as is the body."""
    found = _container(body, max_bytes) if body.startswith(MAGIC) else _framed(body, schemas)
    events: list[Any] = []
    texts: list[bytes] = []
    for one in found:
        limits.check(len(events) + 1)
        if isinstance(one, Unreadable):
            events.append(one)
            texts.append(body)
            continue
        text = to_json(one)
        if len(text) > limits.max_event_bytes:
            one = Unreadable(f"is {len(text)} bytes as JSON, more than the {limits.max_event_bytes} an event may have")
            events.append(one)
        else:
            events.append(decoder.decode(text))
        texts.append(text)
    return Sent(events, texts.__getitem__)


def _framed(body: bytes, schemas: Schemas | None) -> Iterator[Any]:
    errors: dict[int, str] = {}
    [schema_id] = schema_ids([body], errors)
    if schema_id is None:
        yield Unreadable(f"is neither an Avro file nor framed with a schema's id: {errors.get(0, '')}")
        return
    try:
        if schemas is None:
            raise UsageError("there is no schema registry")
        written = schemas.by_id(schema_id)
        records = _Records(written.text, dict(written.references))
    except HeadraceError as error:
        yield Unreadable(f"is written with schema {schema_id}: {error.message}")
        return
    stream = io.BytesIO(body)
    stream.seek(HEADER)
    yield records.next(stream)


def _container(body: bytes, max_bytes: int) -> Iterator[Any]:
    """All records up to the first that cannot be read: what follows it cannot be found."""
    try:
        container = open_container(body)
        records = _Records(container.schema, {})
        for block in container.blocks(max_bytes):
            stream = io.BytesIO(block.data)
            for _ in range(block.count):
                one = records.next(stream)
                yield one
                if isinstance(one, Unreadable):
                    return
    except TooLarge:
        raise
    except HeadraceError as error:
        yield Unreadable(f"is in an Avro file that cannot be read on: {error.message}")


class _Records:
    """Reads records of one schema as JSON has them."""

    def __init__(self, schema: str, references: dict[str, str]) -> None:
        load_schema(schema, references)
        named: dict[str, Any] = {}
        for needed in references.values():
            fastavro.parse_schema(msgspec.json.decode(needed), named_schemas=named, _write_hint=False)
        tree = msgspec.json.decode(schema)
        self._schema: Any = fastavro.parse_schema(tree, named_schemas=named)
        if isinstance(self._schema, dict):
            self._schema["__named_schemas"] = named
        self._convert = _to_json(self._schema, Types(named))

    def next(self, stream: io.BytesIO) -> Any:
        try:
            return self._convert(fastavro.schemaless_reader(stream, self._schema, None))
        except UNREADABLE as error:
            return Unreadable(f"cannot be read as Avro: {reason(error)}")


def _to_json(tree: Any, types: Types) -> Convert:
    """What makes JSON of a value, by its schema: entries of ksqlDB's maps are an object."""
    branches = types.branches(tree)
    if len(branches) != 1:
        return _plain
    [branch] = branches
    match kind_of(branch):
        case "record" | "error":
            fields = {field["name"]: _to_json(field["type"], types) for field in branch["fields"]}
            return lambda value: value and {name: fields[name](inner) for name, inner in value.items()}
        case "array":
            entries = branch["items"]
            if isinstance(entries, dict) and entries.get("connect.internal.type") == "MapEntry":
                inner = _to_json(entries, types)
                return lambda value: value and {str(one["key"]): one["value"] for one in map(inner, value)}
            item = _to_json(entries, types)
            return lambda value: None if value is None else [item(one) for one in value]
        case "map":
            item = _to_json(branch["values"], types)
            return lambda value: value and {name: item(one) for name, one in value.items()}
        case _:
            return _plain


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return bytes_to_json(value)
        case datetime.datetime():
            return value.isoformat()
        case datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal() | str() | bool() | int() | float() | None:
            return value
        case uuid.UUID():
            return str(value)
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case _:
            return str(value)
