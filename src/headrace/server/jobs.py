"""The project's batch jobs: what they are, when they run, what became of them, and run now."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.job_history import JobRun
from headrace.coordinate.jobs import Job
from headrace.server.endpoint import Endpoint
from headrace.server.errors import json_response
from headrace.server.models.jobs import (
    AskedRun,
    JobDetail,
    JobModel,
    JobRunModel,
    Jobs,
    RunJobsAnswer,
    RunJobsRequest,
)
from headrace.server.parameters import body_of
from headrace.server.services import Services


async def list_jobs(request: Request, services: Services) -> Response:
    def run() -> Jobs:
        jobs = [JobModel(**_fields(job, services)) for job in services.jobs.shown()]
        return Jobs(jobs, services.jobs.problem)

    return json_response(await services.run(run))


async def show_job(request: Request, services: Services) -> Response:
    def run() -> JobDetail:
        return _detail(services.jobs.job(request.path_params["job"]), services)

    return json_response(await services.run(run))


async def run_jobs(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, RunJobsRequest)
    return json_response(await services.run(_ask, wanted.jobs, services))


async def run_job(request: Request, services: Services) -> Response:
    return json_response(await services.run(_ask, [request.path_params["job"]], services))


async def cancel_job(request: Request, services: Services) -> Response:
    def run() -> JobDetail:
        # One that no file has any more is gone when it has ended.
        job = services.jobs.job(request.path_params["job"])
        services.jobs.cancel(job.name)
        return _detail(job, services)

    return json_response(await services.run(run))


def _ask(names: list[str], services: Services) -> RunJobsAnswer:
    for name in names:
        services.jobs.job(name)
    asked = [AskedRun(run.job, run.number) for run in services.jobs.ask(names)]
    return RunJobsAnswer(asked, services.jobs.problem)


def _detail(job: Job, services: Services) -> JobDetail:
    runs = [_run_model(run, services) for run in services.jobs.history.runs(job.name)]
    return JobDetail(**_fields(job, services), runs=runs)


def _fields(job: Job, services: Services) -> dict[str, Any]:
    last = services.jobs.history.last(job.name)
    return {
        "name": job.name,
        "run": job.run,
        "about": job.view or job.topic or job.query,
        "every": job.every or None,
        "schedule": job.schedule or None,
        "zone": job.zone,
        "missed": job.missed,
        "after": list(job.after),
        "retries": job.retries,
        "next_ms": services.jobs.next_ms(job),
        "last": None if last is None else _run_model(last, services),
    }


def _run_model(run: JobRun, services: Services) -> JobRunModel:
    message = (services.jobs.progress(run.job) if run.state == "running" else "") or run.message
    return JobRunModel(run.number, run.state, run.why, run.started_ms, run.finished_ms, run.attempts, message, run.log)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/jobs",
        handler=list_jobs,
        summary="The project's batch jobs, when they run next, and what became of them the last time",
        answers={200: Jobs},
    ),
    Endpoint(
        method="POST",
        path="/v1/jobs",
        handler=run_jobs,
        summary="Run jobs now, with those they come after; all without names",
        role="admin",
        body=RunJobsRequest,
        answers={200: RunJobsAnswer},
    ),
    Endpoint(
        method="GET",
        path="/v1/jobs/{job}",
        handler=show_job,
        summary="One job and its runs",
        answers={200: JobDetail},
    ),
    Endpoint(
        method="POST",
        path="/v1/jobs/{job}/run",
        handler=run_job,
        summary="Run a job now, with those it comes after",
        role="admin",
        answers={200: RunJobsAnswer},
    ),
    Endpoint(
        method="POST",
        path="/v1/jobs/{job}/cancel",
        handler=cancel_job,
        summary="Stop a job that runs, or that waits to run",
        role="admin",
        answers={200: JobDetail},
    ),
)
