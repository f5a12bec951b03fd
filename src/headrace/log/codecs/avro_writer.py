"""Columns → Avro records of one schema."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from fastavro import schemaless_writer

from headrace.errors import UsageError
from headrace.log.codecs.avro_loading import UNREADABLE, AvroSchema
from headrace.log.codecs.avro_shapes import Convert
from headrace.log.codecs.avro_vector_writing import VectorWriter
from headrace.log.codecs.avro_writing import check_others, column_values, writer
from headrace.log.codecs.base import Encoded, binary
from headrace.log.codecs.json_values import Mismatch
from headrace.types import Column, display_name

_MISSING = object()


class AvroWriter:
    """Writes the given columns with one schema."""

    def __init__(self, columns: Sequence[Column], schema: AvroSchema, wrapped: bool = True) -> None:
        self._schema = schema
        record = schema.record if wrapped else None
        self._single = record is None
        self._plan: list[tuple[Column, str, Any, Convert | None, bool]] = []
        if record is None and len(columns) != 1:
            raise UsageError("the schema is not a record: it cannot hold several columns")
        for column in columns:
            found = {"name": "", "type": schema.tree} if record is None else schema.types.field(record, column.name)
            if found is None:
                raise UsageError(f"the schema has no field for the column `{display_name(column.name)}`")
            convert, nullable = writer(found["type"], column.type, schema.types)
            self._plan.append((column, found["name"], found["type"], convert, nullable))
        self._vectors = None
        if record is not None:
            check_others(record, {name for _, name, *_ in self._plan})
            self._vectors = VectorWriter.make(columns, record, schema.types)

    def encode(self, batch: pa.RecordBatch, header: bytes = b"") -> Encoded:
        payloads = None if self._vectors is None else self._vectors.write(batch, header)
        return self.encode_each(batch, header) if payloads is None else Encoded(payloads)

    def encode_each(self, batch: pa.RecordBatch, header: bytes = b"") -> Encoded:
        """Record by record, with fastavro."""
        errors: dict[int, str] = {}
        records = self.records(batch, errors)
        payloads: list[bytes | None] = []
        schema = self._schema.parsed
        for row, record in enumerate(records):
            if row in errors or record is _MISSING:
                payloads.append(None)
                continue
            stream = io.BytesIO()
            stream.write(header)
            try:
                schemaless_writer(stream, schema, record)
                payloads.append(stream.getvalue())
            except UNREADABLE as error:
                errors[row] = f"the record cannot be written: {error}"
                payloads.append(None)
        return Encoded(binary(payloads), errors)

    def records(self, batch: pa.RecordBatch, errors: dict[int, str]) -> list[Any]:
        """What fastavro writes: a record per row. A bare value that is null and cannot be is `_MISSING`."""
        columns = [
            self._values(batch.column(column.name), column, tree, convert, nullable, errors)
            for column, _, tree, convert, nullable in self._plan
        ]
        if self._single:
            nullable = self._plan[0][4]
            return [_MISSING if value is None and not nullable else value for value in columns[0]]
        names = [name for _, name, *_ in self._plan]
        if not columns:
            return [{} for _ in range(batch.num_rows)]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _values(
        self,
        array: pa.Array,
        column: Column,
        tree: Any,
        convert: Convert | None,
        nullable: bool,
        errors: dict[int, str],
    ) -> list[Any]:
        values, ready = column_values(array, column.type, tree, self._schema.types)
        name = display_name(column.name)
        if array.null_count and not nullable and not self._single:
            for row, value in enumerate(values):
                if value is None:
                    errors.setdefault(row, f"`{name}` is null, which the schema does not allow")
        if ready or convert is None:
            return values
        found: list[Any] = []
        for row, value in enumerate(values):
            try:
                found.append(None if value is None else convert(value))
            except Mismatch as mismatch:
                errors.setdefault(row, f"`{name}{mismatch.path}` {mismatch.message}")
                found.append(None)
        return found
