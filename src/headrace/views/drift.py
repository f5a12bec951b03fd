"""Drift: rows that are not what the log says, as records of the topic `_drift`. The newest record of a row says whether
it still is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.log.base import TIME, Append, Log, TopicSpec
from headrace.log.codecs.json_encode import to_json
from headrace.log.schema import arrow_type
from headrace.sql.casting import caster
from headrace.sql.source import Source
from headrace.store.revisions import parse_row
from headrace.types import BIGINT, BOOLEAN, VARCHAR, Column, Varchar, display_name
from headrace.views.traced import Bounds

DRIFT_TOPIC = "_drift"
DRIFT_COLUMNS = (
    Column("VIEW", VARCHAR),
    Column("VERSION", BIGINT),
    Column("KEY", VARCHAR),
    Column("WINDOW_START", BIGINT),
    Column("WINDOW_END", BIGINT),
    Column("SERVED", VARCHAR),
    Column("RECOMPUTED", VARCHAR),
    Column("RIGHT", BOOLEAN),
)
DRIFT_SPEC = TopicSpec(DRIFT_TOPIC, value=DRIFT_COLUMNS, role="derived")

RowId = tuple[str, Bounds | None]


@dataclass(frozen=True, slots=True)
class Drift:
    """A row that is not what the log says. `right`: it was, and is no more."""

    view: str
    version: int
    key: str
    window: Bounds | None
    served: str | None
    recomputed: str | None
    time_ms: int
    right: bool = False

    @property
    def row(self) -> RowId:
        return self.key, self.window


def append_drift(drift: list[Drift]) -> Append:
    """As records that can be queried, followed and alerted on."""
    rows = [
        (
            one.view,
            one.version,
            one.key,
            one.window[0] if one.window else None,
            one.window[1] if one.window else None,
            one.served,
            one.recomputed,
            one.right,
        )
        for one in drift
    ]
    columns = {
        column.name: pa.array([row[place] for row in rows], arrow_type(column.type))
        for place, column in enumerate(DRIFT_COLUMNS)
    }
    columns[TIME] = pa.array([one.time_ms for one in drift], pa.int64())
    return Append(DRIFT_TOPIC, pa.record_batch(columns))


def read_drift(log: Log) -> dict[tuple[str, int], dict[RowId, Drift]]:
    """What differed when somebody last looked, by view and version."""
    found: dict[tuple[str, int], dict[RowId, Drift]] = defaultdict(dict)
    ends = log.snapshot().ends.get(DRIFT_TOPIC)
    if not ends:
        return found
    names = [TIME, *(column.name for column in DRIFT_COLUMNS)]
    for records in log.read(DRIFT_TOPIC, 0, ends[0].start, ends[0].end, names):
        for row in records.batch.to_pylist():
            window = None if row["WINDOW_START"] is None else (row["WINDOW_START"], row["WINDOW_END"])
            values = row["SERVED"], row["RECOMPUTED"], row[TIME], row["RIGHT"]
            one = Drift(row["VIEW"], row["VERSION"], row["KEY"], window, *values)
            found[one.view, one.version].pop(one.row, None)
            if not one.right:
                found[one.view, one.version][one.row] = one
    return found


def key_values(source: Source, text: str) -> dict[str, Any] | None:
    """A key by column, from its text; None if a value of it is null or cannot be read again."""
    parsed: Mapping[str, Any] = parse_row(text)
    found: dict[str, Any] = {}
    for column in source.key:
        value = parsed.get(display_name(column.name))
        if not isinstance(column.type, Varchar) and value is not None:
            try:
                value = caster(VARCHAR, column.type)(value if isinstance(value, str) else to_json(value).decode())
            except (ValueError, ArithmeticError, KeyError, TypeError):
                value = None
        if value is None:
            return None
        found[column.name] = value
    return found
