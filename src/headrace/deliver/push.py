"""Push queries: `SELECT … EMIT CHANGES`, row by row as records arrive.

A stateless query is evaluated here, over its topic. A stateful one runs in Spark as a transient query; what it writes
is followed the same way, by `push_from_topic`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from headrace.deliver.base import HEARTBEAT_SECONDS, Delivery, FeedEvent
from headrace.errors import NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import TIME, TOMBSTONE, Snapshot
from headrace.sql.expressions import ColumnRef
from headrace.sql.plan import Filter, Named, PlanNode, Project, PushQuery, Scan
from headrace.sql.source import Source
from headrace.store.arrivals import behind, merge, position_at_end, position_at_start, read_stretch
from headrace.store.base import Decoder, Position
from headrace.store.columns import source_rows
from headrace.store.decode import SourceDecoder
from headrace.store.json_rows import to_json_rows
from headrace.store.layers import changelog_decoder
from headrace.store.rows import names_of, over_rows, project_rows
from headrace.types import Column, display_name

Row: TypeAlias = tuple[Any, ...]
Evaluate: TypeAlias = Callable[[Row], Row | None]

ROWS_PER_READ = 500


@dataclass(frozen=True, slots=True)
class Pushed:
    """Rows of an answer, and where to go on."""

    events: tuple[FeedEvent, ...]
    position: Position


def push(
    delivery: Delivery,
    query: PushQuery,
    *,
    from_beginning: bool = False,
    query_id: str | None = None,
    heartbeat_s: float = HEARTBEAT_SECONDS,
) -> AsyncIterator[FeedEvent]:
    """`header`, then a `row` for each record that passes, `end` at the limit or when the server stops; `heartbeat` when
    idle. From now on, unless from the beginning. `UsageError` for a query with state."""
    if not query.stateless:
        raise UsageError("a query with state cannot be evaluated record by record", hint="it runs as a transient query")
    [source] = query.inputs
    evaluate = compile_plan(query.root)
    return _push(delivery, source, query.root.columns, evaluate, query.limit, from_beginning, query_id, heartbeat_s)


def push_from_topic(
    delivery: Delivery,
    sink: Source,
    columns: tuple[Column, ...],
    *,
    limit: int | None = None,
    from_beginning: bool = True,
    query_id: str | None = None,
    heartbeat_s: float = HEARTBEAT_SECONDS,
) -> AsyncIterator[FeedEvent]:
    """The same for what a transient query writes: `columns` of its sink, in the order the query names them."""
    items = tuple(Named(column.name, ColumnRef(column.name, type=column.type)) for column in columns)
    evaluate = compile_plan(Project(Scan(sink), (), items))
    return _push(delivery, sink, columns, evaluate, limit, from_beginning, query_id, heartbeat_s)


async def _push(
    delivery: Delivery,
    source: Source,
    columns: tuple[Column, ...],
    evaluate: Evaluate,
    limit: int | None,
    from_beginning: bool,
    query_id: str | None,
    heartbeat_s: float,
) -> AsyncIterator[FeedEvent]:
    now = delivery.log.snapshot()
    begin = position_at_start if from_beginning else position_at_end
    position = begin(delivery.log, now, source.topic)
    yield header(columns, query_id)
    left = limit
    while left is None or left > 0:
        now = await delivery.tails.wait(source.topic, position, heartbeat_s)
        if delivery.tails.closed or source.topic not in now.ends:
            yield end("stopped")
            return
        if not delivery.serves(source):
            yield end(f"`{display_name(source.name)}` has a new version: ask again")
            return
        if not behind(now, source.topic, position):
            yield FeedEvent("heartbeat", {})
            continue
        try:
            what = f"push query over {display_name(source.name)}"
            read = partial(read_rows, delivery, source, columns, evaluate, position, now)
            pushed = await asyncio.to_thread(delivery.watchdog.call, what, delivery.row_seconds, read)
        except NotFound:
            continue  # gone since we looked; the next look says so
        except OffsetOutOfRange:
            yield end("too slow: the log no longer holds what comes next")
            return
        for event in pushed.events[:left]:
            yield event
        left = None if left is None else left - len(pushed.events[:left])
        position = pushed.position
    yield end("limit")


def header(columns: tuple[Column, ...], query_id: str | None) -> FeedEvent:
    shown = [{"name": display_name(column.name), "type": str(column.type)} for column in columns]
    return FeedEvent("header", {"columns": shown, "query_id": query_id})


def end(reason: str) -> FeedEvent:
    return FeedEvent("end", {"reason": reason})


def read_rows(
    delivery: Delivery,
    source: Source,
    columns: tuple[Column, ...],
    evaluate: Evaluate,
    after: Position,
    until: Snapshot,
) -> Pushed:
    log, decoder = delivery.log, _decoder(delivery, source)
    stretch = read_stretch(log, source.topic, after, until, decoder.columns, ROWS_PER_READ)
    batch = merge([decoder.decode(records) for records in stretch.records], after)
    if batch is None:
        return Pushed((), stretch.position)
    table = source.kind == "table"
    kept: list[tuple[Row, int, bool]] = []
    rows = source_rows(batch, source, source.all_columns)
    times, tombstones = batch.column(TIME).to_pylist(), batch.column(TOMBSTONE).to_pylist()
    keyless = keyless_rows(batch, source) if table else [False] * len(rows)
    for row, time_ms, dead, without_key in zip(rows, times, tombstones, keyless, strict=True):
        if without_key:
            continue
        # In a stream a record without a value is no row; in a table it says that the row is gone.
        answer = evaluate(row) if table or not dead else None
        if answer is not None:
            kept.append((answer, time_ms, dead))
    shown = to_json_rows(columns, (answer for answer, _, _ in kept))
    events = (
        FeedEvent("row", {"row": row, "time_ms": time_ms} | ({"tombstone": True} if dead else {}))
        for row, (_, time_ms, dead) in zip(shown, kept, strict=True)
    )
    return Pushed(tuple(events), stretch.position)


def _decoder(delivery: Delivery, source: Source) -> Decoder:
    """A table that is served may have layers."""
    if source.kind == "table" and source.name in delivery.views.names():
        view = delivery.views.of_source(source)
        if view.source.topic == source.topic:
            return changelog_decoder(delivery.log, view)
    return SourceDecoder(delivery.log.topic(source.topic), source, delivery.log.schemas)


def keyless_rows(batch: pa.RecordBatch, source: Source) -> list[bool]:
    """Which records have a null in their key: they are no rows of a table."""
    keys = [batch.column(column.name).is_null().to_pylist() for column in source.key]
    return [any(nulls) for nulls in zip(*keys, strict=True)] or [False] * batch.num_rows


def compile_plan(node: PlanNode) -> Evaluate:
    """A function from a row of the source's `all_columns` to the plan's row; None for one that is filtered out."""
    match node:
        case Scan():
            return lambda row: row
        case Filter(input_, predicate):
            before, matches = compile_plan(input_), over_rows(predicate, names_of(input_.columns))
            return lambda row: inner if (inner := before(row)) is not None and matches(inner) is True else None
        case Project(input_, key, value):
            before = compile_plan(input_)
            project = project_rows([item.expression for item in key + value], names_of(input_.columns))
            return lambda row: None if (inner := before(row)) is None else project(inner)
        case _:
            raise UsageError("a query with state cannot be evaluated record by record")
