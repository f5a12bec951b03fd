"""Explanations, revisions and checks as the HTTP API has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.coordinate.base import ViewDefinition
from headrace.server.models.trust import (
    BelowModel,
    BoundsModel,
    CheckAnswer,
    DeadModel,
    DriftModel,
    IncludedModel,
    KeylessModel,
    LateModel,
    RecordModel,
    RevisionModel,
    WhyAnswer,
)
from headrace.server.services import Services
from headrace.store.cuts import Cut, place_texts
from headrace.store.json_rows import to_json_rows
from headrace.store.revisions import Revision, parse_row
from headrace.types import Column, display_name
from headrace.views.check import Checked
from headrace.views.drift import Drift
from headrace.views.keyless import Keyless
from headrace.views.ledger import LateEntry
from headrace.views.origins import Below
from headrace.views.stamping import FIRST_MADE
from headrace.views.traced import Bounds, Origin, Values
from headrace.views.why import Why

MOST_SHOWN = 1000
MOST_LEFT_OUT = 20


def why_model(found: Why, services: Services) -> WhyAnswer:
    source = found.subject.source
    sources = services.catalog.source_at
    return WhyAnswer(
        view=display_name(source.name),
        version=found.subject.version,
        query_id=found.subject.query_id,
        key=row_json(source.key, found.key),
        window=bounds_model(found.window),
        row=None if found.row is None else row_json(source.value, found.row),
        recomputed=None if found.again is None else row_json(source.value, found.again),
        verdict=found.verdict,
        differs=[display_name(name) for name in found.differs],
        records=found.records,
        first=None if found.first is None else record_model(found.first, sources),
        last=None if found.last is None else record_model(found.last, sources),
        page=[record_model(one, sources, found.below) for one in found.page],
        late=[late_model(entry) for entry in found.late[:MOST_SHOWN]],
        late_total=len(found.late),
        dead=[DeadModel(d.offset, d.time_ms, d.topic, d.reason, d.text[:2000]) for d in found.dead[-MOST_SHOWN:]],
        dead_total=len(found.dead),
        through=IncludedModel(_number(found.cut), place_texts(found.inputs), _offsets(found.position.offsets)),
        looked_at=found.looked_at,
        missing=sorted(found.missing),
        took_ms=round(found.took_ms, 1),
        revision=None if found.revision is None else revision_model(found.revision),
        left_out=[record_model(one, sources) for one in found.left_out[:MOST_LEFT_OUT]],
        left_out_total=len(found.left_out),
        condition=found.condition,
        expired=found.expired,
        keyless=None if found.keyless is None else _keyless_model(found.keyless, sources),
        unread=dict(found.unread),
    )


def _keyless_model(found: Keyless, sources: Any) -> KeylessModel:
    newest = None if found.newest is None else record_model(found.newest, sources)
    return KeylessModel(list(found.columns), found.grouped, found.count, newest)


def _number(cut: Cut) -> int | None:
    return cut if isinstance(cut, int) else None


def _offsets(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def bounds_model(window: Bounds | None) -> BoundsModel | None:
    return None if window is None else BoundsModel(*window)


def row_json(columns: tuple[Column, ...], values: Values) -> dict[str, Any]:
    """By the names people see."""
    [row] = to_json_rows(columns, [[values.get(column.name) for column in columns]])
    return dict(zip((display_name(column.name) for column in columns), row, strict=True))


def record_model(origin: Origin, sources: Any, below: Mapping[Origin, Below] | None = None) -> RecordModel:
    source = sources(origin.source, origin.topic)
    columns = source.key + source.value if source is not None else ()
    under = (below or {}).get(origin)
    return RecordModel(
        source=display_name(origin.source),
        topic=origin.topic,
        partition=origin.partition,
        offset=origin.offset,
        arrival=origin.arrival if origin.arrival < FIRST_MADE else None,
        time_ms=origin.time_ms,
        value=row_json(columns, origin.values),
        below=None
        if under is None
        else BelowModel(
            under.query_id,
            under.records,
            [record_model(one, sources, under.below) for one in under.newest],
            under.same,
        ),
    )


def late_model(entry: LateEntry) -> LateModel:
    row = msgspec.json.decode(entry.row)
    return LateModel(
        entry.topic, entry.partition, entry.offset, entry.time_ms, entry.stream_time, entry.late_by_ms, row
    )


def revision_model(revision: Revision) -> RevisionModel:
    window = bounds_model((revision.window_start, revision.window_end))
    assert window is not None
    return RevisionModel(
        parse_row(revision.key),
        window,
        parse_row(revision.old),
        parse_row(revision.new),
        revision.late,
        revision.time_ms,
    )


def check_model(view: ViewDefinition, services: Services) -> CheckAnswer:
    known = services.care.checked.get((view.name, view.version), Checked())
    drift = sorted(known.drift.values(), key=lambda one: one.time_ms, reverse=True)
    return CheckAnswer(
        display_name(view.name),
        view.version,
        known.rounds,
        known.rows,
        known.skipped,
        known.passes,
        known.last_ms,
        len(drift),
        [drift_model(one) for one in drift[:MOST_SHOWN]],
    )


def drift_model(drift: Drift) -> DriftModel:
    served: Any = parse_row(drift.served)
    return DriftModel(
        parse_row(drift.key), bounds_model(drift.window), served, parse_row(drift.recomputed), drift.time_ms
    )
