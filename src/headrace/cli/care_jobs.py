"""Follows a repair, a check or an explanation that runs in the server as a job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.cli.output import Progress
from headrace.errors import HeadraceError, error_from_json

if TYPE_CHECKING:
    from headrace.cli.api import Api

LOOK_S = 0.5
OVER = ("done", "failed", "cancelled")

Job = dict[str, Any]


def follow_job(api: Api, job: Job, say: Callable[[str], None] | None = None) -> Job:
    """Wait until a job is over, and say how far it is. Ctrl-C leaves it running, and says so."""
    progress = Progress()
    say = say or progress.say
    try:
        while job["state"] not in OVER:
            say(f"{job['kind']} of {job['view']}: {job['message']}")
            time.sleep(LOOK_S)
            job = api.request("GET", f"/v1/care/{job['id']}", exact=True)
    except KeyboardInterrupt:
        progress.clear()
        again = f"headrace view {job['kind']} {job['view']}"
        print(
            f"^C the {job['kind']} goes on in the server as job {job['id']}: the same command follows it again; "
            f"stop it:  {again} --cancel",
            file=sys.stderr,
        )
        raise
    finally:
        progress.clear()
    return job


def check_outcome(job: Job) -> None:
    """Raise what a job failed with, or that it was cancelled, with what it had done by then."""
    if job["state"] == "done":
        return
    error = error_from_json(job["error"]) if job.get("error") else HeadraceError(f"the {job['kind']} was cancelled")
    error.detail = error.detail or job["message"]
    raise error


def cancel_jobs(api: Api, view: str, kind: str) -> list[Job]:
    """Cancel the jobs of a view that are under way. Returns them."""
    found = [
        job
        for job in api.get("/v1/care")["jobs"]
        if job["view"].lower() == view.lower() and job["kind"] == kind and job["state"] not in OVER
    ]
    return [follow_job(api, api.post(f"/v1/care/{job['id']}/cancel")) for job in found]


def say_cancelled(api: Api, view: str, kind: str) -> None:
    """Cancel, and print what was done by then."""
    jobs = cancel_jobs(api, view, kind)
    for job in jobs:
        print(f"job {job['id']}: {job['message']}")
    if not jobs:
        print(f"no {kind} of {view} is under way")
