"""From a producer's batch to rows ready for a frame: columns in the topic's order and types, partitions, event ids.

This runs in the writer's thread (or its connection's), so that the commit thread only stamps and writes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.errors import UsageError
from headrace.log.base import ID, TIME, TOMBSTONE, Topic
from headrace.log.codecs.keys import KeyColumns
from headrace.log.schema import STAMPED, frame_schema
from headrace.log.writing.partitioning import Partitions, partition_rows, rows_in_turn
from headrace.log.writing.reshape import Layout, closed_partition

DIGEST_SIZE = 16
_MOST_PLANS = 64
_MOST_NULLS = 1 << 16
_nulls: dict[pa.DataType, pa.Array] = {}
"""Of types that hold others: the longest that was asked for."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows of one topic. `batch` has the frame's columns without the stamped ones."""

    topic: str
    topic_id: int
    version: int
    batch: pa.RecordBatch
    partitions: Partitions
    digests: list[bytes | None] | None
    """Digest of each row's event id; None if no row has one."""
    bytes: int
    cuts: tuple[int, ...] | None = None
    """Rows of each send, where several travel as one batch."""
    given: tuple[int, ...] = ()
    """The partitions, if the producer named them."""
    layout: int = 0
    """How many partitions the topic had, closed ones too: if it has more now, rows are placed again."""
    order: np.ndarray[Any, np.dtype[np.int64]] | None = None
    """Where each row belongs among those of the other tasks of its transaction; None if that does not matter."""


def id_digest(event_id: str) -> bytes:
    return _digest(event_id.encode())


def _digest(event_id: bytes) -> bytes:
    return blake2b(event_id, digest_size=DIGEST_SIZE).digest()


def nulls(rows: int, type_: pa.DataType) -> pa.Array:
    """As pyarrow's. Those of lists and maps have zeros for every row in their insides, too, although there is nothing
    inside; and when a few rows are cut out for a partition's frame, all of these zeros go with them."""
    if not pa.types.is_nested(type_):
        return pa.nulls(rows, type_)
    known = _nulls.get(type_)
    if known is None or len(known) < rows:
        known = pa.nulls(1, type_).take(pa.array(np.zeros(max(rows, 1024), np.int32)))
        if rows <= _MOST_NULLS:
            _nulls[type_] = known
    return known.slice(0, rows)


