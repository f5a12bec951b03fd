"""JSON events → one Arrow batch of a topic, and reasons for those that do not fit.

Events that look alike, which is nearly all of them, are read column by column; only a column that holds something
unexpected is looked at value by value. `docs/reference/http-api.md` says what a field may look like; `json_values` does
the converting.
"""

from __future__ import annotations

import decimal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from headrace.log.base import HEADERS, ID, REST, TIME, TOMBSTONE, Topic
from headrace.log.codecs.event_time import EventTimes, TimeBounds
from headrace.log.codecs.json_values import Mismatch, Reader, must_be, shown
from headrace.log.codecs.nested import has_decimal, has_struct, undeclared
from headrace.types import BOOLEAN, BYTES, Column, display_name

Event: TypeAlias = dict[str, Any]
Slices: TypeAlias = Callable[[int], bytes]
"""The bytes event number *i* was sent as."""


class FieldTexts(ABC):
    """Slices that need not make the text of a whole event for that of some of its fields."""

    @abstractmethod
    def __call__(self, row: int) -> bytes: ...

    @abstractmethod
    def some(self, row: int, fields: tuple[str, ...]) -> bytes:
        """An object of these fields alone."""


RESERVED = (ID, TIME, HEADERS, TOMBSTONE)
MAX_ID_BYTES = 1024
_MAX_LAYOUTS = 1024
_fields_as_sent = msgspec.json.Decoder(dict[str, msgspec.Raw])
_plain_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def _exact(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError("Number out of range") from None  # as without digits; the decoder says where


_exact_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=_exact)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The events that fit, in order, and the others: event number → reason."""

    batch: pa.RecordBatch | None
    rejected: dict[int, str]
    ids: dict[int, str]
    """Event ids of the rejected ones, where they had a usable one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the fields of events of one shape mean."""

    columns: dict[str, str]
    """Column → the field's name as it was sent."""
    rest: tuple[str, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands in the place of an event that could not even be parsed."""

    reason: str


class Rejections(dict[int, str]):
    """Row → reason; the first reason given stays."""

    def add(self, row: int, reason: str) -> None:
        self.setdefault(row, reason)


class JsonCodec:
    """Reads events of one topic, as it is defined now. Safe to use from several threads."""

    def __init__(self, topic: Topic) -> None:
        spec = topic.spec
        self.topic = topic
        self._readers = {column.name: Reader(column.type) for column in spec.key + spec.value}
        self._value_names = {column.name for column in spec.value}
        self._by_name = _names(spec.key + spec.value)
        self._structs = [column for column in spec.key + spec.value if has_struct(column.type)]
        self._keeps_rest = spec.kind == "typed"
        self._layouts: dict[tuple[str, ...], Layout] = {}
        self._times = EventTimes(spec)
        exact = any(has_decimal(column.type) for column in spec.key + spec.value)
        self.decoder = _exact_decoder if exact else _plain_decoder
        """Reads JSON text for this topic: with all digits if a DECIMAL may want them."""

    def decode(
        self,
        events: Sequence[Any],
        slices: Slices,
        now_ms: int,
        bounds: TimeBounds,
        default_id: Callable[[int], str] | None = None,
        refused: Mapping[int, str] | None = None,
    ) -> Decoded:
        """`default_id` names events that do not name themselves; those `refused` are rejected for the reason given."""
        rejected = Rejections(refused or {})
        rows = self._objects(events, rejected)
        layouts = self._layouts_of(rows, rejected)
        arrays = {name: self._column(name, rows, layouts, rejected) for name in _used(layouts)}
        arrays |= self._system_columns(rows, arrays, now_ms, bounds, rejected)
        ids = _ids(rows, default_id, rejected)
        if ids is not None:
            arrays[ID] = pa.array(ids, pa.string())
        rest = self._rest(rows, layouts, slices, rejected) if self._keeps_rest else None
        if rest is not None:
            arrays[REST] = rest
        return Decoded(
            _batch(arrays, len(rows), rejected),
            dict(sorted(rejected.items())),
            {row: id_ for row, id_ in enumerate(ids or ()) if id_ is not None and row in rejected},
        )

    def decode_columns(
        self,
        fields: Mapping[str, Sequence[Any]],
        times: Sequence[int | None] | None,
        ids: Sequence[str | None] | None,
        rows: int,
        now_ms: int,
        bounds: TimeBounds,
    ) -> Decoded:
        """The same for events that come as columns: field → a value of each, None where an event has none."""
        rejected = Rejections()
        layout = self._layout(tuple(fields))
        if layout.error is not None:
            return Decoded(None, dict.fromkeys(range(rows), layout.error), {})
        arrays = {
            name: self._array(name, list(fields[field]), rejected) for name, field in layout.columns.items() if rows
        }
        given = None if times is None else list(times)
        found = self._times.read(arrays, given, rows, now_ms, bounds, rejected.add)
        if found is not None:
            arrays[TIME] = found
        if ids is not None:
            arrays[ID] = pa.array(ids, pa.string())
        if layout.rest:
            arrays[REST] = pa.array(_as_objects({name: fields[name] for name in layout.rest}), pa.string())
        known = {row: id_ for row, id_ in enumerate(ids or ()) if id_ is not None and row in rejected}
        return Decoded(_batch(arrays, rows, rejected), dict(sorted(rejected.items())), known)

    @property
    def takes_columns(self) -> bool:
        """Not where a column's own fields may hold more than is declared, which is then kept as it was sent."""
        return self._keeps_rest and not self._structs

    def _objects(self, events: Sequence[Any], rejected: Rejections) -> list[Event]:
        if set(map(type, events)) <= {dict}:
            return list(events)
        for row, event in enumerate(events):
            if isinstance(event, Unreadable):
                rejected.add(row, f"the event {event.reason}")
            elif type(event) is not dict:
                rejected.add(row, f"an event must be a JSON object, got {shown(event)}")
        return [event if type(event) is dict else {} for event in events]

    # Fields → columns

    def _layouts_of(self, rows: list[Event], rejected: Rejections) -> dict[tuple[str, ...], Layout]:
        """The layout of each shape among the events. Shapes that cannot be are rejected."""
        layouts = {shape: self._layout(shape) for shape in set(map(tuple, rows))}
        if any(layout.error for layout in layouts.values()):
            for row, event in enumerate(rows):
                error = layouts[tuple(event)].error
                if error is not None:
                    rejected.add(row, error)
        return layouts

    def _layout(self, shape: tuple[str, ...]) -> Layout:
        found = self._layouts.get(shape)
        if found is None:
            found = self._make_layout(shape)
            # Somebody may send a new shape with every event: remembering must not become a leak.
            if len(self._layouts) < _MAX_LAYOUTS:
                self._layouts[shape] = found
        return found

    def _make_layout(self, shape: tuple[str, ...]) -> Layout:
        columns: dict[str, str] = {}
        rest: list[str] = []
        for field in shape:
            if field in RESERVED:
                continue
            name = self._by_name.get(field) or self._by_name.get(field.casefold())
            if name is None:
                rest.append(field)
            elif name in columns:
                return Layout({}, (), f"`{display_name(name)}` is given twice, as `{columns[name]}` and `{field}`")
            else:
                columns[name] = field
        if rest and not self._keeps_rest:
            return Layout({}, (), f"{shown(rest[0])} is not a field of a raw event: it has `key` and `value`")
        return Layout(columns, tuple(rest))

    def _column(
        self, name: str, rows: list[Event], layouts: dict[tuple[str, ...], Layout], rejected: Rejections
    ) -> pa.Array:
        values = _values(name, rows, layouts)
        if name in self._value_names and any(TOMBSTONE in shape for shape in layouts):
            values = [None if event.get(TOMBSTONE) else value for event, value in zip(rows, values, strict=True)]
        return self._array(name, values, rejected)

    def _array(self, name: str, values: list[Any], rejected: Rejections) -> pa.Array:
        reader = self._readers[name]
        array = reader.build(values)
        return _convert_each(display_name(name), values, reader, rejected) if array is None else array

    # What every record has besides its columns

    def _system_columns(
        self, rows: list[Event], arrays: dict[str, pa.Array], now_ms: int, bounds: TimeBounds, rejected: Rejections
    ) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        given = _reserved(TIME, rows)
        times = self._times.read(arrays, given, len(rows), now_ms, bounds, rejected.add)
        if times is not None:
            found[TIME] = times
        headers = _reserved(HEADERS, rows)
        if headers is not None:
            read = [_checked(HEADERS, _headers, value, row, rejected) for row, value in enumerate(headers)]
            found[HEADERS] = pa.array(read, pa.map_(pa.string(), pa.binary()))
        tombstones = _reserved(TOMBSTONE, rows)
        if tombstones is not None:
            convert = Reader(BOOLEAN).convert
            flags = [_checked(TOMBSTONE, convert, value, row, rejected) for row, value in enumerate(tombstones)]
            found[TOMBSTONE] = pa.array([bool(flag) for flag in flags], pa.bool_())
        return found

    def _rest(
        self, rows: list[Event], layouts: dict[tuple[str, ...], Layout], slices: Slices, rejected: Rejections
    ) -> pa.Array | None:
        """Undeclared fields, exactly as they were sent, as one JSON object per event."""
        if not self._structs and not any(layout.rest for layout in layouts.values()):
            return None
        kept: list[bytes | None] = []
        same = next(iter(layouts.values())) if len(layouts) == 1 else None
        for row, event in enumerate(rows):
            layout = same or layouts[tuple(event)]
            fields = layout.rest
            if self._structs:
                fields += self._with_undeclared(event, layout)
            kept.append(_fields_of(slices, row, fields) if fields and row not in rejected else None)
        return None if not any(kept) else pa.array(kept, pa.binary()).cast(pa.string())

    def _with_undeclared(self, event: Event, layout: Layout) -> tuple[str, ...]:
        """Columns whose value holds more than their type declares."""
        return tuple(
            layout.columns[column.name]
            for column in self._structs
            if column.name in layout.columns and undeclared(event[layout.columns[column.name]], column.type)
        )


def _as_objects(fields: Mapping[str, Sequence[Any]]) -> list[str | None]:
    """One JSON object a row, of what it has."""
    names = tuple(fields)
    encode = msgspec.json.Encoder().encode
    found: list[str | None] = []
    for values in zip(*fields.values(), strict=True):
        row = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        found.append(encode(row).decode() if row else None)
    return found


def _names(columns: tuple[Column, ...]) -> dict[str, str]:
    """How a field may be spelled → its column. The exact spelling wins, then the column declared first."""
    names: dict[str, str] = {}
    for column in columns:
        names.setdefault(column.name.casefold(), column.name)
    return names | {column.name: column.name for column in columns}


def _used(layouts: dict[tuple[str, ...], Layout]) -> dict[str, None]:
    return {name: None for layout in layouts.values() for name in layout.columns}


def _values(name: str, rows: list[Event], layouts: dict[tuple[str, ...], Layout]) -> list[Any]:
    spellings = {layout.columns.get(name) for layout in layouts.values()}
    if len(spellings) == 1:
        [field] = spellings
        return [event[field] for event in rows]  # type: ignore[index]
    present = spellings - {None}
    if len(present) == 1:
        [field] = present
        return [event.get(field) for event in rows]  # type: ignore[arg-type]
    return [event.get(layouts[tuple(event)].columns.get(name, "")) for event in rows]


def _reserved(field: str, rows: list[Event]) -> list[Any] | None:
    """The values of a `$` field, or None if no event has one."""
    values = [event.get(field) for event in rows]
    return None if all(value is None for value in values) else values


def _checked(field: str, convert: Callable[[Any], Any], value: Any, row: int, rejected: Rejections) -> Any:
    try:
        return convert(value)
    except Mismatch as mismatch:
        rejected.add(row, f"`{field}{mismatch.path}` {mismatch.message}")
        return None


def _convert_each(field: str, values: list[Any], reader: Reader, rejected: Rejections) -> pa.Array:
    return reader.array([_checked(field, reader.convert, value, row, rejected) for row, value in enumerate(values)])


def _headers(value: Any) -> list[tuple[str, bytes | None]] | None:
    if value is None:
        return None
    if type(value) is not dict:
        raise must_be("an object of strings", value)
    return [(name, _header(inner, value)) for name, inner in value.items()]


def _header(value: Any, headers: Any) -> bytes | None:
    """Text, or `{"base64": …}` for what is none: as they are shown."""
    if value is None or type(value) is str:
        return None if value is None else value.encode()
    if type(value) is dict and set(value) == {"base64"}:
        data: bytes = Reader(BYTES).convert(value["base64"])
        return data
    raise must_be("an object of strings", headers)


def _ids(rows: list[Event], default_id: Callable[[int], str] | None, rejected: Rejections) -> list[str | None] | None:
    given = _reserved(ID, rows)
    if given is None:
        return None if default_id is None else [default_id(row) for row in range(len(rows))]
    ids = [_checked(ID, _event_id, value, row, rejected) for row, value in enumerate(given)]
    if default_id is None:
        return ids
    return [default_id(row) if id_ is None else id_ for row, id_ in enumerate(ids)]


def _event_id(value: Any) -> str | None:
    if value is None:
        return None
    if type(value) is not str or not value:
        raise must_be("a string that is not empty", value)
    if len(value.encode()) > MAX_ID_BYTES:
        raise Mismatch(f"is longer than {MAX_ID_BYTES} bytes")
    return value


def _fields_of(slices: Slices, row: int, fields: tuple[str, ...]) -> bytes:
    return slices.some(row, fields) if isinstance(slices, FieldTexts) else as_sent(slices(row), fields)


def as_sent(event: bytes, fields: tuple[str, ...]) -> bytes:
    sent = _fields_as_sent.decode(event)
    return b"{" + b",".join([_quoted(field) + bytes(sent[field]) for field in fields]) + b"}"


@lru_cache(maxsize=4096)
def _quoted(field: str) -> bytes:
    return msgspec.json.encode(field) + b":"


def _batch(arrays: dict[str, pa.Array], rows: int, rejected: Rejections) -> pa.RecordBatch | None:
    if len(rejected) == rows:
        return None
    if not arrays:
        # An event without a single field is still an event; a batch needs a column to have rows.
        arrays = {TOMBSTONE: pa.array([False] * rows, pa.bool_())}
    batch = pa.record_batch(arrays)
    if not rejected:
        return batch
    return batch.filter(pa.array([row not in rejected for row in range(rows)], pa.bool_()))
