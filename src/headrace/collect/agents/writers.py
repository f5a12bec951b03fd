"""Into the log, from the process that runs the agent: as its owner, or through the owner's socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from headrace.collect.agents.base import Event, Headers
from headrace.collect.agents.ports import LogWriter, Written
from headrace.collect.agents.texts import json_headers, readable, to_bytes
from headrace.collect.base import Collector, Outcome, RawEvents, Sent
from headrace.config import CollectSettings
from headrace.errors import Conflict, NotFound, Refused
from headrace.log.base import HEADERS, ID, TIME, Append, Log, Topic, TopicSpec
from headrace.log.codecs.event_time import ANY_TIME, EventTimeBounds, TimeBounds
from headrace.log.codecs.json_codec import Unreadable
from headrace.log.dead_letters import DeadLetter, bury, create_dead_letters

WRITE_S = 60.0
PIECE = 5000
"""Events of one append."""
TIMESTAMP = "timestamp"
"""The header that is an event's time, in milliseconds, as Flume's interceptor writes it."""
KEY = "key"
_HEADERS_TYPE = pa.map_(pa.utf8(), pa.binary())
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class DirectWriter(LogWriter):
    """Bodies go to topics of bytes as they are, and to topics with columns as JSON."""

    def __init__(
        self,
        log: Log,
        collector: Collector,
        settings: CollectSettings,
        now_ms: Callable[[], int],
        source: str,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._log, self._collector, self._settings = log, collector, settings
        self._now_ms, self._source, self._close = now_ms, source, close
        self._bounds = EventTimeBounds(settings)
        create_dead_letters(log)

    def write(self, topic: str, events: Sequence[Event]) -> Written:
        found = open_topic(self._log, topic)
        if found.spec.kind == "raw":
            # The log works on one piece while the next is made. Only with ids: if one piece fails, all are sent again.
            size = PIECE if all(event.id is not None for event in events) else len(events)
            writes = [self._write_bytes(found, events[at : at + size]) for at in range(0, len(events), size)]
            done = [finish() for finish in writes]
            return Written(
                *(sum(figures) for figures in zip(*((w.accepted, w.duplicates, w.rejected) for w in done), strict=True))
            )
        sent = json_events(events)
        raw = RawEvents(topic, source=self._source, sent=sent, position=lambda row: events[row].place)
        return written(self._collector.collect(raw).result(WRITE_S))

    def open_topic(self, topic: str, make: bool) -> None:
        open_topic(self._log, topic, make)

    def bury(self, topic: str, events: Sequence[Event], reason: str) -> None:
        self._log.append([bury(letters_of(topic, events, reason, self._source))]).result(WRITE_S)

    def _write_bytes(self, topic: Topic, events: Sequence[Event]) -> Callable[[], Written]:
        """Begun when it returns; what it returns waits for the end."""
        most = self._settings.max_event_bytes
        large = [event for event in events if len(event.body) > most]
        if large:
            events = [event for event in events if len(event.body) <= most]
        bounds, now_ms = self._bounds.of(topic.name), self._now_ms()
        appends = [Append(topic.name, bytes_batch(events, bounds, now_ms))] if events else []
        if large:
            appends.append(bury([letter for event in large for letter in self._too_large(topic.name, event)]))
        future = self._log.append(appends)

        def finish() -> Written:
            appended = future.result(WRITE_S)
            duplicates = len(appended[0].duplicates) if events else 0
            return Written(len(events) - duplicates, duplicates, len(large))

        return finish

    def _too_large(self, topic: str, event: Event) -> list[DeadLetter]:
        reason = (
            f"the event is {len(event.body)} bytes, more than the {self._settings.max_event_bytes} an event may have"
        )
        return letters_of(topic, [event], reason, self._source)

    def close(self) -> None:
        self._close()


def letters_of(topic: str, events: Sequence[Event], reason: str, source: str) -> list[DeadLetter]:
    """With the place of each: `agent NAME /var/log/app.log:1234`."""
    return [DeadLetter(topic, reason, f"{source} {event.place}".rstrip(), event.id, event.body) for event in events]


class Topics(Protocol):
    """Where topics are found and made: a log, or a collector's way to it."""

    def topic(self, name: str) -> Topic: ...

    def create_topic(self, spec: TopicSpec) -> Topic: ...


