"""AVRO: records with the id of their schema, as Confluent frames them.

What is read is read with its writer's schema and resolved to the reader's: the schema that is given, or the subject's
newest. Where the two mean different units by the same field (milliseconds and microseconds), the writer's word holds.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType

from headrace.errors import NotFound, UsageError
from headrace.log.codecs.avro_shapes import Convert, Types, kind_of, logical_of, plain, reader
from headrace.log.codecs.avro_types import avro_schema
from headrace.log.codecs.avro_vector_writing import VectorWriter
from headrace.log.codecs.avro_vectors import VectorReader
from headrace.log.codecs.avro_writing import check_others, column_values, writer
from headrace.log.codecs.base import (
    Codec,
    Decoded,
    Encoded,
    FormatOptions,
    Schemas,
    Side,
    WriterSchema,
    binary,
    decoded,
)
from headrace.log.codecs.framing import HEADER, UNFRAMED, Writers, frame, ids_of, unframed
from headrace.log.codecs.json_values import Mismatch
from headrace.log.schema import arrow_type
from headrace.types import Column, Timestamp, display_name

UNREADABLE = (
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    StopIteration,
    AttributeError,
    SchemaResolutionError,
)
_MISSING = object()


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema ready for use: as it is, and without its logical types for fastavro."""

    tree: Any
    types: Types
    parsed: Any

    @property
    def record(self) -> Any | None:
        tree = self.types.resolve(self.tree)
        return tree if isinstance(tree, dict) and tree.get("type") in ("record", "error") else None


def load_schema(text: str, references: Mapping[str, str] | None = None) -> AvroSchema:
    """`UsageError` for what cannot be read safely: a type that contains itself, or arrays whose items take no bytes."""
    named: dict[str, Any] = {}
    bare: dict[str, Any] = {}
    try:
        for needed in (references or {}).values():
            parse_schema(msgspec.json.decode(needed), named_schemas=named, _write_hint=False)
            parse_schema(plain(msgspec.json.decode(needed)), named_schemas=bare, _write_hint=False)
        tree = parse_schema(msgspec.json.decode(text), named_schemas=named, _write_hint=False)
        parsed = parse_schema(plain(msgspec.json.decode(text)), named_schemas=bare)
    except (SchemaParseException, UnknownType, msgspec.DecodeError, KeyError, TypeError) as error:
        raise UsageError(f"not an Avro schema: {error}") from None
    if isinstance(parsed, dict):
        parsed["__named_schemas"] = bare
    types = Types(named)
    _check_safe(tree, types, ())
    return AvroSchema(tree, types, parsed)


def _check_safe(tree: Any, types: Types, above: tuple[str, ...]) -> None:
    for branch in types.branches(tree):
        kind = kind_of(branch)
        if kind in ("record", "error"):
            if branch["name"] in above:
                raise UsageError(f"the record `{branch['name']}` contains itself: that cannot be read as columns")
            for one in branch["fields"]:
                _check_safe(one["type"], types, (*above, branch["name"]))
        elif kind in ("array", "map"):
            inner = branch["items" if kind == "array" else "values"]
            if kind == "array" and not _takes_bytes(inner, types):
                raise UsageError(
                    "an array whose items take no bytes cannot be read: its length would be anybody's word"
                )
            _check_safe(inner, types, above)


def _takes_bytes(tree: Any, types: Types) -> bool:
    tree = types.resolve(tree)
    if isinstance(tree, list):
        return True
    match kind_of(tree):
        case "null":
            return False
        case "fixed":
            return bool(tree["size"] > 0)
        case "record" | "error":
            return any(_takes_bytes(one["type"], types) for one in tree["fields"])
        case _:
            return True


