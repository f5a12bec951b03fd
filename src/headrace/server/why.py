"""Why this number?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.subjects import source_subject, view_subject
from headrace.errors import UsageError
from headrace.functions.arrow_values import to_values
from headrace.log.codecs.formats import make_codec
from headrace.log.codecs.json_encode import from_json, to_json
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.models.trust import (
    BelowModel,
    BoundsModel,
    DeadModel,
    IncludedModel,
    KeylessModel,
    LateModel,
    RecordModel,
    RevisionModel,
    WhyAnswer,
)
from headrace.server.names import resolve
from headrace.server.parameters import choice, integer, moment
from headrace.server.services import Services
from headrace.server.views import find_view
from headrace.sql.casting import caster
from headrace.sql.coerce import castable
from headrace.sql.source import Source
from headrace.store.cuts import Cut, place_texts
from headrace.store.json_rows import to_json_rows
from headrace.store.revisions import Revision, parse_row
from headrace.types import VARCHAR, Column, Varchar, display_name
from headrace.views.keyless import Keyless, is_null
from headrace.views.ledger import LateEntry
from headrace.views.origins import Below
from headrace.views.stamping import FIRST_MADE
from headrace.views.traced import Bounds, Origin, Values
from headrace.views.why import Page, Why, why

MOST_SHOWN = 1000
MOST_LEFT_OUT = 20
OURS = ("limit", "skip", "order", "window", "version")


async def explain_row(request: Request, services: Services) -> Response:
    view = find_view(request, services)
    version = integer(request, "version", view.version)
    subject = view_subject(services.catalog, view, version)
    key = _key(request, subject.source, services)
    window = request.query_params.get("window")
    order = choice(request, "order", "newest", "newest", "oldest", "largest")
    page = Page(integer(request, "limit", 20, 0, MOST_SHOWN), integer(request, "skip", 0), order)  # type: ignore[arg-type]
    found = await services.run_explanation(
        partial(
            why,
            services.log,
            subject,
            services.followers.version(view.name, subject.version),
            key,
            None if window is None else moment(window, "window"),
            page,
            partial(source_subject, services.catalog),
            services.care.revisions,
        )
    )
    return json_response(why_model(found, services))


def _key(request: Request, source: Source, services: Services) -> dict[str, Any]:
    """The key's columns by name, as text, in the types they have."""
    ours = {*OURS, "key"} if services.auth.keys_set else set(OURS)
    columns = {column.name: column for column in source.key}
    given = {}
    for name, text in request.query_params.multi_items():
        if name not in ours:
            found = columns[resolve(name, columns, "key column", "the key's columns say which row is meant")]
            given[found.name] = key_value(found, text)
    missing = [display_name(name) for name in columns if name not in given]
    if missing:
        raise UsageError(f"`{missing[0]}` is missing", hint="all of the key's columns say which row is meant")
    return {name: given[name] for name in columns}


def key_value(column: Column, text: str) -> Any:
    """A key's value, as a row has it: arrays and structures are given as JSON."""
    if isinstance(column.type, Varchar):
        return text
    if is_null(text):
        return None
    try:
        value = caster(VARCHAR, column.type)(text) if castable(VARCHAR, column.type) else _from_json(column, text)
    except (ValueError, ArithmeticError):
        value = None
    if value is None:
        raise UsageError(f"`{display_name(column.name)}` is {column.type}, got `{text[:40]}`")
    return value


def _from_json(column: Column, text: str) -> Any:
    decoded = make_codec("JSON", "", (column,)).decode(pa.array([to_json({column.name: from_json(text)})]))
    return None if decoded.errors else to_values(decoded.batch.column(0), column.type)[0]


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


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/views/{view}/why",
        handler=explain_row,
        summary="The records that made a row, and the row computed again; the key's columns are parameters",
        answers={200: WhyAnswer},
        parameters=(
            Parameter("window", "a moment: the window that begins then, or contains it; the newest by default"),
            Parameter("version", "of the view; the one that serves by default", {"type": "integer"}),
            Parameter("limit", "how many records to show", {"type": "integer", "default": 20}),
            Parameter("skip", "how many to leave out before those", {"type": "integer", "default": 0}),
            Parameter("order", "which come first", {"enum": ["newest", "oldest", "largest"]}),
        ),
    ),
)
