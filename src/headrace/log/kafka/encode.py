"""A producer's batch → what Kafka takes: key and value bytes, times, headers, partitions."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.errors import UsageError
from headrace.log.base import HEADERS, ID, REST, TIME, TOMBSTONE, WINDOW_END, WINDOW_START, Topic
from headrace.log.codecs.base import Codec, Schemas
from headrace.log.codecs.keys import encode_keys
from headrace.log.kafka.formats import (
    ID_HEADER,
    STREAM_TIME_HEADER,
    TIME_ZERO_HEADER,
    WINDOW_END_HEADER,
    add_windows,
    pack_end,
    topic_codecs,
)
from headrace.log.writing.partitioning import partition_rows
from headrace.log.writing.prepare import Preparer

Headers: TypeAlias = list[tuple[str, bytes | None]]
Digests: TypeAlias = list[bytes | None]

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Messages for one topic, row by row."""

    topic: str
    """As Headrace calls it."""
    kafka: str
    keys: list[bytes | None]
    values: list[bytes | None]
    times: list[int]
    partitions: list[int]
    headers: list[Headers | None] | None
    bytes: int
    largest: int
    digests: Digests | None = None
    """Of the event ids that have to be looked up; None if there are none."""

    def __len__(self) -> int:
        return len(self.values)

    def without(self, rows: Collection[int]) -> Outgoing:
        """The same but for these rows."""
        if not rows:
            return self
        kept = [row for row in range(len(self)) if row not in rows]
        return replace(
            self,
            keys=[self.keys[row] for row in kept],
            values=[self.values[row] for row in kept],
            times=[self.times[row] for row in kept],
            partitions=[self.partitions[row] for row in kept],
            headers=self.headers and [self.headers[row] for row in kept],
            digests=self.digests and [self.digests[row] for row in kept],
        )


