"""PROTOBUF: messages with the id of their schema and the place of their message in it, as Confluent frames them.

A message is read with the reader's schema (the one given, or the subject's newest) if that knows it: fields are known
by number, so renamed ones are found. Else with its writer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from headrace.errors import UsageError
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
    values_of,
)
from headrace.log.codecs.building import build, put_together
from headrace.log.codecs.cursor import Mask
from headrace.log.codecs.framing import (
    HEADER,
    Writers,
    byte_at,
    frame,
    ids_of,
    newest_schema,
    rows_by_writer,
    schema_ids,
)
from headrace.log.codecs.json_values import Mismatch
from headrace.log.codecs.proto_files import ProtoError, ProtoFiles
from headrace.log.codecs.proto_shapes import Get, Set, find_field, getter, setter
from headrace.log.codecs.proto_text import varint
from headrace.log.codecs.proto_types import proto_schema
from headrace.log.codecs.proto_vector_writing import ProtoVectorWriter
from headrace.log.codecs.proto_vectors import ProtoVectors
from headrace.log.schema import arrow_type
from headrace.types import Column, display_name

_MAX_INDEXES = 64
_UNWRITABLE = (TypeError, ValueError, EncodeError, OverflowError, AttributeError)


class ProtobufCodec(Codec):
    def __init__(
        self,
        topic: str,
        columns: tuple[Column, ...],
        schemas: Schemas,
        side: Side = "value",
        options: FormatOptions | None = None,
    ) -> None:
        self.columns = columns
        self.subject = f"{topic}-{side}"
        self._schemas, self._options = schemas, options or FormatOptions()
        self._own = proto_schema(columns, self._options.full_name)
        self._readers = Writers(schemas, self._reader)
        self._writer: tuple[bytes, ProtoWriter] | None = None

    def decode(self, payloads: pa.Array) -> Decoded:
        payloads = payloads.cast(pa.binary())
        ids = ids_of(payloads)
        if len(ids) and ids[0] >= 0 and (ids == ids[0]).all():
            known = self._readers.get(int(ids[0]))
            found = None if isinstance(known, str) else known.decode_first(payloads)
            if found is not None:
                return self._with_doubtful(payloads, *found)
        return self.decode_each(payloads)

    def _with_doubtful(self, payloads: pa.Array, arrays: dict[str, pa.Array], good: Mask) -> Decoded:
        """Rows that could not be read all at once are read one by one."""
        sure = decoded(self.columns, arrays, len(payloads))
        if good.all():
            return sure
        doubtful = np.flatnonzero(~good)
        rest = self.decode_each(payloads.take(pa.array(doubtful)))
        places = np.arange(len(payloads))
        places[doubtful] = len(payloads) + np.arange(len(doubtful))
        errors = {int(doubtful[row]): reason for row, reason in rest.errors.items()}
        return decoded(self.columns, put_together([sure.batch, rest.batch], pa.array(places)), len(payloads), errors)

    def decode_each(self, payloads: pa.Array) -> Decoded:
        """Message by message, with protobuf."""
        values = values_of(payloads)
        errors: dict[int, str] = {}
        messages: list[Any] = [None] * len(values)
        readers: list[ProtoReader | None] = [None] * len(values)
        for schema_id, rows in rows_by_writer(schema_ids(values, errors)).items():
            known = self._readers.get(schema_id)
            for row in rows:
                if isinstance(known, str):
                    errors[row] = known
                    continue
                try:
                    readers[row], start = known.at(values[row])
                    messages[row] = readers[row].parse(values[row][start:])  # type: ignore[union-attr]
                except (ProtoError, UsageError) as error:
                    errors[row] = error.message
                except DecodeError:
                    errors[row] = "the message does not fit its schema, or ends too early"
        arrays = {
            column.name: _column(column, place, messages, readers, errors) for place, column in enumerate(self.columns)
        }
        return decoded(self.columns, arrays, len(values), errors)

    def _reader(self, written: WriterSchema) -> ProtoReaders:
        if written.type != "PROTOBUF":
            raise UsageError(f"it is {written.type}, not PROTOBUF")
        newest = newest_schema(self._schemas, self.subject, "PROTOBUF", self._options)
        wanted = None
        if newest is not None and newest.id != written.id:
            wanted = ProtoFiles(newest.text, newest.references)
        return ProtoReaders(self.columns, ProtoFiles(written.text, written.references), wanted)

    def prepare(self) -> None:
        self._writing()

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        header, writer = self._writing()
        return writer.encode(batch, header)

    def _writing(self) -> tuple[bytes, ProtoWriter]:
        if self._writer is None:
            self._writer = self._choose_writer()
        return self._writer

    def _choose_writer(self) -> tuple[bytes, ProtoWriter]:
        """The schema that is given; else the subject's newest if its first message can hold the columns; else ours."""
        newest = newest_schema(self._schemas, self.subject, "PROTOBUF", self._options)
        if newest is not None:
            try:
                files = ProtoFiles(newest.text, newest.references)
                return _header(newest.id, files, self._options), ProtoWriter(self.columns, files, self._options)
            except UsageError:
                if self._options.schema_id is not None:
                    raise
        schema_id = self._schemas.register(self.subject, "PROTOBUF", self._own)
        files = ProtoFiles(self._own)
        return _header(schema_id, files, self._options), ProtoWriter(self.columns, files, self._options)


