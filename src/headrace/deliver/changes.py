"""What is new to a feed, read once for all who are at the same place; and a view's changes as its events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.deliver.base import FeedEvent
from headrace.deliver.ids import ids_of
from headrace.deliver.tails import Tails
from headrace.log.base import TIME, TOMBSTONE, WINDOW_END, WINDOW_START, Log, Snapshot
from headrace.log.codecs.json_encode import to_json
from headrace.sql.source import WINDOW_COLUMNS, Source
from headrace.store.arrivals import merge, read_stretch
from headrace.store.base import Position, ViewStore
from headrace.store.columns import source_rows
from headrace.store.json_rows import to_json_rows
from headrace.store.layers import changelog_decoder
from headrace.store.revisions import Revisions, parse_row
from headrace.types import BIGINT, Column, display_name

ROWTIME = Column("ROWTIME", BIGINT)
AGAIN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened between two positions, ready to be sent, and where to go on."""

    events: tuple[FeedEvent, ...]
    position: Position


async def next_changes(tails: Tails, what: Hashable, after: Position, load: Callable[[], Changes]) -> Changes:
    """Those who are at the same place share a read, whatever each of them takes for now: all may have what is new.

    One that came no further looked at the log as it was before, say when a topic of this name was another. It is not
    kept, and takes a moment: whoever is given the same again at once would go round for ever and let nobody else in."""
    changes = await tails.share(what, load)
    if changes.position.offsets == after.offsets:
        tails.forget(what)
        await asyncio.sleep(AGAIN_SECONDS)
    return changes


def read_changes(
    log: Log,
    view: ViewStore,
    after: Position,
    snapshot: Snapshot,
    max_rows: int,
    revisions: Revisions | None = None,
) -> Changes:
    """The next changes of a view, in order of arrival. Those that a repair made say what was there before."""
    source, version, decoder = view.source, view.version, changelog_decoder(log, view)
    stretch = read_stretch(log, source.topic, after, snapshot, decoder.columns, max_rows)
    batch = merge([decoder.decode(records) for records in stretch.records], after)
    events = () if batch is None else tuple(change_events(batch, source, ids_of(batch, version, after, log.epochs())))
    if revisions is not None and source.window is not None and revisions.has(source.name, version):
        events = tuple(_revised(event, source.name, version, revisions) for event in events)
    return Changes(events, stretch.position)


def _revised(event: FeedEvent, view: str, version: int, revisions: Revisions) -> FeedEvent:
    """A closed window changes only by a repair, so the row's own value tells which change it was."""
    window, value = event.data["window"], event.data["value"]
    row = (view, version, to_json(event.data["key"]).decode(), window["start"], window["end"])
    text = None if value is None else to_json(value).decode()
    found = revisions.with_value(row, text)
    return event if found is None else replace(event, data=event.data | {"revised": {"old": parse_row(found.old)}})


def change_events(batch: pa.RecordBatch, source: Source, ids: Iterable[str]) -> Iterable[FeedEvent]:
    keys = _objects(source.key, source_rows(batch, source, source.key))
    values = _objects(source.value, source_rows(batch, source, source.value))
    windows = _windows(batch) if source.window else [None] * batch.num_rows
    times, dead = (batch.column(name).to_pylist() for name in (TIME, TOMBSTONE))
    for id_, key, value, gone, time_ms, window in zip(ids, keys, values, dead, times, windows, strict=True):
        yield FeedEvent("change", change(key, None if gone else value, time_ms, window), id_)


def snapshot_columns(source: Source) -> tuple[Column, ...]:
    window = WINDOW_COLUMNS if source.window else ()
    return (ROWTIME, *window, *source.key, *source.value)


def change(key: dict[str, Any], value: dict[str, Any] | None, time_ms: int, window: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"key": key, "value": value, "time_ms": time_ms}
    if window is not None:
        data["window"] = window
    return data


def _objects(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    names = [display_name(column.name) for column in columns]
    return [dict(zip(names, row, strict=True)) for row in to_json_rows(columns, rows)]


def _windows(batch: pa.RecordBatch) -> list[dict[str, int]]:
    starts, ends = batch.column(WINDOW_START).to_pylist(), batch.column(WINDOW_END).to_pylist()
    return [{"start": start, "end": end} for start, end in zip(starts, ends, strict=True)]
