"""Is it right? What was revised, what is checked, and what differs."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.base import ViewDefinition, late_topic
from headrace.errors import UsageError
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.history import Cared
from headrace.server.models.trust import (
    CareHistory,
    CheckAnswer,
    ChecksAnswer,
    DriftModel,
    RepairAnswer,
    RepairRequest,
    Revisions,
)
from headrace.server.parameters import body_of, integer, moment
from headrace.server.services import Services
from headrace.server.views import find_view
from headrace.server.why import bounds_model, revision_model
from headrace.store.revisions import parse_row
from headrace.types import display_name
from headrace.views.check import Checked
from headrace.views.drift import Drift
from headrace.views.ledger import ledger_end
from headrace.views.traced import Bounds

MOST = 1000


async def list_revisions(request: Request, services: Services) -> Response:
    view = find_view(request, services)
    limit = integer(request, "limit", 100, 0, MOST)
    found, count = await services.run(services.care.revisions.changed, view.name, view.version, limit)
    return json_response(Revisions([revision_model(one) for one in found], count))


async def repair_view(request: Request, services: Services) -> Response:
    view = find_view(request, services)
    wanted = await body_of(request, services, RepairRequest)
    done = await services.run_explanation(partial(services.care.repair, view, _between(wanted), wanted.dry_run))
    return json_response(
        RepairAnswer(
            display_name(view.name),
            done.windows,
            done.late,
            len(done.revised),
            [revision_model(one) for one in done.revised[:MOST]],
            done.waiting,
            sorted(done.missing),
            wanted.dry_run,
        )
    )


def _between(wanted: RepairRequest) -> Bounds | None:
    if wanted.start is None and wanted.end is None:
        return None
    start = 0 if wanted.start is None else moment(wanted.start, "start")
    end = 1 << 62 if wanted.end is None else moment(wanted.end, "end")
    if end < start:
        raise UsageError("`end` is before `start`")
    return start, end


async def check_view(request: Request, services: Services) -> Response:
    view = find_view(request, services)
    rows = integer(request, "rows", services.project.settings.views.check_rows, 1, 10_000)
    await services.run_explanation(services.care.check, view, rows, 10.0)
    return json_response(check_model(view, services))


async def show_check(request: Request, services: Services) -> Response:
    return json_response(check_model(find_view(request, services), services))


async def list_checks(request: Request, services: Services) -> Response:
    views = [view for view in services.catalog.views() if view.query_id is not None]
    return json_response(ChecksAnswer([check_model(view, services) for view in views]))


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
        [drift_model(one) for one in drift[:MOST]],
    )


def drift_model(drift: Drift) -> DriftModel:
    served: Any = parse_row(drift.served)
    return DriftModel(
        parse_row(drift.key), bounds_model(drift.window), served, parse_row(drift.recomputed), drift.time_ms
    )


async def show_care_history(request: Request, services: Services) -> Response:
    past = services.history.care(find_view(request, services).name)
    return json_response(
        CareHistory(
            [time for time, _ in past],
            [one.checked for _, one in past],
            [one.drifted for _, one in past],
            [one.late for _, one in past],
        )
    )


def look_at_care(services: Services) -> dict[str, Cared]:
    """How right the views are now, for the history."""
    found = {}
    for view in services.catalog.views():
        if view.query_id is not None:
            known = services.care.checked.get((view.name, view.version), Checked())
            late = ledger_end(services.log, late_topic(view.query_id))
            found[view.name] = Cared(known.rows, len(known.drift), late)
    return found


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/views/{view}/revisions",
        handler=list_revisions,
        summary="Rows that were computed again with what came too late, newest first",
        answers={200: Revisions},
        parameters=(Parameter("limit", "how many at most", {"type": "integer", "default": 100}),),
    ),
    Endpoint(
        method="POST",
        path="/v1/views/{view}/repair",
        handler=repair_view,
        summary="Compute closed windows again with what came too late for them",
        role="admin",
        body=RepairRequest,
        answers={200: RepairAnswer},
    ),
    Endpoint(
        method="GET",
        path="/v1/views/{view}/check",
        handler=show_check,
        summary="Rows of a view that were computed again and compared, and those that differ",
        answers={200: CheckAnswer},
    ),
    Endpoint(
        method="POST",
        path="/v1/views/{view}/check",
        handler=check_view,
        summary="Compute some rows of a view again, now, and compare",
        role="admin",
        answers={200: CheckAnswer},
        parameters=(Parameter("rows", "how many", {"type": "integer"}),),
    ),
    Endpoint(
        method="GET",
        path="/v1/views/{view}/check/history",
        handler=show_care_history,
        summary="How many rows were computed again, differed, and came too late, over the last hours",
        answers={200: CareHistory},
    ),
    Endpoint(
        method="GET",
        path="/v1/checks",
        handler=list_checks,
        summary="The checks of all views",
        answers={200: ChecksAnswer},
    ),
)