def _column(
    column: Column, place: int, messages: list[Any], readers: Sequence[ProtoReader | None], errors: dict[int, str]
) -> pa.Array:
    values: list[Any] = []
    name = display_name(column.name)
    for row, (message, reader) in enumerate(zip(messages, readers, strict=True)):
        get = None if reader is None or message is None else reader.getters[place]
        try:
            values.append(None if get is None else get(message))
        except Mismatch as mismatch:
            errors.setdefault(row, f"`{name}{mismatch.path}` {mismatch.message}")
            values.append(None)
    return build(column, values, None, errors) if messages else pa.nulls(0, arrow_type(column.type))


class BareProtobuf(Codec):
    """PROTOBUF_NOSR: messages alone, of the schema that the columns make; nothing is registered."""

    def __init__(self, columns: tuple[Column, ...], options: FormatOptions | None = None) -> None:
        options = options or FormatOptions()
        files = ProtoFiles(proto_schema(columns, options.full_name))
        self.columns = columns
        self._reader = ProtoReader(columns, files.message())
        self._writer = ProtoWriter(columns, files, options)

    def decode(self, payloads: pa.Array) -> Decoded:
        values = values_of(payloads)
        errors: dict[int, str] = {}
        messages: list[Any] = [None] * len(values)
        for row, value in enumerate(values):
            try:
                messages[row] = None if value is None else self._reader.parse(value)
            except DecodeError:
                errors[row] = "the payload is not such a message, or ends too early"
        readers = [self._reader] * len(values)
        arrays = {
            column.name: _column(column, place, messages, readers, errors) for place, column in enumerate(self.columns)
        }
        return decoded(self.columns, arrays, len(values), errors)

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        return self._writer.encode(batch)


class ProtoReader:
    """Reads one message type as the given columns."""

    def __init__(self, columns: Sequence[Column], message: Any) -> None:
        self.parse = GetMessageClass(message).FromString
        self.getters: list[Get | None] = []
        for column in columns:
            found = find_field(message, column.name)
            self.getters.append(None if found is None else getter(found, column.type))


class ProtoReaders:
    """The message types of one writer's schema, made when they first come along."""

    def __init__(self, columns: Sequence[Column], written: ProtoFiles, wanted: ProtoFiles | None) -> None:
        self._columns, self._written, self._wanted = columns, written, wanted
        self._known: dict[tuple[int, ...], ProtoReader] = {}
        self._vectors: tuple[ProtoVectors | None] | None = None

    def decode_first(self, payloads: pa.Array) -> tuple[dict[str, pa.Array], Mask] | None:
        """All rows at once, if they are flat messages of the first type in the file; None if that is not known."""
        if not self._columns:
            return None
        if self._vectors is None:
            self._vectors = (ProtoVectors.make(self._columns, self._message((0,))),)
        [vectors] = self._vectors
        if vectors is None:
            return None
        found, good = vectors.read(payloads, HEADER + 1)
        nulls = {c.name: pa.nulls(len(payloads), arrow_type(c.type)) for c in self._columns if c.name not in found}
        # The byte after the header is 0 for the first message.
        return found | nulls, good & (byte_at(payloads, HEADER) == 0)

    def at(self, payload: bytes) -> tuple[ProtoReader, int]:
        """The reader for a payload, and where its message begins."""
        indexes, start = read_indexes(payload, HEADER)
        reader = self._known.get(indexes)
        if reader is None:
            reader = self._known[indexes] = ProtoReader(self._columns, self._message(indexes))
        return reader, start

    def _message(self, indexes: tuple[int, ...]) -> Any:
        message = self._written.message(indexes)
        if self._wanted is not None:
            try:
                return self._wanted.pool.FindMessageTypeByName(message.full_name)
            except KeyError:
                pass
        return message