class AvroCodec(Codec):
    def __init__(
        self,
        topic: str,
        columns: tuple[Column, ...],
        schemas: Schemas,
        side: Side = "value",
        options: FormatOptions | None = None,
    ) -> None:
        options = options or FormatOptions()
        self.columns = columns
        self.subject = f"{topic}-{side}"
        self._schemas, self._options = schemas, options
        self._wrapped = (side == "value" and options.wrap_single_value) or len(columns) != 1
        self._own = avro_schema(columns, self._wrapped, options.full_name)
        self._readers = Writers(schemas, self._reader)
        self._reader_schema: WriterSchema | None = None
        self._writer: tuple[int, AvroWriter] | None = None

    # Reading

    def decode(self, payloads: pa.Array) -> Decoded:
        payloads = payloads.cast(pa.binary())
        ids = ids_of(payloads)
        writers = np.unique(ids)
        if len(writers) == 1 and writers[0] >= 0:
            plan = self._readers.get(int(writers[0]))
            if not isinstance(plan, str):
                return plan.decode(payloads, HEADER)
        return self._decode_mixed(payloads, ids, [int(writer) for writer in writers])

    def _decode_mixed(self, payloads: pa.Array, ids: npt.NDArray[np.int64], writers: list[int]) -> Decoded:
        """Each writer's rows on their own, then put back in their order."""
        errors: dict[int, str] = {}
        batches: list[pa.RecordBatch] = []
        places = np.full(len(ids), -1, np.int64)
        start = 0
        for writer_id in writers:
            rows = np.flatnonzero(ids == writer_id)
            if writer_id == UNFRAMED:
                errors |= {int(row): unframed(payloads[int(row)].as_py()) for row in rows}
            if writer_id < 0:
                continue
            plan = self._readers.get(writer_id)
            if isinstance(plan, str):
                errors |= dict.fromkeys(map(int, rows), plan)
                continue
            part = plan.decode(payloads.take(pa.array(rows)), HEADER)
            errors |= {int(rows[row]): reason for row, reason in part.errors.items()}
            places[rows] = np.arange(start, start + len(rows))
            batches.append(part.batch)
            start += len(rows)
        arrays = {column.name: pa.nulls(len(ids), arrow_type(column.type)) for column in self.columns}
        if batches and self.columns:
            arrays = put_together(batches, pa.array(places, mask=places < 0))
        return decoded(self.columns, arrays, len(ids), dict(sorted(errors.items())))

    def _reader(self, written: WriterSchema) -> AvroReader:
        if written.type != "AVRO":
            raise UsageError(f"it is {written.type}, not AVRO")
        return AvroReader(
            self.columns,
            load_schema(written.text, written.references),
            self._resolution(written),
            self._wrapped,
        )

    def _resolution(self, written: WriterSchema) -> AvroSchema | None:
        """What to resolve to; None if that is what was written."""
        wanted = self._newest()
        if wanted is None or wanted.id == written.id:
            return None
        return load_schema(wanted.text, wanted.references)

    def _newest(self) -> WriterSchema | None:
        if self._options.schema_id is not None:
            return self._schemas.by_id(self._options.schema_id)
        try:
            newest = self._schemas.newest(self.subject)
        except NotFound:
            return None
        return newest if newest.type == "AVRO" else None

    # Writing

    def prepare(self) -> None:
        self._writing()

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        schema_id, plan = self._writing()
        return plan.encode(batch, frame(schema_id))

    def _writing(self) -> tuple[int, AvroWriter]:
        if self._writer is None:
            self._writer = self._choose_writer()
        return self._writer

    def _choose_writer(self) -> tuple[int, AvroWriter]:
        """The schema that is given; else the subject's newest if it can hold the columns; else one of our own."""
        newest = self._newest()
        if newest is not None:
            try:
                schema = load_schema(newest.text, newest.references)
                return newest.id, AvroWriter(self.columns, schema, self._wrapped)
            except UsageError:
                if self._options.schema_id is not None:
                    raise
        schema_id = self._schemas.register(self.subject, "AVRO", self._own)
        return schema_id, AvroWriter(self.columns, load_schema(self._own), self._wrapped)


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


def put_together(batches: list[pa.RecordBatch], places: pa.Array) -> dict[str, pa.Array]:
    """Columns whose rows are those of the batches, in the order of `places`."""
    table = pa.Table.from_batches(batches).combine_chunks().take(places)
    return {name: table.column(name).combine_chunks() for name in table.column_names}


def build(column: Column, values: list[Any], convert: Convert | None, errors: dict[int, str]) -> pa.Array:
    """A column of what was read; what does not fit is an error of its row."""
    arrow = arrow_type(column.type)
    through = pa.int64() if isinstance(column.type, Timestamp) else arrow
    try:
        converted = values if convert is None else [None if value is None else convert(value) for value in values]
        return _viewed(pa.array(converted, through), arrow)
    except (Mismatch, pa.ArrowException, OverflowError, TypeError, ValueError):
        return _viewed(
            pa.array([_one(column, v, convert, row, errors) for row, v in enumerate(values)], through), arrow
        )


def _viewed(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    return array if array.type == arrow else array.view(arrow)


def _one(column: Column, value: Any, convert: Convert | None, row: int, errors: dict[int, str]) -> Any:
    if value is None or row in errors:
        return None
    name = display_name(column.name)
    try:
        found = value if convert is None else convert(value)
        through = pa.int64() if isinstance(column.type, Timestamp) else arrow_type(column.type)
        pa.array([found], through)
        return found
    except Mismatch as mismatch:
        errors[row] = f"`{name}{mismatch.path}` {mismatch.message}"
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        errors[row] = f"`{name}` does not fit into {column.type}"
    return None


def reason(error: Exception) -> str:
    match error:
        case EOFError():
            return "the record ends too early"
        case UnicodeDecodeError():
            return "text in the record is not UTF-8"
        case SchemaResolutionError():
            return f"the record's schema cannot be resolved to the reader's: {str(error)[:200]}"
        case IndexError():
            return "the record names a branch or a symbol that the schema does not have"
        case _:
            return f"the record does not fit its schema: {type(error).__name__}: {str(error)[:200]}"


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