class Preparer:
    """Prepares batches for one version of one topic. Safe to use from several threads."""

    def __init__(self, topic: Topic, clock: Clock, key_columns: KeyColumns | None = None) -> None:
        self.topic = topic
        self.key_columns = key_columns or KeyColumns(topic.spec)
        self.version = topic.schemas[-1].version
        self.layout = topic.spec.partitions
        self._layout = Layout(topic, self.key_columns) if topic.ranges else None
        self.frame_schema = frame_schema(topic.spec)
        # What a batch has before the owner stamps it; `$time` comes first.
        self.schema = pa.schema([field for field in self.frame_schema if field.name not in STAMPED])
        self._clock = clock
        self._keys = [column.name for column in topic.spec.key]
        self._plans: dict[pa.Schema, list[int]] = {}
        self._single: dict[str, pa.Array] = {}
        self._turn = 0
        self._turn_lock = threading.Lock()

    def prepare(
        self, batch: pa.RecordBatch, partition: int | tuple[int, ...] | None, cuts: tuple[int, ...] | None = None
    ) -> Prepared:
        """`UsageError` if the batch has columns the topic has not, or values that do not fit. `cuts` are the rows of
        each send, and several partitions are one for each send."""
        plan = self._plans.get(batch.schema) or self._make_plan(batch.schema)
        columns = [
            self._column(field, batch.column(source) if source >= 0 else None, batch.num_rows)
            for field, source in zip(self.schema, plan, strict=True)
        ]
        ready = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Prepared(
            self.topic.name,
            self.topic.id,
            self.version,
            ready,
            self._partitions(ready, partition, cuts),
            _digests(ready),
            ready.nbytes,
            cuts,
            () if partition is None else (partition,) if isinstance(partition, int) else partition,
            self.layout,
        )

    def _make_plan(self, schema: pa.Schema) -> list[int]:
        """For each column of the frame, where the batch has it (-1: nowhere)."""
        for name in schema.names:
            if name in STAMPED:
                raise UsageError(f"column `{name}` is given by the log", hint="leave it out")
            if self.schema.get_field_index(name) < 0:
                raise UsageError(
                    f"topic `{self.topic.name}` has no column `{name}`",
                    hint="its columns: " + ", ".join(f"`{known}`" for known in self.schema.names),
                )
        if len(set(schema.names)) < len(schema.names):
            raise UsageError("a batch has two columns of one name")
        plan = [schema.get_field_index(name) for name in self.schema.names]
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[schema] = plan
        return plan

    def _column(self, field: pa.Field, column: pa.Array | None, rows: int) -> pa.Array:
        if field.name == TIME:
            return self._times(column, rows)
        if column is None:
            return self._missing(field, rows)
        if column.type != field.type:
            column = _cast(column, field)
        if field.nullable and column.null_count == rows:
            return nulls(rows, field.type)
        if not field.nullable and column.null_count:
            if field.name != TOMBSTONE:
                raise UsageError(f"column `{field.name}` of topic `{self.topic.name}` cannot be null")
            column = column.fill_null(False)
        return column

    def _missing(self, field: pa.Field, rows: int) -> pa.Array:
        if rows == 1 and (known := self._single.get(field.name)) is not None:
            return known
        if not field.nullable and field.name != TOMBSTONE:
            raise UsageError(f"column `{field.name}` of topic `{self.topic.name}` is missing")
        filler = nulls(rows, field.type) if field.nullable else pa.array(np.zeros(rows, np.bool_))
        if rows == 1:
            self._single[field.name] = filler
        return filler

    def _times(self, column: pa.Array | None, rows: int) -> pa.Array:
        now = max(0, self._clock.now_ms())
        if column is None:
            return pa.array(np.full(rows, now, np.int64))
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
        if column.type != pa.int64():
            column = _cast(column, self.schema.field(TIME))
        if column.null_count:
            column = column.fill_null(now)
        if rows and (smallest := int(column.to_numpy().min())) < 0:
            raise UsageError(f"`$time` must be milliseconds since 1970, got {smallest}")
        return column

    def choose(self, ready: pa.RecordBatch) -> Partitions:
        """By key, or in turn."""
        return self._partitions(ready, None, None)

    def _partitions(
        self, ready: pa.RecordBatch, partition: int | tuple[int, ...] | None, cuts: tuple[int, ...] | None
    ) -> Partitions:
        count = self.topic.spec.partitions
        if partition is not None:
            for one in (partition,) if isinstance(partition, int) else partition:
                if not 0 <= one < count:
                    raise UsageError(f"topic `{self.topic.name}` has no partition {one}", hint=f"0 to {count - 1}")
                if self.topic.ranges and self.topic.ranges[one].closed:
                    raise closed_partition(self.topic, one)
            return partition if isinstance(partition, int) else np.repeat(np.array(partition, np.int64), cuts or 1)
        if count == 1:
            return 0
        rows = ready.num_rows
        with self._turn_lock:
            turn, self._turn = self._turn, (self._turn + rows) % (self._layout.size if self._layout else count)
        if self._layout is not None:
            return self._layout.choose(ready, turn)
        if not self._keys:
            return rows_in_turn(rows, count, turn)
        return partition_rows(*self.key_columns.of(ready), count, turn)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise UsageError(f"column `{field.name}` does not fit `{field.type}`", detail=str(error)) from error


def _digests(ready: pa.RecordBatch) -> list[bytes | None] | None:
    number = ready.schema.get_field_index(ID)
    if number < 0:
        return None
    ids = ready.column(number)
    if ids.null_count == len(ids):
        return None
    plain = ids.view(pa.binary()).to_pylist()
    if not ids.null_count:
        return [blake2b(event_id, digest_size=DIGEST_SIZE).digest() for event_id in plain]
    return [None if event_id is None else _digest(event_id) for event_id in plain]


def place(prepared: Prepared, preparer: Preparer) -> Partitions:
    """The rows' partitions as the topic is now; it may have been split or merged since they were prepared."""
    if prepared.layout == preparer.layout or prepared.given:
        return prepared.partitions
    return preparer.choose(upgrade(prepared, preparer))


def upgrade(prepared: Prepared, preparer: Preparer) -> pa.RecordBatch:
    """The batch in the topic's newest schema: columns that were added since it was prepared are null."""
    if prepared.version == preparer.version:
        return prepared.batch
    batch, schema = prepared.batch, preparer.schema
    added = [nulls(batch.num_rows, field.type) for field in list(schema)[batch.num_columns :]]
    return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)
