"""When an event happened: the topic's timestamp column, else the event's `$time`, else its arrival."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UsageError
from headrace.log.base import TIME, TopicSpec
from headrace.log.codecs.json_values import THOUSAND, Mismatch, Reader, iso_array, must_be, within
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
            times = self._of_column(column, latest, reject)
        if given is not None:
            other = _of_moments(TIME, _moments(given, reject), latest, reject)
            times = other if times is None else pc.coalesce(times, other)
        if times is None or times.null_count == rows:
            return None
        return pc.fill_null(times, pa.scalar(now_ms, pa.int64())) if times.null_count else times

    def _of_column(self, column: pa.Array, latest: int, reject: Reject) -> pa.Array:
        name = display_name(self._column or "")
        match self._type:
            case BigInt():
                return column if within(column, 0, latest) else _checked(name, column.to_pylist(), latest, reject)
            case Timestamp():
                return _of_moments(name, column, latest, reject)
            case _:
                return _of_moments(name, self._parsed(name, column.to_pylist(), reject), latest, reject)

    def _parsed(self, name: str, texts: list[str | None], reject: Reject) -> pa.Array:
        array = iso_array(texts, _MOMENT.arrow) if self._iso else None
        if array is not None:
            return array
        moments = [None if text is None else self._parse(text) for text in texts]
        for row, (text, moment) in enumerate(zip(texts, moments, strict=True)):
            if text is not None and moment is None:
                reject(row, f"`{name}` {must_be('a timestamp', text).message}")
        return pa.array(moments, _MOMENT.arrow)


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


def _of_moments(name: str, moments: pa.Array, latest: int, reject: Reject) -> pa.Array:
    """Microseconds → milliseconds, where they can be event times."""
    micros = moments.view(pa.int64())
    if within(micros, 0, latest * 1000 + 999):
        return pc.divide(micros, THOUSAND)
    times = [None if micro is None else micro // 1000 for micro in micros.to_pylist()]
    return _checked(name, times, latest, reject)


def _checked(name: str, times: list[int | None], latest: int, reject: Reject) -> pa.Array:
    """Times that can be; the others are rejected and null."""
    for row, time in enumerate(times):
        if time is not None and time < 0:
            reject(row, f"`{name}` is before 1970, which no event time may be")
        elif time is not None and time > latest:
            reject(row, f"`{name}` is too far ahead of the clock: {time} is after {latest}")
    return pa.array([time if time is not None and 0 <= time <= latest else None for time in times], pa.int64())