class Encoder:
    """For one topic as it is defined now. Safe to use from several threads."""

    def __init__(self, topic: Topic, kafka: str, clock: Clock, schemas: Schemas | None, look_up: bool = False) -> None:
        """`look_up`: whether event ids will be."""
        self.topic = topic
        self._look_up = look_up and topic.spec.role == "events"
        self.preparer = Preparer(topic, clock)
        """Checks columns and types, fills in times."""
        self.kafka = kafka
        self._codecs = topic_codecs(topic.spec, schemas)
        self._columns = {column.name.casefold(): column.name for column in topic.spec.value}
        self._lock = threading.Lock()
        self._turn = 0

    def encode(self, batch: pa.RecordBatch, partition: int | None) -> Outgoing:
        """`UsageError` if the batch does not fit the topic, or a value its format."""
        # A partition is always named here: the preparer's own choice is for the local log.
        prepared = self.preparer.prepare(batch, partition or 0)
        outgoing = self.encode_ready(prepared.batch, partition)
        return replace(outgoing, digests=prepared.digests) if self._look_up and prepared.digests else outgoing

    def encode_ready(self, ready: pa.RecordBatch, partition: int | None) -> Outgoing:
        """A batch that has been prepared."""
        spec = self.topic.spec
        key_bytes = encode_keys(self._codecs.key, spec, ready)
        keys: list[bytes | None] = key_bytes.to_pylist()
        if spec.windowed:
            keys = add_windows(keys, ready[WINDOW_START], ready[WINDOW_END], spec.windowed == "session")
        values = self._values(ready)
        times = ready[TIME].to_pylist()
        headers = self._headers(ready, times)
        sizes = [len(key or b"") + len(value or b"") for key, value in zip(keys, values, strict=True)]
        return Outgoing(
            spec.name,
            self.kafka,
            keys,
            values,
            [time or 1 for time in times],
            self._partitions(key_bytes, partition),
            headers,
            sum(sizes),
            max(sizes, default=0),
        )

    def _partitions(self, keys: pa.Array, partition: int | None) -> list[int]:
        count = self.topic.spec.partitions
        if partition is not None or count == 1:
            return [partition or 0] * len(keys)
        with self._lock:
            turn, self._turn = self._turn, (self._turn + len(keys)) % count
        chosen = partition_rows([keys], ["KEY"], "KAFKA", count, turn)
        return [chosen] * len(keys) if isinstance(chosen, int) else chosen.tolist()

    def _values(self, ready: pa.RecordBatch) -> list[bytes | None]:
        values: list[bytes | None] = _encoded(self._codecs.value, ready, self.topic).to_pylist()
        number = ready.schema.get_field_index(REST)
        if number >= 0 and ready.column(number).null_count < len(values):
            for row, rest in enumerate(ready.column(number).to_pylist()):
                if rest is not None:
                    values[row] = self._with_rest(values[row], rest)
        tombstones = ready[TOMBSTONE]
        if tombstones.true_count:
            for row in np.flatnonzero(tombstones.to_numpy(zero_copy_only=False)).tolist():
                values[row] = None
        return values

    def _with_rest(self, value: bytes | None, rest: str) -> bytes:
        """Undeclared fields are fields of the value's object. One that is left over because its column declares only a
        part of it takes the column's place."""
        if self.topic.spec.value_format != "JSON":
            raise UsageError(
                f"topic `{self.topic.name}`: {self.topic.spec.value_format} has no room for undeclared fields",
                detail=rest[:80],
                hint="declare them, or use VALUE_FORMAT='JSON'",
            )
        try:
            more: Mapping[str, Any] = _fields.decode(rest)
        except msgspec.DecodeError as error:
            raise UsageError("`$rest` must be a JSON object", detail=str(error)) from error
        taken = {field.casefold() for field in more if field.casefold() in self._columns}
        if not taken and value is not None and len(value) > 2:
            return value[:-1] + b"," + rest.strip()[1:].encode() if more else value
        known = _fields.decode(value or b"{}")
        kept = {name: field for name, field in known.items() if name.casefold() not in taken}
        return msgspec.json.encode(kept | dict(more))

    def _headers(self, ready: pa.RecordBatch, times: list[int]) -> list[Headers | None] | None:
        found: list[Headers | None] | None = None
        number = ready.schema.get_field_index(HEADERS)
        if number >= 0 and ready.column(number).null_count < ready.num_rows:
            found = [None if pairs is None else list(pairs) for pairs in ready.column(number).to_pylist()]
        number = ready.schema.get_field_index(ID)
        if number >= 0 and ready.column(number).null_count < ready.num_rows:
            ids = ready.column(number).to_pylist()
            found = found or [None] * ready.num_rows
            found = [
                pairs if id_ is None else [*(pairs or ()), (ID_HEADER, id_.encode())]
                for pairs, id_ in zip(found, ids, strict=True)
            ]
        if self.topic.spec.windowed == "time":
            ends = [(WINDOW_END_HEADER, pack_end(end)) for end in ready[WINDOW_END].to_pylist()]
            found = [[*(pairs or ()), end] for pairs, end in zip(found or [None] * len(ends), ends, strict=True)]
        if 0 in times:
            zero = (TIME_ZERO_HEADER, b"")
            rows = zip(found or [None] * len(times), times, strict=True)
            found = [pairs if time else [*(pairs or ()), zero] for pairs, time in rows]
        return found


def _encoded(codec: Codec, ready: pa.RecordBatch, topic: Topic) -> pa.Array:
    encoded = codec.encode(ready)
    if encoded.errors:
        row, reason = next(iter(sorted(encoded.errors.items())))
        raise UsageError(f"topic `{topic.name}`: row {row} cannot be written: {reason}")
    return encoded.payloads


def with_stream_times(outgoing: Outgoing, stream_times: Sequence[int]) -> Outgoing:
    """Copied records, with what they were stamped with in the log they are from."""
    headers = outgoing.headers or [None] * len(outgoing)
    stamps = [(STREAM_TIME_HEADER, pack_end(time)) for time in stream_times]
    return replace(outgoing, headers=[[*(own or ()), stamp] for own, stamp in zip(headers, stamps, strict=True)])
