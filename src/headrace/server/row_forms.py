"""The wire forms of a streamed answer: lines of JSON, or an Arrow stream. Both say at their end that they are whole."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from headrace.client.arrow_rows import ARROW, METADATA
from headrace.deliver.base import FeedEvent
from headrace.deliver.tables import to_table
from headrace.log.codecs.json_encode import to_json
from headrace.server.endpoint import NDJSON
from headrace.server.pump import line
from headrace.store.json_rows import to_json_rows
from headrace.types import Column

PIECE = 64 * 1024
ARROW_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
ARROW_TORN = b"\xff\xff\xff\xff\x00\x00\x00\x7f"
"""The beginning of a message that never comes: what ends with it is whole for no reader of Arrow."""

Row = Sequence[Any]


class RowForm(Protocol):
    media_type: str
    first: bytes
    """What is sent before anything is known but the columns."""
    alive: bytes

    def rows(self, chunk: Sequence[Row]) -> Iterator[bytes]:
        """Encode rows as pieces of about 64 KiB."""

    def event(self, event: FeedEvent) -> bytes:
        """Encode `header`, `progress`, `end` or `error`."""


class JsonLines:
    """One event a line, as for push queries; many rows in one."""

    media_type, first, alive = NDJSON, b"\n", b"\n"

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns

    def rows(self, chunk: Sequence[Row]) -> Iterator[bytes]:
        found: list[bytes] = []
        size = 0
        for row in to_json_rows(self._columns, chunk):
            found.append(to_json(row))
            size += len(found[-1]) + 1
            if size >= PIECE:
                yield _rows_line(found)
                found, size = [], 0
        if found:
            yield _rows_line(found)

    def event(self, event: FeedEvent) -> bytes:
        return line(event)


def _rows_line(rows: list[bytes]) -> bytes:
    return b'{"id":null,"event":"rows","data":{"rows":[' + b",".join(rows) + b"]}}\n"


class ArrowPieces:
    """An Arrow IPC stream. Our events are metadata of empty batches, which readers that do not know them pass over."""

    media_type = ARROW

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._empty = to_table(columns, [])
        self.first = self._empty.schema.serialize().to_pybytes()
        self.alive = self._message(_batch(self._empty))

    def rows(self, chunk: Sequence[Row]) -> Iterator[bytes]:
        yield self._message(_batch(to_table(self._columns, chunk)))

    def event(self, event: FeedEvent) -> bytes:
        said = to_json({"event": event.event, "data": event.data})
        end = {"end": ARROW_END, "error": ARROW_TORN}.get(event.event, b"")
        return self._message(_batch(self._empty), {METADATA: said}) + end

    def _message(self, batch: pa.RecordBatch, metadata: dict[bytes, bytes] | None = None) -> bytes:
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch, custom_metadata=metadata)
        return sink.getvalue()[len(self.first) : -len(ARROW_END)]


def _batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
