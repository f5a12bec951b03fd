"""Raw events → the log: the collector that all sources of JSON and bytes share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

import pyarrow as pa

from headrace.clock import Clock
from headrace.collect.base import Collector, Outcome, RawEvents, Rejection
from headrace.collect.dead_letters import DEAD_LETTERS_TOPIC, DeadLetter, bury, offsets_of
from headrace.collect.split import BYTE_ORDER_MARK, Limits, Sent, read_json, read_lines
from headrace.config import CollectSettings
from headrace.errors import Conflict, Refused, UsageError
from headrace.log.base import ID, Append, Appended, Log, Topic
from headrace.log.codecs.json_codec import Decoded, JsonCodec

T = TypeVar("T")
U = TypeVar("U")


class EventCollector(Collector):
    """Decodes by the topic's schema and appends to the log."""

    def __init__(self, log: Log, clock: Clock, settings: CollectSettings) -> None:
        self._log, self._clock = log, clock
        self._limits = Limits(settings.max_events, settings.max_event_bytes)
        self._max_future_ms = int(settings.max_future_seconds * 1000)
        self._codecs: dict[str, JsonCodec] = {}

    def collect(self, raw: RawEvents) -> Future[Outcome]:
        topic = self._writable_topic(raw)
        decoded, sent = self._decode(raw, topic)
        letters = [
            DeadLetter(raw.topic, reason, raw.source, decoded.ids.get(row), sent.slices(row))
            for row, reason in decoded.rejected.items()
        ]
        appends = []
        if decoded.batch is not None:
            appends.append(Append(raw.topic, decoded.batch, raw.partition))
        if letters:
            appends.append(bury(letters))
        if not appends:
            return _done(Outcome(0))
        return then(self._log.append(appends, raw.acks), lambda appended: _outcome(decoded, appends, appended))

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

    def _decode(self, raw: RawEvents, topic: Topic) -> tuple[Decoded, Sent]:
        if raw.form == "bytes":
            return self._decode_bytes(raw, topic)
        codec = self._codec(topic)
        read = read_json if raw.form == "json" else read_lines
        sent = read(raw.body.removeprefix(BYTE_ORDER_MARK), codec.decoder, self._limits)
        key = raw.idempotency_key
        decoded = codec.decode(
            sent.events,
            sent.slices,
            self._clock.now_ms(),
            self._max_future_ms,
            None if key is None else lambda row: f"{key}/{row}",
        )
        return decoded, sent

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


def _outcome(decoded: Decoded, appends: Sequence[Append], appended: Sequence[Appended]) -> Outcome:
    rows = decoded.batch.num_rows if decoded.batch is not None else 0
    # With acks 0 and 1 nothing is known of single events.
    results = {append.topic: result for append, result in zip(appends, appended, strict=False)}
    events = results.get(appends[0].topic, Appended(())) if rows else Appended(())
    offsets = offsets_of(results.get(DEAD_LETTERS_TOPIC, Appended(())), len(decoded.rejected))
    rejected = (
        Rejection(row, reason, offset) for (row, reason), offset in zip(decoded.rejected.items(), offsets, strict=True)
    )
    return Outcome(rows - len(events.duplicates), len(events.duplicates), tuple(rejected), events.positions)


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
