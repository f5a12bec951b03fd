"""Kafka's messages → records with the topic's columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from headrace.errors import UsageError
from headrace.log.base import (
    ARRIVAL,
    HEADERS,
    ID,
    LOG_TIME,
    NO_STREAM_TIME,
    OFFSET,
    PARTITION,
    REST,
    STREAM_TIME,
    TIME,
    TOMBSTONE,
    WINDOW_END,
    WINDOW_START,
    Records,
    Topic,
)
from headrace.log.codecs.base import Schemas
from headrace.log.codecs.event_time import ANY_TIME, EventTimes
from headrace.log.kafka.formats import (
    ID_HEADER,
    OWN_HEADERS,
    STREAM_TIME_HEADER,
    TIME_ZERO_HEADER,
    WINDOW_END_HEADER,
    take_windows,
    topic_codecs,
    unpack_end,
)
from headrace.log.schema import frame_schema

_HEADERS = pa.map_(pa.utf8(), pa.binary())


class Decoder:
    """For one topic as it is defined now, and the columns somebody wants. Safe to use from several threads."""

    def __init__(self, topic: Topic, schemas: Schemas | None, columns: Sequence[str] | None = None) -> None:
        self.topic = topic
        self._schema = frame_schema(topic.spec)
        names = self._schema.names
        for name in columns or ():
            if name not in names and name not in (OFFSET, PARTITION, LOG_TIME):
                raise UsageError(f"topic `{topic.name}` has no column `{name}`")
        self._columns = list(columns) if columns is not None else names
        wanted = set(self._columns)
        stamp = topic.spec.timestamp
        self._wants_key = bool(wanted & {column.name for column in topic.spec.key})
        self._wants_value = bool(wanted & {column.name for column in topic.spec.value}) or REST in wanted
        if stamp is not None and TIME in wanted:
            self._wants_key = self._wants_value = True
        self._wants_headers = bool(wanted & {HEADERS, ID, STREAM_TIME}) or (
            topic.spec.windowed == "time" and bool(wanted & {WINDOW_END})
        )
        self._codecs = topic_codecs(topic.spec, schemas)
        self._times = EventTimes(topic.spec)

    def records(self, messages: Sequence[Message], shift: int = 0) -> Records:
        """One partition's messages, at least one. `shift`: how much further they are in the topic than Kafka says."""
        rows = len(messages)
        offsets = [(message.offset() or 0) + shift for message in messages]
        partition = messages[0].partition() or 0
        values = [message.value() for message in messages]
        arrays: dict[str, pa.Array] = {}
        errors: dict[int, str] = {}
        rest = self._decode_value(values, arrays, errors) if self._wants_value else None
        headers = [message.headers() for message in messages] if self._wants_headers else None
        self._decode_keys(messages, headers, arrays, errors)
        arrays[TIME] = self._event_times(messages, arrays)
        places = pa.array(offsets, pa.int64())
        arrays |= {OFFSET: places, ARRIVAL: places, PARTITION: pa.array(np.full(rows, partition, np.int32))}
        arrays[STREAM_TIME] = _stream_times(headers or [None] * rows)
        arrays[LOG_TIME] = pa.array([max(0, message.timestamp()[1]) for message in messages], pa.int64())
        arrays[TOMBSTONE] = pa.array([value is None for value in values], pa.bool_())
        arrays[REST] = pa.nulls(rows, pa.utf8()) if rest is None else rest
        if headers is not None:
            arrays[ID], arrays[HEADERS] = _headers(headers)
        batch = pa.RecordBatch.from_arrays([arrays[name] for name in self._columns], names=self._columns)
        gaps = offsets[-1] - offsets[0] != rows - 1
        topic = self.topic.name
        return Records(topic, partition, offsets[0], batch, offsets if gaps else None, errors or None)

    def _decode_value(
        self, values: list[bytes | str | None], arrays: dict[str, pa.Array], errors: dict[int, str]
    ) -> pa.Array | None:
        decoded = self._codecs.value.decode(pa.array(values, pa.binary()))
        arrays |= zip(decoded.batch.schema.names, decoded.batch.columns, strict=True)
        errors |= {row: f"value: {reason}" for row, reason in decoded.errors.items()}
        return decoded.rest

    def _decode_keys(
        self,
        messages: Sequence[Message],
        headers: list[list[tuple[str, bytes]] | None] | None,
        arrays: dict[str, pa.Array],
        errors: dict[int, str],
    ) -> None:
        windowed = self.topic.spec.windowed
        if not self._wants_key and not windowed:
            return
        keys = [message.key() for message in messages]
        if windowed:
            ends = [unpack_end(dict(pairs or ()).get(WINDOW_END_HEADER)) for pairs in headers or [None] * len(keys)]
            keys, starts, finishes, wrong = take_windows(keys, ends, windowed == "session")
            arrays[WINDOW_START], arrays[WINDOW_END] = starts, finishes
            errors |= {row: f"key: {reason}" for row, reason in wrong.items()}
        decoded = self._codecs.key.decode(pa.array(keys, pa.binary()))
        arrays |= zip(decoded.batch.schema.names, decoded.batch.columns, strict=True)
        errors |= {row: f"key: {reason}" for row, reason in decoded.errors.items()}

    def _event_times(self, messages: Sequence[Message], arrays: dict[str, pa.Array]) -> pa.Array:
        """The topic's timestamp column where the record has a usable one, else Kafka's timestamp."""
        stamped = pa.array([_time(message) for message in messages], pa.int64())
        if self.topic.spec.timestamp is None or self.topic.spec.timestamp.column not in arrays:
            return stamped
        unusable: set[int] = set()
        found = self._times.read(
            arrays, stamped.to_pylist(), len(messages), 0, ANY_TIME, lambda row, _: unusable.add(row)
        )
        if found is None:
            return stamped
        if not unusable:
            return found
        return pc.if_else(pa.array([row not in unusable for row in range(len(messages))]), found, stamped)


def _time(message: Message) -> int:
    time: int = max(0, message.timestamp()[1])
    return 0 if time == 1 and any(name == TIME_ZERO_HEADER for name, _ in message.headers() or ()) else time


def _stream_times(headers: Sequence[list[tuple[str, bytes]] | None]) -> pa.Array:
    """What records of another log were stamped with there."""
    stamps = np.full(len(headers), NO_STREAM_TIME, np.int64)
    for row, pairs in enumerate(headers):
        for name, value in pairs or ():
            if name == STREAM_TIME_HEADER:
                stamps[row] = _or_none(unpack_end(value))
    return pa.array(stamps)


def _or_none(time: int | None) -> int:
    return NO_STREAM_TIME if time is None else time


def _headers(headers: list[list[tuple[str, bytes]] | None]) -> tuple[pa.Array, pa.Array]:
    """Event ids, and the producers' own headers; Headrace's are left out."""
    if not any(headers):
        return pa.nulls(len(headers), pa.utf8()), pa.nulls(len(headers), _HEADERS)
    ids: list[str | None] = []
    kept: list[list[tuple[str, bytes]] | None] = []
    for pairs in headers:
        found = [value for name, value in pairs or () if name == ID_HEADER]
        ids.append(found[0].decode("utf-8", "replace") if found and found[0] is not None else None)
        own = [pair for pair in pairs or () if pair[0] not in OWN_HEADERS]
        kept.append(own or None)
    return pa.array(ids, pa.utf8()), pa.array(kept, _HEADERS)
