"""INSERT INTO … VALUES: rows appended as events, with the event time that a sent event would have got."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.clock import Clock
from headrace.config import CollectSettings
from headrace.coordinate.catalog import BUILT_IN
from headrace.coordinate.including import token_of
from headrace.coordinate.result import StatementResult
from headrace.errors import SqlError
from headrace.log.base import REST, TIME, Append, Log, TopicSpec
from headrace.log.codecs.event_time import EventTimeBounds, EventTimes
from headrace.log.codecs.json_encode import row_to_json, to_json
from headrace.log.schema import arrow_type
from headrace.sql.api import plan_insert
from headrace.sql.source import Source, Sources
from headrace.sql.statements import InsertValues
from headrace.types import Array, Column, DataType, Map, Struct, Timestamp, display_name

ROWTIME = "ROWTIME"
Row = dict[str, Any]


def insert_rows(
    statement: InsertValues, log: Log, sources: Sources, clock: Clock, settings: CollectSettings
) -> StatementResult:
    source, rows = plan_insert(statement, sources)
    spec = log.topic(source.topic).spec
    _check_writable(statement, source, spec)
    [done] = log.append([Append(source.topic, _batch(statement, source, spec, rows, clock, settings))]).result()
    count = f"{len(rows)} rows" if len(rows) != 1 else "1 row"
    message = f"{count} inserted into `{display_name(source.name)}`"
    return StatementResult(statement.text, "inserted", message, token=token_of(log, source.topic, done.positions))


def _check_writable(statement: InsertValues, source: Source, spec: TopicSpec) -> None:
    name = display_name(source.name)
    if source in BUILT_IN or spec.role != "events":
        raise _refused(statement, f"`{name}` is written by {source.query or 'Headrace itself'}, not by hand")
    if spec.kind == "raw":
        raise _refused(statement, f"topic `{spec.name}` is raw: rows cannot be inserted")


def _refused(statement: InsertValues, message: str) -> SqlError:
    return statement.script.error(message, statement.target.span, "insert into one of the streams it is made of")


def _batch(
    statement: InsertValues, source: Source, spec: TopicSpec, rows: list[Row], clock: Clock, settings: CollectSettings
) -> pa.RecordBatch:
    declared = source.key + source.value
    known = {column.name for column in spec.key + spec.value}
    arrays = {column.name: _array(column, rows) for column in declared if column.name in known}
    others = [column for column in declared if column.name not in known]
    if others:
        # The topic has no column for them: they go where undeclared fields of sent events go.
        arrays[REST] = pa.array([_rest(others, row) for row in rows], pa.utf8())
    times = _times(statement, spec, arrays, rows, clock, settings)
    if times is not None:
        arrays[TIME] = times
    return pa.record_batch(arrays)


def _times(
    statement: InsertValues,
    spec: TopicSpec,
    arrays: dict[str, pa.Array],
    rows: list[Row],
    clock: Clock,
    settings: CollectSettings,
) -> pa.Array | None:
    def reject(row: int, reason: str) -> None:
        span = statement.row_spans[row] if row < len(statement.row_spans) else None
        raise statement.script.error(reason, span)

    given = [row.get(ROWTIME) for row in rows]
    bounds = EventTimeBounds(settings).of(spec.name)
    asked = given if any(time is not None for time in given) else None
    return EventTimes(spec).read(arrays, asked, len(rows), clock.now_ms(), bounds, reject)


def _array(column: Column, rows: list[Row]) -> pa.Array:
    return pa.array([arrow_value(row[column.name], column.type) for row in rows], arrow_type(column.type))


def arrow_value(value: Any, type_: DataType) -> Any:
    """A value of the evaluator as Arrow takes it: moments are milliseconds there and microseconds here."""
    if value is None:
        return None
    match type_:
        case Timestamp():
            return value * 1000
        case Array(element):
            return [arrow_value(item, element) for item in value]
        case Map(key, item):
            return [(arrow_value(k, key), arrow_value(v, item)) for k, v in value.items()]
        case Struct(fields):
            return {name: arrow_value(value.get(name), field) for name, field in fields}
        case _:
            return value


def _rest(columns: list[Column], row: Row) -> str | None:
    values = [arrow_value(row[column.name], column.type) for column in columns]
    present = [(column, value) for column, value in zip(columns, values, strict=True) if value is not None]
    if not present:
        return None
    return to_json(row_to_json([column for column, _ in present], [value for _, value in present])).decode()
