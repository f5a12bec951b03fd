"""What every collector promises.

A collector takes raw events for a topic, from wherever, and answers for each of them:

- *accepted*: it is in the log, durably if `acks` is `all` (contract 2);
- *duplicate*: the topic had an event with this id already (contract 11);
- *rejected*: it does not fit the topic. It is a dead letter with its reason and its bytes as they were sent (contract
  10), written in the same atomic append as the accepted ones. Its id is not used up: mended, it may come
  again, by itself or from there (`redrive`).

Accepted, duplicate and rejected together (and shed, where a collector's `[shed]` says so) are what was sent: nothing is
dropped silently, one bad event spoils no other.

The tier around it: a file `collectors/NAME.toml` (`definitions`) names one of the `kinds`. Its protocol makes `Sent` or
`Columns` of what arrives, and hands that to the `gate` of the file, where rules, quota and shedding hold for all
protocols alike and everything is counted; behind it stands one `Collector`, which decodes and appends. Protocols over
HTTP are asked by the server's routes (`gates` finds theirs). Those with sockets of their own and those that pull run in
a process beside it; they write with their cursor in one transaction (`outlet`), so that none of them doubles anything.
Agents (`agents`) have a contract of their own, and end at a gate or in Kafka.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from headrace.collect.columns import Columns
from headrace.log.base import Acks, Append, Appended, Topic
from headrace.log.codecs.base import Schemas
from headrace.log.codecs.json_codec import FieldTexts, Unreadable

Form = Literal["json", "ndjson", "bytes", "records", "avro"]


@dataclass(frozen=True, slots=True)
class Sent:
    """Events that were told apart and read: objects, with the codec's fields `$id`, `$time`, `$headers` where they have
    them, or `Unreadable`."""

    events: list[Any]
    slices: Callable[[int], bytes]
    """Event number *i* as text: the JSON object it is, or, of one that could not be read, the bytes it was sent as."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Events that are not to be taken, however well they fit: number → reason. They become dead letters."""


_encoder = msgspec.json.Encoder(decimal_format="number")


def sent_objects(events: Sequence[Any], originals: Callable[[int], bytes]) -> Sent:
    """Of a protocol that makes objects of what it reads. `originals` gives the bytes of those that it could not read;
    of the others the text is the object's own, which is also what can be mended and sent again."""
    return Sent(list(events), _ObjectTexts(events, originals))


class _ObjectTexts(FieldTexts):
    def __init__(self, events: Sequence[Any], originals: Callable[[int], bytes]) -> None:
        self._events, self._originals = events, originals

    def __call__(self, row: int) -> bytes:
        event = self._events[row]
        return self._originals(row) if isinstance(event, Unreadable) else _encoder.encode(event)

    def some(self, row: int, fields: tuple[str, ...]) -> bytes:
        event = self._events[row]
        return _encoder.encode({field: event[field] for field in fields})


@dataclass(frozen=True, slots=True)
class RawEvents:
    """What arrived, not looked at yet, or (`sent`) told apart already."""

    topic: str
    body: bytes = b""
    form: Form = "json"
    """`json`: one event or an array; `ndjson`: one per line; `bytes`: the body is one record of a raw topic; `records`:
    with all their parts, see `envelopes`; `avro`: a container file, or a record framed with its schema's id."""
    source: str = ""
    """Where it came from, for the dead letters."""
    key: bytes | None = None
    """The key of a `bytes` record."""
    idempotency_key: str | None = None
    """Gives event *i* the id `KEY/i`, unless it brings its own."""
    acks: Acks = "all"
    partition: int | None = None
    sent: Sent | None = None
    """Instead of `body` and `form`."""
    partitions: Sequence[int | None] | None = None
    """What each event of `sent` asks for, where they can ask."""
    size: int = 0
    """Bytes of all events of `sent`, where that is known: fewer than one event may have need no closer look."""
    position: Callable[[int], str] | None = None
    """Where event *i* of `sent` was in its source, for the dead letters."""


@dataclass(frozen=True, slots=True)
class Rejection:
    index: int
    reason: str
    dead_letter: int | None
    """Its offset in the dead letters; None if it is there already, or if `acks` did not wait for it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    accepted: int
    duplicates: int = 0
    rejected: tuple[Rejection, ...] = ()
    positions: tuple[tuple[int, int, int], ...] = ()
    """(partition, first offset, last offset)"""
    shed: int = 0
    """Left out on purpose, by the collector's `[shed]`."""
    buffered: bool = False
    """The log is away: they are durable here, and will be in it (`spool`). Duplicates are not known yet."""


class Destination(Protocol):
    """What a collector writes to: the log, or something in front of it."""

    schemas: Schemas | None

    def topic(self, name: str) -> Topic: ...

    def append(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]: ...


class Collector(ABC):
    def collect_columns(
        self, topic: str, columns: Columns, source: str, position: Callable[[int], str] | None = None
    ) -> Future[Outcome]:
        """As `collect`, with acks `all`, for events that come as columns."""
        sent = sent_objects(columns.objects(), columns.originals)
        return self.collect(RawEvents(topic=topic, sent=sent, source=source, position=position))

    @abstractmethod
    def topic(self, name: str) -> Topic:
        """Where events go; `NotFound` if it is not there."""

    @abstractmethod
    def read(self, raw: RawEvents) -> RawEvents:
        """The same with its `sent`. What cannot be read is `Unreadable`, alone. Raises as `collect` does."""

    @abstractmethod
    def collect(self, raw: RawEvents) -> Future[Outcome]:
        """Decode, and append what is good and what is not in one atomic write. Safe to call from several threads;
        decoding happens in the caller's.

        Raises at once `NotFound`, `UsageError`, `Refused`, `TooLarge`, `Overloaded`, `DiskFull`: nothing was taken. The
        future fails with `DiskFull` or `LogError` when the write did; then, too, nothing was taken."""
