"""A feed crosses a switch: what is left of the old version, then the difference to the new one, then the new one.

Both versions are read once, each at one position of its own, for all feeds that cross at about the same time. A client
that has every change of the old version up to there, and then the difference, has exactly the new version's rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.deliver.base import FeedEvent
from headrace.deliver.changes import change, snapshot_columns
from headrace.deliver.ids import id_after
from headrace.log.base import Log
from headrace.sql.source import Source
from headrace.store.base import Position, Scan, ViewStore
from headrace.store.json_rows import to_json_rows
from headrace.types import display_name

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Crossing:
    old: Position
    """Where the old version was read: a feed must have come exactly here."""
    events: tuple[FeedEvent, ...] | None
    """The difference; None if the views are too large to be compared row by row."""
    new: Position
    """Where the new version was read, and goes on."""


@dataclass(frozen=True, slots=True)
class _Row:
    key: dict[str, Any]
    value: dict[str, Any]
    time_ms: int
    window: dict[str, int] | None


def cross(log: Log, old: ViewStore, new: ViewStore, most_rows: int) -> Crossing:
    with (
        old.scan(_names(old.source), deadline=SECONDS) as before,
        new.scan(_names(new.source), deadline=SECONDS) as now,
    ):
        rows = {_identity(old.source, row): row for row in _rows(old.source, before, most_rows)}
        fresh = list(_rows(new.source, now, most_rows))
        if len(rows) > most_rows or len(fresh) > most_rows:
            return Crossing(before.position, None, now.position)
        changes = [each for row in fresh if (each := _change(rows.pop(_identity(new.source, row), None), row))]
    gone = [change(row.key, None, row.time_ms, row.window) for row in rows.values()]
    switch = {"switch": {"from": old.version, "to": new.version}}
    found = [data | switch for data in gone + changes]
    # Only the last has an id: who has a part of the difference has neither version.
    ids = [None] * (len(found) - 1) + [id_after(log, new.version, now.position)]
    events = tuple(FeedEvent("change", data, id_) for data, id_ in zip(found, ids, strict=False))
    return Crossing(before.position, events, now.position)


def _names(source: Source) -> list[str]:
    return [column.name for column in snapshot_columns(source)]


def _rows(source: Source, scan: Scan, most: int) -> Iterator[_Row]:
    """One more than there may be says that there are too many."""
    columns = snapshot_columns(source)
    names = [display_name(column.name) for column in columns]
    first_key = len(columns) - len(source.key) - len(source.value)
    first_value = first_key + len(source.key)
    for number, row in enumerate(scan.rows):
        if number > most:
            return
        [shown] = to_json_rows(columns, [row])
        window = {"start": row[1], "end": row[2]} if source.window else None
        key = dict(zip(names[first_key:first_value], shown[first_key:first_value], strict=True))
        value = dict(zip(names[first_value:], shown[first_value:], strict=True))
        yield _Row(key, value, row[0], window)


def _identity(source: Source, row: _Row) -> bytes:
    """Equal for the same row of two versions: the same key columns with the same values, the same window."""
    types = [str(column.type) for column in source.key]
    return msgspec.json.encode([types, row.key, row.window])


def _change(before: _Row | None, now: _Row) -> dict[str, Any] | None:
    if before is not None and msgspec.json.encode(before.value) == msgspec.json.encode(now.value):
        return None
    return change(now.key, now.value, now.time_ms, now.window)
