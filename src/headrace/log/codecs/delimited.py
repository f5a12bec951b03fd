"""DELIMITED: the columns as text, in order, with a character between them; quoted as CSV does it where need be.

ksqlDB's rules: as many fields as columns, an empty field is null (so the empty text comes back as null), DATE is days,
TIME and TIMESTAMP are milliseconds, BYTES is base64. Read is more than is written: dates and times as ISO 8601 too.
"""

from __future__ import annotations

import base64
import csv
import decimal
import io
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UsageError
from headrace.log.codecs.base import Codec, Decoded, Encoded, binary, decoded, values_of
from headrace.log.codecs.json_encode import EPOCH, MICROSECOND, to_json
from headrace.log.codecs.json_payloads import Errors, read_each
from headrace.log.codecs.json_values import Mismatch, Reader, must_be
from headrace.log.schema import arrow_type
from headrace.types import (
    Array,
    BigInt,
    Boolean,
    Bytes,
    Column,
    DataType,
    Date,
    Decimal,
    Double,
    Integer,
    Map,
    Struct,
    Time,
    Timestamp,
    Varchar,
    display_name,
)

DELIMITERS = {"TAB": "\t", "SPACE": " "}
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?|NaN|[+-]?Infinity", re.ASCII)
# csv's own limit on a field; what may be larger is split by hand.
_CSV_LIMIT = 100_000


def delimiter_of(text: str) -> str:
    """One character, or TAB or SPACE."""
    found = DELIMITERS.get(text.upper(), text)
    if len(found) != 1 or found in '"\r\n':
        raise UsageError(f"`{text}` is not a delimiter", hint="a single character, TAB or SPACE")
    return found


class Delimited(Codec):
    def __init__(self, columns: tuple[Column, ...], delimiter: str = ",") -> None:
        for column in columns:
            if isinstance(column.type, Array | Map | Struct):
                raise UsageError(
                    f"the format DELIMITED cannot hold `{display_name(column.name)}`, which is {column.type}"
                )
        self.columns = columns
        self._delimiter = delimiter_of(delimiter)
        self._readers = [_TextReader(column.type) for column in columns]
        self._writers = [_writer(column.type) for column in columns]
        mark = re.escape(self._delimiter)
        self._quoted = f'["\\r\\n{mark}]'
        self._field = re.compile(rf'(?:"((?:[^"]|"")*+)"|([^"{mark}][^{mark}]*+|))(?={mark}|\Z)', re.DOTALL)

    def decode(self, payloads: pa.Array) -> Decoded:
        errors = Errors()
        texts = [_text(value, row, errors) for row, value in enumerate(values_of(payloads))]
        rows = self._split(texts, errors)
        arrays = {}
        for place, (column, reader) in enumerate(zip(self.columns, self._readers, strict=True)):
            values = [row[place] or None for row in rows]
            array = reader.build(values)
            name = display_name(column.name)
            arrays[column.name] = read_each(reader, name, values, errors) if array is None else array
        return decoded(self.columns, arrays, len(texts), errors)

    def _split(self, texts: list[str | None], errors: Errors) -> list[list[Any]]:
        nothing: list[Any] = [None] * len(self.columns)
        rows = self._split_together(texts) or [
            None if text is None else self._split_one(text, row, errors) for row, text in enumerate(texts)
        ]
        for row, fields in enumerate(rows):
            if fields is not None and len(fields) != len(self.columns):
                errors.add(row, f"{len(self.columns)} fields are expected, the payload has {len(fields)}")
                rows[row] = None
        return [nothing if fields is None else fields for fields in rows]

    def _split_together(self, texts: list[str | None]) -> list[list[str] | None] | None:
        """All at once, if no row can reach into the next one; None if that is not certain."""
        if not all(text and len(text) < _CSV_LIMIT and "\n" not in text and "\r" not in text for text in texts):
            return None
        reader = csv.reader(texts, delimiter=self._delimiter, strict=True)  # type: ignore[arg-type]
        rows: list[list[str] | None] = []
        try:
            for fields in reader:
                rows.append(fields)
                if reader.line_num != len(rows):
                    return None
        except csv.Error:
            return None
        return rows

    def _split_one(self, text: str, row: int, errors: Errors) -> list[str] | None:
        fields: list[str] = []
        place = 0
        while True:
            found = self._field.match(text, place)
            if found is None:
                errors.add(row, f"the quotes of field {len(fields) + 1} do not match")
                return None
            quoted = found.group(1)
            fields.append(found.group(2) if quoted is None else quoted.replace('""', '"'))
            if found.end() == len(text):
                return fields
            if len(fields) > len(self.columns):
                errors.add(row, f"{len(self.columns)} fields are expected, the payload has more")
                return None
            place = found.end() + 1

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        texts = [self._plain_texts(batch.column(column.name), column.type) for column in self.columns]
        if len(texts) > 1 and all(text is not None for text in texts):
            joined = pc.binary_join_element_wise(*texts, pa.scalar(self._delimiter))
            return Encoded(joined.cast(pa.binary()))
        return self.encode_each(batch)

    def _plain_texts(self, array: pa.Array, type_: DataType) -> pa.Array | None:
        """A column's fields, if none of them needs quotes; None if they have to be looked at one by one."""
        match type_:
            case Integer() | BigInt() | Boolean() | Time():
                texts = array.cast(pa.utf8())
            case Date():
                texts = array.view(pa.int32()).cast(pa.utf8())
            case Timestamp():
                moments = pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms", "UTC"))
                texts = moments.view(pa.int64()).cast(pa.utf8())
            case Varchar():
                texts = array
            case Double():
                # All in one go; what is not a number has words of its own.
                found = to_json(array.to_pylist())[1:-1].decode().split(",") if len(array) else []
                if found.count("null") != array.null_count:
                    return None
                texts = pa.array([None if text == "null" else text for text in found], pa.utf8())
            case _:
                return None
        texts = pc.fill_null(texts, "")
        return None if pc.any(pc.match_substring_regex(texts, self._quoted)).as_py() else texts

    def encode_each(self, batch: pa.RecordBatch) -> Encoded:
        columns = [
            [None if value is None else write(value) for value in batch.column(column.name).to_pylist()]
            for column, write in zip(self.columns, self._writers, strict=True)
        ]
        if not columns:
            return Encoded(binary([b""] * batch.num_rows))
        text = io.StringIO()
        # A field with an end of line in it is quoted because this is one; it is cut off again.
        writer = csv.writer(text, delimiter=self._delimiter, lineterminator="\r\n")
        payloads: list[bytes] = []
        for row in zip(*columns, strict=True):
            writer.writerow(row)
            payloads.append(text.getvalue()[:-2].encode())
            text.seek(0)
            text.truncate()
        return Encoded(binary(payloads))


