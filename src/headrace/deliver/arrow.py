"""A topic's records as Arrow batches, bounded like a page. Partition after partition, each in order: whoever wants
Arrow wants columns, and sorts by `$arrival` if it matters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.deliver.browse import Offsets, check_offset
from headrace.log.base import OFFSET, PARTITION, Log, Records
from headrace.log.schema import frame_schema
from headrace.store.arrivals import addressed, topic_ends


@dataclass(frozen=True, slots=True)
class ArrowPage:
    schema: pa.Schema
    batches: list[pa.RecordBatch]
    """With the columns `$partition` and `$offset` added."""
    next: dict[int, int]


def read_arrow(log: Log, name: str, at: Offsets, limit: int, max_bytes: int) -> ArrowPage:
    """`OffsetOutOfRange` if the log no longer holds the first of them."""
    ends = topic_ends(log.snapshot(), name)
    batches: list[pa.RecordBatch] = []
    reached = dict(at)
    rows, size = limit, max_bytes
    for number, offset in at.items():
        end = check_offset(ends, number, offset, name)
        for records in _read(log, name, number, offset, end):
            batch = addressed(records)
            fitting = _fitting(batch, rows, size, first=not batches)
            if fitting:
                part = batch.slice(0, fitting)
                batches.append(part)
                reached[number] = part.column(OFFSET)[-1].as_py() + 1
                rows, size = rows - fitting, size - part.nbytes
            if fitting < batch.num_rows or rows <= 0 or size <= 0:
                return ArrowPage(batches[0].schema, batches, reached)
        reached[number] = max(offset, end)
    return ArrowPage(batches[0].schema if batches else _schema(log, name), batches, reached)


def _read(log: Log, name: str, number: int, start: int, end: int) -> Iterator[Records]:
    if start < end:
        yield from (records for records in log.read(name, number, start, end) if records.batch.num_rows)


def _fitting(batch: pa.RecordBatch, rows: int, size: int, first: bool) -> int:
    """How many rows fit, by their average size; the very first always does."""
    average: int = max(1, batch.nbytes // batch.num_rows)
    return max(min(int(batch.num_rows), rows, max(0, size) // average), 1 if first and rows else 0)


def _schema(log: Log, name: str) -> pa.Schema:
    """A page without records still says which columns it would have."""
    schema = frame_schema(log.topic(name).spec)
    return schema.append(pa.field(PARTITION, pa.int64())).append(pa.field(OFFSET, pa.int64()))
