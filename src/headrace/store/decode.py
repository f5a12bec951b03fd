"""A topic's records as a source's: its declared columns, found in the topic's columns, in `$rest`, or in a raw
topic's bytes.

The same rules as `process/lower/scan.py` has for Spark: a column is found by its name, if need be in another case; a
value that cannot be converted is null, because a record that one stream cannot read is still a record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.base import ARRIVAL, HEADERS, REST, TIME, TOMBSTONE, WINDOW_END, WINDOW_START, Records, Topic
from headrace.log.codecs.base import Codec, Schemas, Side
from headrace.log.codecs.json_values import Mismatch, Reader
from headrace.log.codecs.of_source import read_plainly, source_codec
from headrace.log.schema import RAW_KEY, RAW_VALUE, arrow_type
from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import Cast, ColumnRef
from headrace.sql.source import Header, Source
from headrace.store.columns import python_values
from headrace.types import BigInt, Column, DataType, Double, Integer, Timestamp, Varchar

_decoder = msgspec.json.Decoder()


class SourceDecoder:
    """Reads one source from its topic as it is defined now."""

    def __init__(self, topic: Topic, source: Source, schemas: Schemas | None = None, also: Sequence[str] = ()) -> None:
        """`schemas`: for a raw topic in a format that needs a registry. `also`: further system columns."""
        self._also = also
        self.topic, self.source = topic, source
        self._raw = topic.spec.kind == "raw"
        # JSON is read field by field: what cannot be converted is null, and the record stays one.
        self._value_codec = self._codec("value", schemas)
        self._key_codec = self._codec("key", schemas)
        self._stored = {column.name: self._find(column) for column in source.key + source.value}
        self.columns = self._columns()
        """What to ask the log for."""
        self._plain = (
            not source.headers
            and set(self._stored) == {stored.name for stored in self._stored.values() if stored}
            and all(self._stored[column.name] == column for column in source.key + source.value)
        )

    def stored(self, name: str) -> Column | None:
        """The topic's column that a declared one is, unconverted; None if it has to be made from something."""
        declared = next((column for column in self.source.key + self.source.value if column.name == name), None)
        found = self._stored.get(name)
        return found if found is not None and declared is not None and found.type == declared.type else None

    def _codec(self, side: Side, schemas: Schemas | None) -> Codec | None:
        columns = self.source.key if side == "key" else self.source.value
        plain = read_plainly(self.source, side)
        return source_codec(self.source, side, schemas) if self._raw and columns and not plain else None

    def _find(self, declared: Column) -> Column | None:
        stored = () if self._raw else self.topic.spec.key + self.topic.spec.value
        exact = [column for column in stored if column.name == declared.name]
        alike = [column for column in stored if column.name.casefold() == declared.name.casefold()]
        return next(iter(exact + alike), None)

    def _columns(self) -> list[str]:
        spec = self.topic.spec
        names = list(dict.fromkeys([ARRIVAL, TIME, TOMBSTONE, *self._also]))
        if self.source.window:
            names += [WINDOW_START, WINDOW_END]
        if self.source.headers and spec.has_headers:
            names.append(HEADERS)
        if self._raw:
            return [*names, RAW_KEY.name, RAW_VALUE.name]
        if None in self._stored.values() and spec.role == "events":
            names.append(REST)
        return names + list(dict.fromkeys(stored.name for stored in self._stored.values() if stored))

    def decode(self, records: Records) -> Records:
        """The same records with the source's own columns instead of the topic's."""
        batch = records.batch
        if not self._plain:
            batch = self._decode(batch)
        return replace(records, batch=self._with_time(batch))

    def _decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        there = (name for name in self.columns if name in batch.schema.names)  # not every log has `$arrival`
        system = {name: batch.column(name) for name in there if name.startswith("$") and name != REST}
        if self._raw:
            system[TOMBSTONE] = pc.or_(batch.column(TOMBSTONE), pc.is_null(batch.column(RAW_VALUE.name)))
        own = self._from_codecs(batch)
        fields = self._fields(batch)
        for column in self.source.key + self.source.value:
            if column.name not in own:
                own[column.name] = self._column(batch, column, fields)
        own |= {header.name: _header(batch, header) for header in self.source.headers}
        return pa.record_batch(system | own)

    def _from_codecs(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        for codec, name in ((self._key_codec, RAW_KEY.name), (self._value_codec, RAW_VALUE.name)):
            if codec is not None:
                decoded = codec.decode(batch.column(name)).batch
                found |= dict(zip(decoded.schema.names, decoded.columns, strict=True))
        return found

    def _fields(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Per record, what JSON says about columns the topic does not have."""
        name = RAW_VALUE.name if self._raw else REST
        if name not in batch.schema.names or self._value_codec is not None:
            return [{}] * batch.num_rows
        return [_object(text) for text in batch.column(name).to_pylist()]

    def _column(self, batch: pa.RecordBatch, declared: Column, fields: list[dict[str, Any]]) -> pa.Array:
        stored = self._stored[declared.name]
        if stored is not None:
            array = batch.column(stored.name)
            return array if stored.type == declared.type else _cast(array, stored, declared.type)
        if self._raw and declared in self.source.key:
            keys = batch.column(RAW_KEY.name).to_pylist()
            if self.source.key_format.upper() == "JSON" and len(self.source.key) > 1:
                return _read([_object(key) for key in keys], declared)
            read = _key_reader(declared.type, self.source.key_format)
            return pa.array([None if key is None else read(key) for key in keys], arrow_type(declared.type))
        return _read(fields, declared)

    def _with_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Event time is the topic's, unless the source names another column. A record without a value there keeps its
        time."""
        stamp = self.topic.spec.timestamp
        name = self.source.timestamp
        if name is None or name == (stamp.column if stamp else None) or name not in batch.schema.names:
            return batch
        values = batch.column(name)
        if pa.types.is_timestamp(values.type):
            values = pc.floor_temporal(values, unit="millisecond").cast(pa.timestamp("ms", "UTC"))
        elif not pa.types.is_int64(values.type):
            return batch
        moments = values.cast(pa.int64())
        times = pc.if_else(pc.greater_equal(moments, 0), moments, None)
        return batch.set_column(batch.schema.get_field_index(TIME), TIME, pc.coalesce(times, batch.column(TIME)))


def _header(batch: pa.RecordBatch, header: Header) -> pa.Array:
    """All headers, none if there are none; or the last one of that name. What a query writes has no headers."""
    kept = HEADERS in batch.schema.names
    pairs = [entries or [] for entries in (batch.column(HEADERS).to_pylist() if kept else [None] * batch.num_rows)]
    if header.key is None:
        values: list[Any] = [[{"KEY": name, "VALUE": value} for name, value in entries] for entries in pairs]
    else:
        values = [next((value for name, value in reversed(one) if name == header.key), None) for one in pairs]
    return pa.array(values, arrow_type(header.column.type))


def _object(text: str | bytes | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _read(objects: list[dict[str, Any]], declared: Column) -> pa.Array:
    reader = Reader(declared.type)
    return reader.array([_convert(reader, _field(fields, declared.name)) for fields in objects])


def _field(fields: dict[str, Any], name: str) -> Any:
    if name in fields:
        return fields[name]
    wanted = name.casefold()
    return next((value for spelling, value in fields.items() if spelling.casefold() == wanted), None)


def _convert(reader: Reader, value: Any) -> Any:
    try:
        return reader.convert(value)
    except Mismatch:
        return None


def _cast(array: pa.Array, stored: Column, target: DataType) -> pa.Array:
    """As CAST does it."""
    column = ColumnRef(stored.name, type=stored.type)
    convert = compile_expression(Cast(column, target, type=target))
    return to_arrow([convert({stored.name: value}) for value in python_values(array, stored.type)], target)


def to_arrow(values: list[Any], type_: DataType) -> pa.Array:
    """Our values → Arrow's: the inverse of `python_values`."""
    if isinstance(type_, Timestamp):
        return pa.array(values, pa.timestamp("ms", "UTC")).cast(arrow_type(type_))
    return pa.array(values, arrow_type(type_))


def _key_reader(type_: DataType, key_format: str) -> Callable[[bytes], Any]:
    """A raw key's bytes, as Kafka's serializers or JSON write a single value."""
    if key_format.upper() == "JSON":
        reader = Reader(type_)
        return lambda key: _convert(reader, _json(key))
    match type_:
        case Varchar():
            return lambda key: key.decode("utf-8", "replace")
        case Integer():
            return lambda key: _unpack(">i", key)
        case BigInt():
            return lambda key: _unpack(">q", key)
        case Timestamp():
            return lambda key: None if len(key) != 8 else _unpack(">q", key) * 1000
        case Double():
            return lambda key: _unpack(">d", key)
        case _:
            return lambda key: key


def _json(text: bytes) -> Any:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _unpack(layout: str, key: bytes) -> Any:
    return struct.unpack(layout, key)[0] if len(key) == struct.calcsize(layout) else None
