"""Is it right? What was revised, what is checked, and what differs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.base import late_topic
from headrace.coordinate.care_jobs import Wish
from headrace.errors import NotRunning, UsageError
from headrace.server.care_jobs import answer_with_job, raise_failure, repair_model, wait_for_job
from headrace.server.endpoint import Endpoint, Parameter
from headrace.server.errors import json_response
from headrace.server.history import Cared
from headrace.server.models.trust import (
    CareHistory,
    CareJobModel,
    CheckAnswer,
    ChecksAnswer,
    RepairAnswer,
    RepairRequest,
    Revisions,
)
from headrace.server.parameters import body_of, flag, integer, moment
from headrace.server.services import Services
from headrace.server.trust_models import check_model, revision_model
from headrace.server.views import find_view
from headrace.views.check import Checked
from headrace.views.ledger import ledger_end
from headrace.views.traced import Bounds

MOST = 1000
MOST_CHECKED = 1_000_000


async def list_revisions(request: Request, services: Services) -> Response:
    view = find_view(request, services)
    limit = integer(request, "limit", 100, 0, MOST)
    found, count = await services.run(services.care.revisions.changed, view.name, view.version, limit)
    return json_response(Revisions([revision_model(one) for one in found], count))


async def repair_view(request: Request, services: Services) -> Response:
    view = find_view(request, services)
    wanted = await body_of(request, services, RepairRequest)
    job = services.care_jobs.start(Wish("repair", view.name, _between(wanted), wanted.dry_run))
    if wanted.job:
        return await answer_with_job(job, services)
    # Who waits is answered with the end of it; who leaves does not end it.
    if not await wait_for_job(job, None, services):
        raise NotRunning("the server stops", hint="the repair goes on with the next one")
    raise_failure(job)
    return json_response(repair_model(job, job.result))


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
    rows = integer(request, "rows", services.project.settings.views.check_rows, 1, MOST_CHECKED)
    if flag(request, "job"):
        return await answer_with_job(services.care_jobs.start(Wish("check", view.name, rows=rows)), services)
    await services.run_explanation(services.care.check, view, rows, 10.0)
    return json_response(check_model(view, services))


async def show_check(request: Request, services: Services) -> Response:
    return json_response(check_model(find_view(request, services), services))


async def list_checks(request: Request, services: Services) -> Response:
    views = [view for view in services.catalog.views() if view.query_id is not None]
    return json_response(ChecksAnswer([check_model(view, services) for view in views]))


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
        answers={200: RepairAnswer, 202: CareJobModel},
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
        answers={200: CheckAnswer, 202: CareJobModel},
        parameters=(
            Parameter("rows", "how many", {"type": "integer"}),
            Parameter("job", "answer with the job, and do not wait for its end", {"type": "boolean"}),
        ),
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
