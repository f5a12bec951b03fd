"""Records of cases ↔ rows of topics, by the formats the case's sources declare.

The log keeps typed columns whatever format a stream was declared with, so here is where a case's text, numbers and
objects become columns and back. A record that cannot be read in its format is skipped, as it would be at the edge.
"""

from __future__ import annotations

import base64
import binascii
import csv
import datetime
import decimal
import json
import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.functions.arrow_values import to_values
from headrace.log.base import HEADERS, TIME, TOMBSTONE, WINDOW_END, WINDOW_START, TopicSpec
from headrace.sql.numeric import double_text
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
)
from tests.conformance.case import CaseData, Json
from tests.conformance.compare import Record

Row = dict[str, Any]
EPOCH = datetime.date(1970, 1, 1)
DELIMITERS = {"SPACE": " ", "TAB": "\t"}


class Unreadable(Exception):
    """A record its topic's format cannot be read from."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a topic's key or value is written down."""

    name: str
    columns: tuple[Column, ...]
    wrapped: bool
    delimiter: str = ","

    def read(self, data: Json) -> Row:
        if data is None or self.name == "NONE" or not self.columns:
            return {}
        if self.name == "DELIMITED":
            return self._split(data)
        if self.wrapped:
            if not isinstance(data, dict):
                raise Unreadable(f"{data!r} is not an object")
            return _fields(self.columns, data)
        [column] = self.columns
        return {column.name: from_json(data, column.type)}

    def write(self, row: Row) -> Json:
        values = [to_json(row[column.name], column.type) for column in self.columns]
        if self.name == "NONE" or not self.columns:
            return None
        if self.name == "DELIMITED":
            return self._join([delimited(row[column.name], column.type) for column in self.columns])
        if self.wrapped:
            return {column.name: value for column, value in zip(self.columns, values, strict=True)}
        return values[0]

    def _split(self, data: Json) -> Row:
        texts = next(csv.reader([str(data)], delimiter=self.delimiter), [])
        if len(texts) != len(self.columns):
            raise Unreadable(f"{len(texts)} fields, not {len(self.columns)}")
        pairs = zip(self.columns, texts, strict=True)
        return {column.name: None if text == "" else from_json(text, column.type) for column, text in pairs}

    def _join(self, texts: list[str | None]) -> str:
        fields = [self._quoted(text, place == 0) for place, text in enumerate(texts)]
        return self.delimiter.join(fields)

    def _quoted(self, text: str | None, first: bool) -> str:
        """As Java's usual CSV writer: quoted where it must be, and a line never begins with anything but a letter or
        a digit."""
        if text is None:
            return ""
        odd_start = first and not (text[:1].isascii() and text[:1].isalnum())
        special = any(mark in text for mark in (self.delimiter, '"', "\n", "\r"))
        if odd_start or special or text[:1] <= "#" or text[-1:] <= " ":
            return text if text == "" and not first else '"' + text.replace('"', '""') + '"'
        return text


