"""Raw events → the log: the collector that all sources of JSON and bytes share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeAlias, TypeVar

import pyarrow as pa

from headrace.clock import Clock
from headrace.collect.base import Buffer, Collector, Destination, Outcome, RawEvents, Rejection, Sent
from headrace.collect.columns import Columns
from headrace.collect.envelopes import read_records
from headrace.collect.split import BYTE_ORDER_MARK, Limits, limited, read_json, read_lines
from headrace.config import CollectSettings
from headrace.errors import Conflict, Refused, UsageError
from headrace.log.base import ID, Append, Appended, Topic
from headrace.log.codecs.event_time import EventTimeBounds
from headrace.log.codecs.json_codec import Decoded, JsonCodec
from headrace.log.dead_letters import DeadLetter, bury, offsets_of

T = TypeVar("T")
U = TypeVar("U")
MAX_AVRO_BYTES = 64 * 1024 * 1024
"""What a container file may become when its blocks are decompressed."""
Partitions: TypeAlias = Sequence[int | None] | None
"""What each event asks for, where they can ask."""


class EventCollector(Collector):
    """Decodes by the topic's schema and appends to the log."""

    def __init__(self, log: Destination, clock: Clock, settings: CollectSettings) -> None:
        self._log, self._clock = log, clock
        self._limits = Limits(settings.max_events, settings.max_event_bytes)
        self._bounds = EventTimeBounds(settings)
        self._codecs: dict[str, JsonCodec] = {}

    def topic(self, name: str) -> Topic:
        return self._log.topic(name)

    def read(self, raw: RawEvents) -> RawEvents:
        if raw.sent is not None:
            self._limits.check(len(raw.sent.events))
            size = raw.size or self._limits.max_event_bytes + 1
            return replace(raw, sent=limited(raw.sent, size, self._limits))
        sent, partitions = self._read(raw, self._writable_topic(raw))
        return replace(raw, body=b"", sent=sent, partitions=partitions)

    def collect(self, raw: RawEvents) -> Future[Outcome]:
        topic = self._writable_topic(raw)
        decoded, sent, partitions = self._decode(raw, topic)
        return self._append(raw, decoded, sent.slices, partitions)

    def collect_columns(
        self, topic: str, columns: Columns, source: str, position: Callable[[int], str] | None = None
    ) -> Future[Outcome]:
        raw = RawEvents(topic=topic, source=source, position=position)
        codec = self._codec(self._writable_topic(raw))
        if columns.unreadable or not codec.takes_columns:
            return super().collect_columns(topic, columns, source, position)
        now, rows = self._clock.now_ms(), columns.rows
        decoded = codec.decode_columns(columns.fields, columns.times, columns.ids, rows, now, self._bounds.of(topic))
        return self._append(raw, decoded, columns.text, None)

    def _append(
        self, raw: RawEvents, decoded: Decoded, slices: Callable[[int], bytes], partitions: Partitions
    ) -> Future[Outcome]:
        letters = [
            DeadLetter(raw.topic, reason, _source(raw, row), decoded.ids.get(row), slices(row))
            for row, reason in decoded.rejected.items()
        ]
        events = _appends(raw, decoded, partitions)
        appends = [*events, bury(letters)] if letters else events
        if not appends:
            return _done(Outcome(0))
        log = self._log
        append = log.append_placed if raw.placed and isinstance(log, Buffer) else log.append
        return then(append(appends, raw.acks), lambda appended: _outcome(decoded, events, appended))

    def _writable_topic(self, raw: RawEvents) -> Topic:
        topic = self._log.topic(raw.topic)
        if topic.internal:
            raise Refused(f"topic `{raw.topic}` is Headrace's own: nobody sends events to it")
        if topic.spec.role != "events":
            raise Conflict(
                f"topic `{raw.topic}` is written by a query", hint="send events to one of the query's inputs"
            )
        if raw.partition is not None and not 0 <= raw.partition < topic.spec.partitions:
            raise UsageError(f"topic `{raw.topic}` has no partition {raw.partition}: it has {topic.spec.partitions}")
        return topic

    def _decode(self, raw: RawEvents, topic: Topic) -> tuple[Decoded, Sent, Partitions]:
        if raw.form == "bytes" and raw.sent is None:
            return *self._decode_bytes(raw, topic), None
        sent, partitions = self._read(raw, topic) if raw.sent is None else (raw.sent, raw.partitions)
        key, numbers = raw.idempotency_key, raw.numbers or range(len(sent.events))
        decoded = self._codec(topic).decode(
            sent.events,
            sent.slices,
            self._clock.now_ms(),
            self._bounds.of(raw.topic),
            None if key is None else lambda row: f"{key}/{numbers[row]}",
            sent.refused,
        )
        return decoded, sent, partitions

    def _read(self, raw: RawEvents, topic: Topic) -> tuple[Sent, Partitions]:
        codec, body = self._codec(topic), raw.body.removeprefix(BYTE_ORDER_MARK)
        match raw.form:
            case "bytes":
                raise UsageError("bytes are one record as it is, not events with fields")
            case "records":
                return read_records(body, topic, codec.decoder, self._limits)
            case "avro":
                from headrace.collect.avro_bodies import read_avro

                return read_avro(raw.body, self._log.schemas, codec.decoder, self._limits, MAX_AVRO_BYTES), None
            case "json":
                return read_json(body, codec.decoder, self._limits), None
            case "ndjson":
                return read_lines(body, codec.decoder, self._limits), None

    def _decode_bytes(self, raw: RawEvents, topic: Topic) -> tuple[Decoded, Sent]:
        """The body is one record."""
        if topic.spec.kind != "raw":
            raise UsageError(
                f"topic `{raw.topic}` has columns: send JSON", hint="only a raw topic takes bytes as they are"
            )
        sent = Sent([None], lambda row: raw.body)
        id_ = None if raw.idempotency_key is None else f"{raw.idempotency_key}/0"
        if len(raw.body) > self._limits.max_event_bytes:
            reason = (
                f"the event is {len(raw.body)} bytes, more than the {self._limits.max_event_bytes} an event may have"
            )
            return Decoded(None, {0: reason}, {} if id_ is None else {0: id_}), sent
        columns = {"KEY": pa.array([raw.key], pa.binary()), "VALUE": pa.array([raw.body], pa.binary())}
        if id_ is not None:
            columns[ID] = pa.array([id_], pa.string())
        return Decoded(pa.record_batch(columns), {}, {}), sent

    def _codec(self, topic: Topic) -> JsonCodec:
        """Made anew when the topic was altered, or dropped and made again."""
        codec = self._codecs.get(topic.name)
        if codec is None or codec.topic != topic:
            codec = self._codecs[topic.name] = JsonCodec(topic)
        return codec