def open_topic(topics: Topics, name: str, make: bool = True) -> Topic:
    """As `LogWriter.open_topic`."""
    try:
        topic = topics.topic(name)
    except NotFound:
        if not make:
            raise
        topic = topics.create_topic(TopicSpec(name, kind="raw"))
    if topic.internal:
        raise Refused(f"topic `{name}` is Headrace's own: nobody sends events to it")
    if topic.spec.role != "events":
        raise Conflict(f"topic `{name}` is written by a query", hint="name another topic")
    return topic


def bytes_batch(events: Sequence[Event], bounds: TimeBounds, now_ms: int) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {"VALUE": pa.array([event.body for event in events], pa.binary())}
    ids = [event.id for event in events]
    if any(ids):
        columns[ID] = pa.array(ids, pa.string())
    shared = events[0].headers
    if all(event.headers is shared for event in events):
        if shared:
            columns |= _shared_columns(shared, len(events), bounds, now_ms)
        return pa.record_batch(columns)
    columns[HEADERS] = pa.array([_pairs(event.headers) for event in events], _HEADERS_TYPE)
    times = [event_time(event.headers, bounds, now_ms) for event in events]
    if any(time is not None for time in times):
        columns[TIME] = pa.array(times, pa.int64())
    keys = [event.headers.get(KEY) for event in events]
    if any(key is not None for key in keys):
        columns["KEY"] = pa.array([None if key is None else to_bytes(key) for key in keys], pa.binary())
    return pa.record_batch(columns)


def _shared_columns(headers: Headers, count: int, bounds: TimeBounds, now_ms: int) -> dict[str, pa.Array]:
    """Lines of one file share their headers: they are written down once and repeated."""
    pairs = _pairs(headers)
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(pairs))
    names = pa.array([name for name, _ in pairs] * count, pa.utf8())
    values = pa.array([value for _, value in pairs] * count, pa.binary())
    columns: dict[str, pa.Array] = {HEADERS: pa.MapArray.from_arrays(offsets, names, values)}
    time = event_time(headers, bounds, now_ms)
    if time is not None:
        columns[TIME] = pa.array(np.full(count, time, np.int64))
    if KEY in headers:
        columns["KEY"] = pa.array([to_bytes(headers[KEY])] * count, pa.binary())
    return columns


def _pairs(headers: Headers) -> list[tuple[str, bytes]]:
    return [(readable(name), to_bytes(value)) for name, value in headers.items()]


def event_time(headers: Headers, bounds: TimeBounds = ANY_TIME, now_ms: int = 0) -> int | None:
    """The header's, unless it cannot be one: a broken clock must not close everybody's windows."""
    given = headers.get(TIMESTAMP, "")
    if not (given.isascii() and given.isdecimal() and len(given) < 16):
        return None
    return int(given) if bounds.refuse(int(given), now_ms) is None else None


def json_events(events: Sequence[Event]) -> Sent:
    """For a topic with columns: each body an object, with the event's id, time and headers."""
    objects = [_object(event) for event in events]

    def text(row: int) -> bytes:
        return events[row].body if isinstance(objects[row], Unreadable) else msgspec.json.encode(objects[row])

    return Sent(objects, text)


def _object(event: Event) -> Any:
    try:
        found = msgspec.json.decode(event.body)
    except _UNREADABLE as error:
        return Unreadable(f"is not JSON: {error}")
    if not isinstance(found, dict):
        return found
    if event.id is not None:
        found.setdefault(ID, event.id)
    if event.headers:
        found.setdefault(HEADERS, json_headers(event.headers))
    time = event_time(event.headers)
    if time is not None:
        found.setdefault(TIME, time)
    return found


def written(outcome: Outcome) -> Written:
    return Written(outcome.accepted, outcome.duplicates, len(outcome.rejected) + outcome.shed)


class Shared:
    """One writer for all sinks of a process: a log has one owner. Opened when first asked for; tried again if that
    failed."""

    def __init__(self, make: Callable[[], LogWriter]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._writer: LogWriter | None = None

    def open(self) -> LogWriter:
        with self._lock:
            if self._writer is None:
                self._writer = self._make()
            return _Borrowed(self._writer)

    def close_all(self) -> None:
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None


class _Borrowed(LogWriter):
    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer

    def write(self, topic: str, events: Sequence[Event]) -> Written:
        return self._writer.write(topic, events)

    def open_topic(self, topic: str, make: bool) -> None:
        self._writer.open_topic(topic, make)

    def bury(self, topic: str, events: Sequence[Event], reason: str) -> None:
        self._writer.bury(topic, events, reason)

    def close(self) -> None:
        """Whoever lent it closes it."""
