"""JSON payloads: an object per row, or a bare value where a single column is not wrapped.

What a value may look like is `json_values`' business on the way in and `json_encode`'s on the way out.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa

from headrace.log.codecs.base import Codec, Decoded, Encoded, binary, decoded, values_of
from headrace.log.codecs.json_codec import as_sent
from headrace.log.codecs.json_encode import Convert, converter, to_json
from headrace.log.codecs.json_texts import objects, text_column
from headrace.log.codecs.json_values import Mismatch, Reader, shown
from headrace.log.codecs.nested import has_decimal, has_struct, undeclared
from headrace.types import Column, DataType, display_name

UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
_MAX_LAYOUTS = 1024


class Errors(dict[int, str]):
    """Row → reason; the first reason given stays."""

    def add(self, row: int, reason: str) -> None:
        self.setdefault(row, reason)


class JsonPayloads(Codec):
    """`wrapped`: an object with a field per column. `name` is how a column is called in what is written; `special`
    may give a type a form of its own."""

    def __init__(
        self,
        columns: tuple[Column, ...],
        wrapped: bool = True,
        keep_rest: bool = False,
        name: Callable[[str], str] = display_name,
        special: Callable[[DataType], Convert | None] | None = None,
    ) -> None:
        self.columns = columns
        self._wrapped = wrapped or len(columns) != 1
        self._keep_rest = keep_rest and self._wrapped
        self._readers = [Reader(column.type) for column in columns]
        self._names = [name(column.name) for column in columns]
        self._special = special
        self._converters = [converter(column.type, special, name) for column in columns]
        exact = {column.name: column.name for column in columns}
        self._by_name = {column.name.casefold(): column.name for column in reversed(columns)} | exact
        self._structs = [column for column in columns if has_struct(column.type)]
        self._layouts: dict[tuple[str, ...], dict[str, str] | str] = {}
        digits = decimal.Decimal if any(has_decimal(column.type) for column in columns) else None
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=digits)

    # Reading

    def decode(self, payloads: pa.Array) -> Decoded:
        texts = values_of(payloads)
        errors = Errors()
        values = self._parse(texts, errors)
        if not self._wrapped:
            arrays = {self.columns[0].name: self._read(0, values, errors)}
            return decoded(self.columns, arrays, len(texts), errors)
        rows = self._objects(values, errors)
        layouts = self._layouts_of(rows, errors)
        arrays = {
            column.name: self._read(place, _fields(column.name, rows, layouts), errors)
            for place, column in enumerate(self.columns)
        }
        rest = self._rest(texts, rows, layouts, errors) if self._keep_rest else None
        return decoded(self.columns, arrays, len(texts), errors, rest)

    def _parse(self, texts: list[bytes | None], errors: Errors) -> list[Any]:
        """What each payload says; None for what cannot be read."""
        joined = b"\n".join(texts) if None not in texts else None  # type: ignore[arg-type]
        if joined is not None and joined.count(b"\n") == len(texts) - 1:
            try:
                values = self._decoder.decode_lines(joined)
            except UNREADABLE:
                values = []
            if len(values) == len(texts):
                return values
        return [None if text is None else self._parse_one(text, row, errors) for row, text in enumerate(texts)]

    def _parse_one(self, text: bytes, row: int, errors: Errors) -> Any:
        try:
            return self._decoder.decode(text)
        except UNREADABLE as error:
            errors.add(row, unreadable(error))
            return None

    def _objects(self, values: list[Any], errors: Errors) -> list[dict[str, Any]]:
        if set(map(type, values)) <= {dict}:
            return values
        for row, value in enumerate(values):
            if value is not None and type(value) is not dict:
                errors.add(row, f"a JSON object is expected, got {shown(value)}")
        return [value if type(value) is dict else {} for value in values]

    def _layouts_of(self, rows: list[dict[str, Any]], errors: Errors) -> dict[tuple[str, ...], dict[str, str]]:
        """Which field is which column, for each shape among the rows."""
        layouts: dict[tuple[str, ...], dict[str, str]] = {}
        broken: dict[tuple[str, ...], str] = {}
        for shape in set(map(tuple, rows)):
            layout = self._layout(shape)
            if isinstance(layout, str):
                broken[shape] = layout
                layouts[shape] = {}
            else:
                layouts[shape] = layout
        if broken:
            for row, fields in enumerate(rows):
                if (shape := tuple(fields)) in broken:
                    errors.add(row, broken[shape])
        return layouts

    def _layout(self, shape: tuple[str, ...]) -> dict[str, str] | str:
        found = self._layouts.get(shape)
        if found is None:
            found = self._make_layout(shape)
            # Somebody may send a new shape with every record: remembering must not become a leak.
            if len(self._layouts) < _MAX_LAYOUTS:
                self._layouts[shape] = found
        return found

    def _make_layout(self, shape: tuple[str, ...]) -> dict[str, str] | str:
        layout: dict[str, str] = {}
        for field in shape:
            name = self._by_name.get(field) or self._by_name.get(field.casefold())
            if name is None:
                continue
            if name in layout:
                return f"`{display_name(name)}` is given twice, as `{layout[name]}` and `{field}`"
            layout[name] = field
        return layout

    def _read(self, place: int, values: list[Any], errors: Errors) -> pa.Array:
        reader, column = self._readers[place], self.columns[place]
        array = reader.build(values)
        return read_each(reader, display_name(column.name), values, errors) if array is None else array

    def _rest(
        self,
        texts: list[bytes | None],
        rows: list[dict[str, Any]],
        layouts: dict[tuple[str, ...], dict[str, str]],
        errors: Errors,
    ) -> pa.Array | None:
        """Undeclared fields as they were sent. A column that holds more than its type declares is there as a whole."""
        left = {shape: _left(shape, layout) for shape, layout in layouts.items()}
        if not self._structs and not any(left.values()):
            return None
        kept: list[bytes | None] = []
        for row, fields in enumerate(rows):
            shape = tuple(fields)
            names = left[shape] + self._with_undeclared(fields, layouts[shape])
            text = texts[row]
            kept.append(as_sent(text, names) if names and text is not None and row not in errors else None)
        return pa.array(kept, pa.binary()).cast(pa.string())

    def _with_undeclared(self, fields: dict[str, Any], layout: dict[str, str]) -> tuple[str, ...]:
        return tuple(
            layout[column.name]
            for column in self._structs
            if column.name in layout and undeclared(fields[layout[column.name]], column.type)
        )

    # Writing

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        if not self.columns:
            return Encoded(binary([b"{}"] * batch.num_rows))
        texts = [self._texts(batch.column(column.name), place) for place, column in enumerate(self.columns)]
        return Encoded(objects(self._names, texts) if self._wrapped else texts[0].cast(pa.binary()))

    def _texts(self, array: pa.Array, place: int) -> pa.Array:
        type_ = self.columns[place].type
        found = text_column(array, type_) if self._special is None or self._special(type_) is None else None
        if found is not None:
            return found
        return pa.array([to_json(value).decode() for value in json_column(array, self._converters[place])], pa.utf8())


def json_column(array: pa.Array, convert: Convert | None) -> list[Any]:
    """A column's values as JSON has them."""
    values: list[Any] = array.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def read_each(reader: Reader, name: str, values: Sequence[Any], errors: Errors) -> pa.Array:
    """A column value by value; what does not fit is null, and an error of its row."""
    converted: list[Any] = []
    for row, value in enumerate(values):
        try:
            converted.append(None if row in errors else reader.convert(value))
        except Mismatch as mismatch:
            errors.add(row, f"`{name}{mismatch.path}` {mismatch.message}")
            converted.append(None)
    return reader.array(converted)


def unreadable(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    if isinstance(error, UnicodeError):
        return "the payload is not UTF-8"
    message = str(error).removeprefix("JSON is malformed: ")
    return f"the payload is not valid JSON: {message[:1].lower()}{message[1:]}"


def _fields(name: str, rows: list[dict[str, Any]], layouts: dict[tuple[str, ...], dict[str, str]]) -> list[Any]:
    spellings = {layout[name] for layout in layouts.values() if name in layout}
    if len(spellings) == 1:
        [field] = spellings
        if all(name in layout for layout in layouts.values()):
            return list(map(itemgetter(field), rows))
        return [fields.get(field) for fields in rows]
    if not spellings:
        return [None] * len(rows)
    return [fields.get(layouts[tuple(fields)].get(name, "")) for fields in rows]


def _left(shape: tuple[str, ...], layout: dict[str, str]) -> tuple[str, ...]:
    used = set(layout.values())
    return tuple(field for field in shape if field not in used)