def read_indexes(payload: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Where in its file the message is declared: a count and so many numbers, zigzag; a single 0 is the first one."""
    count, place = _zigzag(payload, start)
    if count == 0:
        return (0,), place
    if not 0 < count <= _MAX_INDEXES:
        raise ProtoError(f"the payload names {count} places for its message")
    indexes = []
    for _ in range(count):
        index, place = _zigzag(payload, place)
        indexes.append(index)
    return tuple(indexes), place


def _zigzag(payload: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if place >= len(payload) or shift > 63:
            raise ProtoError("the payload ends before its message")
        byte = payload[place]
        place += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (number >> 1) ^ -(number & 1), place


def write_indexes(indexes: Sequence[int]) -> bytes:
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(varint(number << 1) for number in (len(indexes), *indexes))


def _chosen(files: ProtoFiles, options: FormatOptions) -> Any:
    if options.full_name is None:
        return files.message()
    try:
        return files.pool.FindMessageTypeByName(options.full_name)
    except KeyError:
        raise UsageError(f"the schema has no message `{options.full_name}`") from None


def _header(schema_id: int, files: ProtoFiles, options: FormatOptions) -> bytes:
    message = _chosen(files, options)
    indexes: list[int] = []
    while message.containing_type is not None:
        indexes.insert(0, list(message.containing_type.nested_types).index(message))
        message = message.containing_type
    indexes.insert(0, list(files.file.message_types_by_name).index(message.name))
    return frame(schema_id) + write_indexes(indexes)


class ProtoWriter:
    """Writes the given columns as messages of one type."""

    def __init__(self, columns: Sequence[Column], files: ProtoFiles, options: FormatOptions) -> None:
        message = _chosen(files, options)
        self._make = GetMessageClass(message)
        self._plan: list[tuple[Column, Set]] = []
        for column in columns:
            found = find_field(message, column.name)
            if found is None:
                raise UsageError(f"the schema has no field for the column `{display_name(column.name)}`")
            self._plan.append((column, setter(found, column.type)))
        self._vectors = ProtoVectorWriter.make(columns, message)

    def encode(self, batch: pa.RecordBatch, header: bytes = b"") -> Encoded:
        if self._vectors is not None:
            return Encoded(self._vectors.write(batch, header))
        return self.encode_each(batch, header)

    def encode_each(self, batch: pa.RecordBatch, header: bytes = b"") -> Encoded:
        """Message by message, with protobuf."""
        errors: dict[int, str] = {}
        messages = [self._make() for _ in range(batch.num_rows)]
        for column, set_ in self._plan:
            name = display_name(column.name)
            for row, value in enumerate(batch.column(column.name).to_pylist()):
                if value is None:
                    continue
                try:
                    set_(messages[row], value)
                except Mismatch as mismatch:
                    errors.setdefault(row, f"`{name}{mismatch.path}` {mismatch.message}")
                except _UNWRITABLE as error:
                    errors.setdefault(row, f"`{name}` cannot be written: {error}")
        payloads: list[bytes | None] = []
        for row, message in enumerate(messages):
            try:
                payloads.append(None if row in errors else header + message.SerializeToString())
            except _UNWRITABLE as error:
                errors[row] = f"the message cannot be written: {error}"
                payloads.append(None)
        return Encoded(binary(payloads), errors)