@dataclass(frozen=True, slots=True)
class TopicFormat:
    spec: TopicSpec
    key: Format
    value: Format

    def row(self, record: Record) -> Row:
        """Columns and system columns; `$rest` holds fields that are not declared."""
        row = self.key.read(record["key"]) | self.value.read(record["value"])
        row[TIME] = record.get("timestamp") or 0
        if record["value"] is None:
            row[TOMBSTONE] = True
        elif self.value.wrapped and self.spec.role == "events" and isinstance(record["value"], dict):
            known = {column.name.upper() for column in self.value.columns}
            rest = {name: value for name, value in record["value"].items() if name.upper() not in known}
            row |= {"$rest": json.dumps(rest, default=float)} if rest else {}
        if self.spec.windowed and record.get("window"):
            row |= {WINDOW_START: record["window"]["start"], WINDOW_END: record["window"]["end"]}
        return row

    def rows(self, batch: pa.RecordBatch) -> list[Row]:
        """Values as the evaluator has them, whatever year a moment is in."""
        types = {column.name: column.type for column in self.spec.key + self.spec.value}
        columns = {
            name: to_values(array, types[name]) if name in types else array.to_pylist()
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def record(self, row: Row) -> Record:
        keyless = all(row[column.name] is None for column in self.key.columns)
        found: Record = {
            "topic": self.spec.name,
            "key": None if keyless else self.key.write(row),
            "value": None if row[TOMBSTONE] else self.value.write(row),
            "timestamp": row[TIME],
        }
        if self.spec.windowed:
            kind = "SESSION" if self.spec.windowed == "session" else "TIME"
            found["window"] = {"start": row[WINDOW_START], "end": row[WINDOW_END], "type": kind}
        if row.get(HEADERS):
            pairs = (
                (name, None if value is None else base64.b64encode(value).decode()) for name, value in row[HEADERS]
            )
            found["headers"] = [{"KEY": name, "VALUE": value} for name, value in pairs]
        return found


def topic_format(case: CaseData, spec: TopicSpec) -> TopicFormat:
    """By the case's first source over the topic; without one as the topic itself says."""
    source: CaseData = next((one for one in case.get("sources", ()) if one["topic"] == spec.name), {})
    return TopicFormat(
        spec,
        _format(source, "key", spec.key_format, spec.key, wrap_single=False),
        _format(source, "value", spec.value_format, spec.value, wrap_single=spec.value_options.wrap_single_value),
    )


def _format(source: CaseData, part: str, named: str, columns: tuple[Column, ...], wrap_single: bool) -> Format:
    name = str(source.get(f"{part}_format", named)).upper()
    features = source.get(f"{part}_features") or ()
    delimiter = (source.get(f"{part}_props") or {}).get("delimiter", ",")
    if "UNWRAP_SINGLES" in features or name == "KAFKA":
        wrap_single = False
    if "WRAP_SINGLES" in features:
        wrap_single = True
    return Format(name, columns, len(columns) != 1 or wrap_single, DELIMITERS.get(delimiter, delimiter))


def _fields(columns: tuple[Column, ...], data: dict[str, Json]) -> Row:
    """In any case; one spelled exactly is preferred."""
    alike = {name.upper(): value for name, value in data.items()}
    return {
        column.name: from_json(data.get(column.name, alike.get(column.name.upper())), column.type) for column in columns
    }


def from_json(value: Json, type_: DataType) -> Any:
    """As the topic's columns take it: TIMESTAMP in microseconds."""
    if value is None:
        return None
    try:
        return _from_json(value, type_)
    except (ValueError, TypeError, AttributeError, decimal.InvalidOperation, binascii.Error) as error:
        raise Unreadable(f"{value!r} is not {type_}") from error


def _from_json(value: Json, type_: DataType) -> Any:
    match type_:
        case Boolean():
            return _boolean(value)
        case Integer() | BigInt():
            return int(value) if not isinstance(value, bool) else _refuse(value)
        case Double():
            return float(value)
        case Decimal(precision, scale):
            context = decimal.Context(prec=precision)
            return decimal.Decimal(str(value)).quantize(decimal.Decimal(1).scaleb(-scale), context=context)
        case Varchar():
            return _text(value)
        case Bytes():
            return base64.b64decode(value, validate=True)
        case Date():
            return EPOCH + datetime.timedelta(days=int(value))
        case Time():
            return int(value)
        case Timestamp():
            return int(value) * 1000
        case Array(element):
            return [from_json(item, element) for item in value] if isinstance(value, list) else _refuse(value)
        case Map(key, inner):
            return [(from_json(name, key), from_json(item, inner)) for name, item in value.items()]
        case Struct(fields):
            return _fields(tuple(Column(name, field) for name, field in fields), value)


def _refuse(value: Json) -> Any:
    raise ValueError(value)


def _boolean(value: Json) -> bool:
    if isinstance(value, bool):
        return value
    texts = {"true": True, "false": False}
    return texts[value.lower()] if value.lower() in texts else bool(_refuse(value))


def _text(value: Json) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), default=str)
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def to_json(value: Any, type_: DataType) -> Json:
    if value is None:
        return None
    match type_:
        case Double() if not math.isfinite(value):
            return double_text(value)
        case Bytes():
            return base64.b64encode(value).decode()
        case Date():
            return (value - EPOCH).days
        case Array(element):
            return [to_json(item, element) for item in value]
        case Map(key, inner):
            pairs = value.items() if isinstance(value, dict) else value
            return {_map_key(name, key): to_json(item, inner) for name, item in pairs}
        case Struct(fields):
            return {name: to_json(value[name], field) for name, field in fields}
        case _:
            return value


def _map_key(value: Any, type_: DataType) -> str:
    plain = to_json(value, type_)
    return plain if isinstance(plain, str) else _text(plain)


def delimited(value: Any, type_: DataType) -> str | None:
    if value is None:
        return None
    match type_:
        case Double():
            return double_text(value)
        case Decimal():
            return format(value, "f")
        case _:
            plain = to_json(value, type_)
            return _text(plain)
