"""Avro records of one writer → columns, resolved to a reader's schema where there is one."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader

from headrace.log.codecs.avro_loading import UNREADABLE, AvroSchema, reason
from headrace.log.codecs.avro_shapes import Convert, Types, kind_of, logical_of, reader
from headrace.log.codecs.avro_vectors import VectorReader
from headrace.log.codecs.base import Decoded, decoded
from headrace.log.codecs.building import build, put_together
from headrace.log.schema import arrow_type
from headrace.types import Column


class AvroReader:
    """Reads what one writer wrote, as the given columns."""

    def __init__(
        self, columns: Sequence[Column], written: AvroSchema, wanted: AvroSchema | None = None, wrapped: bool = True
    ) -> None:
        self._columns = columns
        self._written = written.parsed
        if wanted is not None and _other_units(written, wanted):
            wanted = None
        self._wanted = None if wanted is None else wanted.parsed
        shape = written if wanted is None else wanted
        record = shape.record if wrapped else None
        self._single = record is None
        self._plan: list[tuple[Column, str | None, Convert | None]] = []
        known = columns and record is not None and wanted is None
        self._vectors = VectorReader.make(columns, record, shape.types) if known else None
        for column in columns:
            if record is None:
                self._plan.append((column, "", reader(shape.tree, column.type, shape.types)))
                continue
            found = shape.types.field(record, column.name)
            convert = reader(found["type"], column.type, shape.types) if found else None
            self._plan.append((column, found["name"] if found else None, convert))

    def decode(self, payloads: pa.Array, skip: int = 0) -> Decoded:
        """Binary payloads, none of them null, of which the first `skip` bytes are not the record's."""
        if self._vectors is None or not len(payloads):
            return self.decode_each(payloads.to_pylist(), skip)
        found, good = self._vectors.read(payloads, skip)
        nulls = {c.name: pa.nulls(len(payloads), arrow_type(c.type)) for c in self._columns if c.name not in found}
        sure = decoded(self._columns, found | nulls, len(payloads))
        if good.all():
            return sure
        doubtful = np.flatnonzero(~good)
        rest = self.decode_each(payloads.take(pa.array(doubtful)).to_pylist(), skip)
        places = np.arange(len(payloads))
        places[doubtful] = len(payloads) + np.arange(len(doubtful))
        errors = {int(doubtful[row]): reason for row, reason in rest.errors.items()}
        arrays = put_together([sure.batch, rest.batch], pa.array(places))
        return decoded(self._columns, arrays, len(payloads), errors)

    def decode_each(self, payloads: Sequence[bytes], skip: int = 0) -> Decoded:
        """Record by record, with fastavro."""
        errors: dict[int, str] = {}
        records: list[Any] = []
        written, wanted = self._written, self._wanted
        for row, payload in enumerate(payloads):
            stream = io.BytesIO(payload)
            stream.seek(skip)
            try:
                records.append(schemaless_reader(stream, written, wanted))
                if stream.tell() != len(payload):
                    errors[row] = f"{len(payload) - stream.tell()} bytes are left over after the record"
            except UNREADABLE as error:
                records.append(None)
                errors[row] = reason(error)
        return self.columns(records, errors)

    def columns(self, records: list[Any], errors: dict[int, str]) -> Decoded:
        """Records as fastavro gives them → columns."""
        arrays: dict[str, pa.Array] = {}
        for column, name, convert in self._plan:
            if name is None:
                arrays[column.name] = pa.nulls(len(records), arrow_type(column.type))
                continue
            values = records if self._single else [None if one is None else one[name] for one in records]
            arrays[column.name] = build(column, values, convert, errors)
        return decoded(self._columns, arrays, len(records), errors)


def _other_units(written: AvroSchema, wanted: AvroSchema) -> bool:
    """Do the two give different logical types to the same field?"""
    return _units(written.tree, wanted.tree, written.types, wanted.types)


def _units(one: Any, other: Any, ours: Types, theirs: Types) -> bool:
    for mine, his in zip(ours.branches(one), theirs.branches(other), strict=False):
        kind = kind_of(mine)
        if kind != kind_of(his):
            continue
        if logical_of(mine) != logical_of(his) or (isinstance(mine, dict) and mine.get("scale") != his.get("scale")):
            return True
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            if _units(mine[inner], his[inner], ours, theirs):
                return True
        elif kind in ("record", "error"):
            fields = {field["name"]: field for field in his["fields"]}
            if any(
                _units(field["type"], fields[field["name"]]["type"], ours, theirs)
                for field in mine["fields"]
                if field["name"] in fields
            ):
                return True
    return False
