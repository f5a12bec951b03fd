"""The work of one job, in the process that the server starts for it: `server.job_process` says how they talk.

It is a client like any other: what a job does can be done by hand, with the commands of the same names.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headrace.access.owner import own_key
from headrace.access.tls import trust_own
from headrace.cli.api import Api
from headrace.cli.backend import ServerBackend
from headrace.cli.care_jobs import check_outcome, follow_job
from headrace.cli.deployment import POLL_S, RUNNING, progress_line
from headrace.cli.export_files import export_query, export_topic
from headrace.cli.history_files import Reading
from headrace.cli.import_files import bring_in, summary
from headrace.cli.options import view_path
from headrace.cli.trust import checked_text, nothing_checked
from headrace.config import Project, load_project
from headrace.coordinate.jobs import Job
from headrace.errors import HeadraceError
from headrace.structs import ready
from headrace.types import quote_name

PR_SET_PDEATHSIG = 1
PARENT = "HEADRACE_JOB_PARENT"
PATIENCE_S = 24 * 3600.0
"""A repair of years takes as long as it takes; a job's `timeout` says otherwise."""
CHECKED_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Workplace:
    project: Project
    api: Api
    say: Callable[[str], None]
    """How far it is."""


def import_files(work: Workplace, job: Job) -> str:
    patterns = [str(work.project.folder / pattern) for pattern in job.files]
    how = Reading(time=job.time or None)
    body = bring_in(
        ServerBackend(work.api), work.project.data, job.topic, patterns, how, again=False, quiet=True, say=work.say
    )
    if body["rejected"]:
        print(f"rejected rows are dead letters:  headrace dlq list {job.topic}", file=sys.stderr)
    if body["unreadable"] or body["not_sent"]:
        raise HeadraceError(summary(body))
    return summary(body)


def repair(work: Workplace, job: Job) -> str:
    run = follow_job(work.api, work.api.post(f"{view_path(job.view)}/repair", {"job": True}), work.say)
    check_outcome(run)
    done = run["repair"]
    missing = f"; records of {', '.join(done['missing'])} are gone" if done["missing"] else ""
    return f"{done['revised']:,} rows revised, {done['late']:,} late records{missing}"


def check(work: Workplace, job: Job) -> str:
    run = work.api.post(f"{view_path(job.view)}/check", None, rows=CHECKED_ROWS, job="true")
    run = follow_job(work.api, run, work.say)
    check_outcome(run)
    body = run["check"]
    if body["drifted"]:
        raise HeadraceError(f"{body['drifted']} rows of `{job.view}` are not what the log says")
    if nothing_checked(body):
        raise HeadraceError(f"`{job.view}`: {checked_text(body)}")
    return checked_text(body)


def refresh(work: Workplace, job: Job) -> str:
    """A refresh that was under way when this job was last killed is followed, not begun again."""
    name = f"job {job.name}"
    running = [one for one in work.api.get("/v1/deployments")["deployments"] if one["stage"] in RUNNING]
    ours = [one for one in running if one["who"] == name]
    deployment = ours[0] if ours else work.api.post(f"{view_path(job.view)}/refresh", {"who": name})
    while deployment["stage"] in RUNNING:
        if deployment["paused"]:
            raise HeadraceError(
                f"deployment {deployment['id']} is paused", hint=f"headrace deploy resume {deployment['id']}"
            )
        work.say(progress_line(deployment))
        time.sleep(POLL_S)
        deployment = work.api.get(f"/v1/deployments/{deployment['id']}")
    if deployment["stage"] != "switched":
        raise HeadraceError(f"deployment {deployment['id']} is {deployment['stage']}: {deployment['detail']}")
    return f"version {deployment['items'][0]['version']} of {job.view} serves"


def export(work: Workplace, job: Job) -> str:
    if job.topic:
        return export_topic(work.project, job.topic, work.project.folder / job.to, job.format, work.say)
    sql = job.query or f"SELECT * FROM {quote_name(job.view.upper())};"
    return export_query(work.api, sql, work.project.folder, job.to, work.say)


WORK: dict[str, Callable[[Workplace, Job], str]] = {
    "import": import_files,
    "repair": repair,
    "check": check,
    "refresh": refresh,
    "export": export,
}
"""By the kinds of `coordinate.jobs`."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="headrace.cli.job_work", description="The work of one job.")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--url", required=True)
    options = parser.parse_args()
    _die_with_parent()
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=ready(Job))
    try:
        project = load_project(options.project)
        with Api(options.url, own_key(project), PATIENCE_S, trust_own(project)) as api:
            _tell(done=WORK[job.run](Workplace(project, api, lambda text: _tell(progress=text)), job))
    except (HeadraceError, OSError) as error:
        print(error, file=sys.stderr)
        _tell(failed=error.message if isinstance(error, HeadraceError) else str(error))
        return 1
    return 0


def _tell(**said: str) -> None:
    print(json.dumps(said), flush=True)


def _die_with_parent() -> None:
    """A server that is killed takes its jobs along: the next one runs them again, and never beside the old ones."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.environ.get(PARENT) not in (None, str(os.getppid())):
        sys.exit("the server is gone")


if __name__ == "__main__":
    sys.exit(main())
