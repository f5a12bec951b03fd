"""When an event happened: the topic's timestamp column, else the event's `$time`, else its arrival."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.config import CollectSettings
from headrace.errors import UsageError
from headrace.log.base import TIME, TopicSpec
from headrace.log.codecs.json_encode import timestamp_to_json
from headrace.log.codecs.json_values import THOUSAND, Mismatch, Reader, iso_array, must_be, within
from headrace.log.codecs.times import compile_pattern, parse_iso
from headrace.types import TIMESTAMP, BigInt, Timestamp, Varchar, display_name

Reject = Callable[[int, str], None]
_MOMENT = Reader(TIMESTAMP)
_SECONDS_FROM = 631_152_000
"""1990 in seconds, and in milliseconds the eighth of January 1970."""
_LAST_WRITABLE_MS = 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Which event times a topic takes, relative to the clock."""

    future_ms: int
    """How far ahead of the clock a time may be."""
    earliest_ms: int | None = None
    """The earliest time. None: any since 1970, but none that looks like seconds taken for milliseconds."""

    def widened(self, milliseconds: int) -> TimeBounds:
        """Return the same bounds with a later end."""
        return replace(self, future_ms=self.future_ms + milliseconds)

    def refuse(self, time: int, now_ms: int) -> str | None:
        """Return why a time is refused, to follow the name of its field; None if it is taken."""
        latest = now_ms + self.future_ms
        if time < 0:
            return "is before 1970, which no event time may be"
        if self.earliest_ms is None:
            if _SECONDS_FROM <= time <= latest // 1000:
                meant = _written(time * 1000)
                return f"is {_written(time)}: seconds? Event times are milliseconds; multiplied by 1000 it is {meant}"
        elif time < self.earliest_ms:
            return f"is too far back: {_written(time)} is before {_written(self.earliest_ms)}"
        if time > latest:
            unit = _finer_unit(time, latest)
            return f"is too far ahead of the clock: {_written(time)} is after {_written(latest)}{unit}"
        return None

    def certain(self, now_ms: int) -> tuple[int, int]:
        """Return two times between which all are taken."""
        latest = now_ms + self.future_ms
        return (latest // 1000 + 1 if self.earliest_ms is None else self.earliest_ms), latest


ANY_TIME = TimeBounds(1 << 60, 0)


class EventTimeBounds:
    """The bounds of each topic, by the settings."""

    def __init__(self, settings: CollectSettings) -> None:
        self._others = _bounds(settings.max_future_seconds, settings.earliest_event_time)
        self._topics = {
            name: _bounds(
                settings.max_future_seconds if own.max_future_seconds is None else own.max_future_seconds,
                settings.earliest_event_time if own.earliest_event_time is None else own.earliest_event_time,
            )
            for name, own in settings.topics.items()
        }

    def of(self, topic: str) -> TimeBounds:
        return self._topics.get(topic, self._others)


def _bounds(future_seconds: float, earliest: str) -> TimeBounds:
    moment = datetime.datetime.fromisoformat(earliest) if earliest else None
    if moment is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return TimeBounds(int(future_seconds * 1000), None if moment is None else int(moment.timestamp() * 1000))


def _written(time: int) -> str:
    """A time for people; a number where no calendar has it."""
    return timestamp_to_json(time * 1000) if time <= _LAST_WRITABLE_MS else f"{time} ms"


def _finer_unit(time: int, latest: int) -> str:
    for unit, factor in (("microseconds", 1_000), ("nanoseconds", 1_000_000)):
        if _SECONDS_FROM * 1000 <= time // factor <= latest:
            return f" ({unit}? Event times are milliseconds)"
    return ""


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
        bounds: TimeBounds,
        reject: Reject,
    ) -> pa.Array | None:
        """Event times, or None if all are to be the time of arrival. What cannot be is rejected."""
        check = _Check(now_ms, bounds, reject)
        column = arrays.get(self._column) if self._column is not None else None
        times: pa.Array | None = None
        if column is not None and column.null_count < rows:
            times = self._of_column(column, check)
        if given is not None:
            other = check.moments(TIME, _moments(given, reject))
            times = other if times is None else pc.coalesce(times, other)
        if times is None or times.null_count == rows:
            return None
        return pc.fill_null(times, pa.scalar(now_ms, pa.int64())) if times.null_count else times

    def _of_column(self, column: pa.Array, check: _Check) -> pa.Array:
        name = display_name(self._column or "")
        match self._type:
            case BigInt():
                return check.milliseconds(name, column)
            case Timestamp():
                return check.moments(name, column)
            case _:
                return check.moments(name, self._parsed(name, column.to_pylist(), check.reject))

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


@dataclass(frozen=True, slots=True)
class _Check:
    """Times of one batch: those that are refused are rejected and become null."""

    now_ms: int
    bounds: TimeBounds
    reject: Reject

    def milliseconds(self, name: str, times: pa.Array) -> pa.Array:
        return times if within(times, *self.bounds.certain(self.now_ms)) else self._each(name, times.to_pylist())

    def moments(self, name: str, moments: pa.Array) -> pa.Array:
        """Microseconds → milliseconds."""
        micros = moments.view(pa.int64())
        first, last = self.bounds.certain(self.now_ms)
        if within(micros, first * 1000, last * 1000 + 999):
            return pc.divide(micros, THOUSAND)
        return self._each(name, [None if micro is None else micro // 1000 for micro in micros.to_pylist()])

    def _each(self, name: str, times: list[int | None]) -> pa.Array:
        kept: list[int | None] = []
        for row, time in enumerate(times):
            reason = None if time is None else self.bounds.refuse(time, self.now_ms)
            if reason is not None:
                self.reject(row, f"`{name}` {reason}")
            kept.append(time if reason is None else None)
        return pa.array(kept, pa.int64())