class _TextReader(Reader):
    """Like JSON's readers, for fields that are always text."""

    def __init__(self, type_: DataType) -> None:
        super().__init__(type_)
        strict = self.convert
        self._from_text = _from_text(type_)
        self.convert = lambda value: None if value is None else strict(self._from_text(value))
        if isinstance(type_, Bytes | Varchar):
            self._from_text = lambda text: text
        if isinstance(type_, Double):
            self.convert = lambda value: None if value is None else _double(value)

    def build(self, values: list[Any]) -> pa.Array | None:
        match self.type:
            case Varchar():
                return pa.array(values, pa.utf8())
            case Integer() | BigInt() | Double():
                pattern = _NUMBER if isinstance(self.type, Double) else _INTEGER
                texts = pa.array(values, pa.utf8())
                if not pc.all(pc.match_substring_regex(texts, f"^(?:{pattern.pattern})$")).as_py():
                    return None
                try:
                    return pc.cast(texts, arrow_type(self.type))
                except pa.ArrowInvalid:
                    return None
            case _:
                return None


def _from_text(type_: DataType) -> Callable[[str], Any]:
    match type_:
        case Boolean():
            return lambda text: {"true": True, "false": False}.get(text.strip().lower(), text)
        case Integer() | BigInt() | Date() | Time() | Timestamp():
            return lambda text: int(text) if _INTEGER.fullmatch(text.strip()) else text.strip()
        case Decimal():
            return str.strip
        case _:
            return lambda text: text


def _double(text: str) -> float:
    if not _NUMBER.fullmatch(text.strip()):
        raise must_be("a number", text)
    value = float(text)
    if abs(value) == float("inf") and "Inf" not in text:
        raise Mismatch(f"does not fit into DOUBLE: {text[:60]}")
    return value


def _text(value: bytes | None, row: int, errors: Errors) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        errors.add(row, "the payload is not UTF-8")
        return None


def _writer(type_: DataType) -> Callable[[Any], str]:
    match type_:
        case Boolean():
            return lambda value: "true" if value else "false"
        case Double():
            return _double_text
        case Decimal():
            return lambda value: format(decimal.Decimal(value), "f")
        case Bytes():
            return lambda value: base64.b64encode(value).decode()
        case Date():
            return lambda value: str(value.toordinal() - 719_163)
        case Timestamp():
            return lambda value: str(_milliseconds(value))
        case _:
            return str


def _double_text(value: float) -> str:
    if value - value == 0:
        return to_json(value).decode()
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _milliseconds(moment: Any) -> int:
    return int((moment - EPOCH) // MICROSECOND) // 1000
