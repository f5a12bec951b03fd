"""A test event for a collector, and what to copy to send one: made of the topic's columns where the type has none."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any
from urllib.parse import urlsplit

import msgspec

from headrace.collect.base import Sent, sent_objects
from headrace.collect.definitions import Definition
from headrace.collect.kinds import load
from headrace.log.base import HEADERS, ID, Topic
from headrace.types import (
    Array,
    BigInt,
    Boolean,
    Bytes,
    DataType,
    Date,
    Decimal,
    Double,
    Integer,
    Map,
    Struct,
    Time,
    Timestamp,
    display_name,
)

TEST_HEADER = "headrace-test"
_TEXTS = {"mail": "you@example.org", "user": "you", "page": "/hello", "path": "/hello", "url": "https://example.org/"}


def sample_event(topic: Topic) -> dict[str, Any]:
    """An event that fits the topic's columns. Its time is when it arrives."""
    timed = topic.spec.timestamp.column if topic.spec.timestamp is not None else None
    columns = [column for column in topic.spec.key + topic.spec.value if column.name != timed]
    return {display_name(column.name): _value(column.name.casefold(), column.type) for column in columns}


def trial_events(definition: Definition, topic: Topic | None, event: dict[str, Any] | None = None) -> Sent:
    """The event asked for, the type's own sample, or one made of the columns; marked by a header and an id of its
    own, so that it can be told from real ones and is never a duplicate."""
    if event is None and definition.kind.sample:
        made: Sent = load(definition.kind.sample)(definition)
        events = [dict(one) for one in made.events]
    else:
        events = [dict(event if event is not None else sample_event(topic) if topic is not None else {})]
    for one in events:
        one.setdefault(ID, f"test/{uuid.uuid4()}")
        headers = one.get(HEADERS)
        one[HEADERS] = {**(headers if isinstance(headers, dict) else {}), TEST_HEADER: definition.name}
    return sent_objects(events, lambda row: b"")


FILLED = re.compile(r"\{([a-z_]+)\}")
"""Other braces stay: most examples have JSON."""


def example_text(definition: Definition, url: str, topic: Topic | None) -> str:
    """What to send, with the collector's own values."""
    settings = msgspec.to_builtins(definition.settings)
    keys = definition.settings.keys
    values = settings | {
        "url": url,
        "name": definition.name,
        "file": definition.where,
        "sample": json.dumps(sample_event(topic) if topic is not None else {}).replace("'", "'\\''"),
        "key": f"${keys[0][4:]}" if keys and keys[0].startswith("env:") else "YOUR-KEY" if keys else "any",
    }
    if listen := settings.get("listen"):
        place = urlsplit(listen[0])
        values |= {"host": place.hostname, "port": place.port, "transport": place.scheme}
    return FILLED.sub(lambda found: str(values[found[1]]), definition.kind.example)


def _value(name: str, type_: DataType) -> Any:
    match type_:
        case Boolean():
            return True
        case Integer() | BigInt():
            return 1
        case Double() | Decimal():
            return 1.5
        case Timestamp():
            return "2026-01-01T12:00:00Z"
        case Date():
            return "2026-01-01"
        case Time():
            return "12:00:00"
        case Array():
            return []
        case Map() | Struct():
            return {}
        case Bytes():
            return "dGVzdA=="
        case _:
            return next((text for part, text in _TEXTS.items() if part in name), "hello")
