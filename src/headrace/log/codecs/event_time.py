"""When an event happened: the topic's timestamp column, else the event's `$time`, else its arrival."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UsageError
from headrace.log.base import TIME, TopicSpec
from headrace.log.codecs.json_values import Mismatch, Reader, iso_array, must_be, within
from headrace.log.codecs.times import compile_pattern, parse_iso
from headrace.types import TIMESTAMP, BigInt, Timestamp, Varchar, display_name

Reject = Callable[[int, str], None]
_MOMENT = Reader(TIMESTAMP)


class EventTimes:
    """Reads the event times of a topic's batches, in milliseconds."""

    def __init__(self, spec: TopicSpec) -> None:
        self._column: str | None = None
        if spec.timestamp is None:
            return
        self._column = spec.timestamp.column
        types = {column.name: column.type for column in spec.key + spec.value}
        self._type = types.get(self._column)
        self._parse = compile_pattern(spec.timestamp.format) if spec.timestamp.format else parse_iso
        self._iso = not spec.timestamp.format
        if not isinstance(self._type, BigInt | Timestamp | Varchar):
            raise UsageError(
                f"topic `{spec.name}`: `{display_name(self._column)}` cannot be the event time",
                hint="a column of type BIGINT (milliseconds), TIMESTAMP or VARCHAR with TIMESTAMP_FORMAT can",
            )

    def read(
        self,
        arrays: dict[str, pa.Array],
        given: list[Any] | None,
        rows: int,
        now_ms: int,
        max_future_ms: int,
        reject: Reject,
    ) -> pa.Array | None:
        """Event times, or None if all are to be the time of arrival. What cannot be is rejected."""
        latest = now_ms + max_future_ms
        column = arrays.get(self._column) if self._column is not None else None
        times: pa.Array | None = None
        if column is not None and column.null_count < rows:
            times = _bounded(self._name, self._milliseconds(column, reject), latest, reject)
        if given is not None:
            other = _bounded(TIME, _milliseconds(_moments(given, reject)), latest, reject)
            times = other if times is None else pc.coalesce(times, other)
        if times is None or times.null_count == rows:
            return None
        return pc.fill_null(times, now_ms) if times.null_count else times

    @property
    def _name(self) -> str:
        return display_name(self._column or "")

    def _milliseconds(self, column: pa.Array, reject: Reject) -> pa.Array:
        match self._type:
            case BigInt():
                return column
            case Timestamp():
                return _milliseconds(column)
            case _:
                return _milliseconds(self._parsed(column.to_pylist(), reject))

    def _parsed(self, texts: list[str | None], reject: Reject) -> pa.Array:
        array = iso_array(texts, _MOMENT.arrow) if self._iso else None
        if array is not None:
            return array
        moments = [None if text is None else self._parse(text) for text in texts]
        for row, (text, moment) in enumerate(zip(texts, moments, strict=True)):
            if text is not None and moment is None:
                reject(row, f"`{self._name}` {must_be('a timestamp', text).message}")
        return pa.array(moments, pa.int64()).cast(_MOMENT.arrow)


def _moments(values: list[Any], reject: Reject) -> pa.Array:
    """`$time`: milliseconds or ISO 8601."""
    array = _MOMENT.build(values)
    if array is not None:
        return array
    moments: list[Any] = []
    for row, value in enumerate(values):
        try:
            moments.append(_MOMENT.convert(value))
        except Mismatch as mismatch:
            moments.append(None)
            reject(row, f"`{TIME}` {mismatch.message}")
    return _MOMENT.array(moments)


def _milliseconds(moments: pa.Array) -> pa.Array:
    micros = moments.cast(pa.int64())
    # Division rounds toward zero; a moment just before 1970 must stay before it.
    return pc.if_else(pc.less(micros, 0), -1, pc.divide(micros, 1000))


def _bounded(name: str, times: pa.Array, latest: int, reject: Reject) -> pa.Array:
    """Times that can be; the others are rejected and null."""
    if within(times, 0, latest):
        return times
    checked: list[int | None] = []
    for row, time in enumerate(times.to_pylist()):
        checked.append(time if time is None or 0 <= time <= latest else None)
        if time is not None and time < 0:
            reject(row, f"`{name}` is before 1970, which no event time may be")
        elif time is not None and time > latest:
            reject(row, f"`{name}` is too far ahead of the clock: {time} is after {latest}")
    return pa.array(checked, pa.int64())