def _source(raw: RawEvents, row: int) -> str:
    return raw.source if raw.position is None else f"{raw.source} {raw.position(row)}"


def _appends(raw: RawEvents, decoded: Decoded, partitions: Partitions) -> list[Append]:
    """One for all, or one for each partition that is asked for."""
    batch = decoded.batch
    if batch is None:
        return []
    if partitions is None or partitions.count(partitions[0]) == len(partitions):
        asked = raw.partition if partitions is None or partitions[0] is None else partitions[0]
        return [Append(raw.topic, batch, asked)]
    kept = [partition for row, partition in enumerate(partitions) if row not in decoded.rejected]
    rows: dict[int | None, list[int]] = {}
    for row, partition in enumerate(kept):
        rows.setdefault(raw.partition if partition is None else partition, []).append(row)
    return [Append(raw.topic, batch.take(pa.array(of, pa.int64())), partition) for partition, of in rows.items()]


def _outcome(decoded: Decoded, events: Sequence[Append], appended: Sequence[Appended]) -> Outcome:
    rows = decoded.batch.num_rows if decoded.batch is not None else 0
    # With acks 0 and 1 nothing is known of single events, nor of letters.
    taken, letters = appended[: len(events)], appended[len(events) :]
    duplicates = sum(len(result.duplicates) for result in taken)
    positions = tuple(position for result in taken for position in result.positions)
    offsets = offsets_of(letters[0] if letters else Appended(()), len(decoded.rejected))
    rejected = (
        Rejection(row, reason, offset) for (row, reason), offset in zip(decoded.rejected.items(), offsets, strict=True)
    )
    buffered = any(result.buffered for result in appended)
    return Outcome(rows - duplicates, duplicates, tuple(rejected), positions, buffered=buffered)


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def then(future: Future[T], use: Callable[[T], U]) -> Future[U]:
    """A future of `use` of the first one's result."""
    result: Future[U] = Future()

    def pass_on(done: Future[T]) -> None:
        try:
            result.set_result(use(done.result()))
        except BaseException as error:
            result.set_exception(error)

    future.add_done_callback(pass_on)
    return result
