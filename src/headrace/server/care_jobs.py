"""Repairs, checks and explanations as jobs: begun, followed, cancelled."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.base import ViewDefinition
from headrace.coordinate.care import ViewCare
from headrace.coordinate.care_jobs import CareJob, Wish, Work
from headrace.coordinate.catalog import Catalog
from headrace.errors import NotFound, UsageError
from headrace.server.endpoint import Endpoint
from headrace.server.errors import error_body, json_response
from headrace.server.models.trust import CareJobModel, CareJobs, RepairAnswer
from headrace.server.services import Services
from headrace.server.trust_models import check_model, revision_model, why_model
from headrace.types import display_name
from headrace.views.repair import Repaired
from headrace.views.why import Why

MOST = 1000
SOON_S = 1.0
"""What is done within this time is answered at once."""
LONGEST_LOOK_S = 0.25


def work_of(care: ViewCare, catalog: Catalog, wish: Wish) -> Work:
    """How a repair or a check is done. An explanation has to be handed in: it is of one row."""
    view = next((view for view in catalog.views() if view.name == wish.view), None)
    if view is None:
        raise NotFound(f"there is no view `{display_name(wish.view)}`")
    if wish.kind == "repair":
        return partial(_repair, care, view)
    if wish.kind == "check":
        return partial(_check, care, view)
    raise UsageError(f"a job of kind `{wish.kind}` cannot be begun again")


def _repair(care: ViewCare, view: ViewDefinition, job: CareJob) -> Repaired:
    job.unit, job.result = "windows", Repaired()
    return care.repair(view, job.wish.between, job.wish.dry_run, job.progress, job.result)


def _check(care: ViewCare, view: ViewDefinition, job: CareJob) -> None:
    job.unit = "rows"
    care.check_many(view, job.wish.rows, job.progress)


async def wait_for_job(job: CareJob, seconds: float | None, services: Services) -> bool:
    """Wait until a job is over, at most so long. Whether it is."""
    loop = asyncio.get_running_loop()
    end, pause = None if seconds is None else loop.time() + seconds, 0.005
    while not job.over.is_set():
        if services.stopping.is_set() or (end is not None and loop.time() >= end):
            return False
        await asyncio.sleep(pause)
        pause = min(LONGEST_LOOK_S, pause * 1.5)
    return True


async def answer_with_job(job: CareJob, services: Services) -> Response:
    """Answer with the job, and with its result if that takes but a moment."""
    await wait_for_job(job, SOON_S, services)
    return json_response(job_model(job, services), 202)


def job_model(job: CareJob, services: Services) -> CareJobModel:
    found = job.result
    view = next((view for view in services.catalog.views() if view.name == job.wish.view), None)
    return CareJobModel(
        id=job.id,
        kind=job.wish.kind,
        view=display_name(job.wish.view),
        state=job.state,
        done=job.done,
        all=job.all,
        unit=job.unit,
        message=said(job),
        started_ms=job.started_ms,
        ended_ms=job.ended_ms,
        error=None if job.error is None else error_body(job.error),
        repair=repair_model(job, found) if isinstance(found, Repaired) else None,
        check=check_model(view, services) if job.wish.kind == "check" and view is not None else None,
        why=why_model(found, services) if isinstance(found, Why) else None,
    )


def repair_model(job: CareJob, done: Repaired) -> RepairAnswer:
    revised = list(done.revised)
    return RepairAnswer(
        display_name(job.wish.view),
        done.windows,
        done.late,
        len(revised),
        [revision_model(one) for one in revised[:MOST]],
        done.waiting,
        sorted(done.missing),
        job.wish.dry_run,
    )


def said(job: CareJob) -> str:
    """What a job has done so far, in words."""
    of = f"{job.done:,}" + ("" if job.all is None else f" of {job.all:,}") + f" {job.unit}".rstrip()
    found = job.result
    revised = ""
    if isinstance(found, Repaired):
        revised = f", {len(found.revised):,} rows {'would be ' if job.wish.dry_run else ''}revised"
    match job.state:
        case "waiting":
            return "waits for others"
        case "running" | "done":
            return f"{of}{revised}"
        case _:
            why = job.error.message if job.error is not None else job.state
            on = "" if job.wish.kind == "why" else "; run again continues"
            return f"{why}: {of}{revised}{on}"


def raise_failure(job: CareJob) -> None:
    """Raise what a job failed with, with what it had done by then."""
    error = job.error
    if error is None or job.state != "failed":
        return
    if job.wish.kind == "repair" and job.done and not error.detail:
        error.detail = said(job)
    raise error


async def list_care_jobs(request: Request, services: Services) -> Response:
    return json_response(CareJobs([job_model(job, services) for job in services.care_jobs.jobs()]))


async def show_care_job(request: Request, services: Services) -> Response:
    return json_response(job_model(services.care_jobs.get(_number(request)), services))


async def cancel_care_job(request: Request, services: Services) -> Response:
    job = services.care_jobs.cancel(_number(request))
    await wait_for_job(job, SOON_S, services)
    return json_response(job_model(job, services))


def _number(request: Request) -> int:
    text = request.path_params["number"]
    return int(text) if text.isdecimal() and len(text) < 10 else 0


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/care",
        handler=list_care_jobs,
        summary="Repairs, checks and explanations that run, and those that ended lately",
        answers={200: CareJobs},
    ),
    Endpoint(
        method="GET",
        path="/v1/care/{number}",
        handler=show_care_job,
        summary="One of them: how far it is, and what it found",
        answers={200: CareJobModel},
    ),
    Endpoint(
        method="POST",
        path="/v1/care/{number}/cancel",
        handler=cancel_care_job,
        summary="Stop one of them; what was done stays",
        role="admin",
        answers={200: CareJobModel},
    ),
)
