"""A job's work in a process of its own, which talks to the server like any other client.

The process gets the job on its standard input and says on its standard output, a line of JSON each, how far it is and
how it ended. What else it writes goes to a file, whose end is kept with the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from headrace.config import Project
from headrace.coordinate.child import tail
from headrace.coordinate.job_runner import Outcome
from headrace.coordinate.jobs import Job
from headrace.structs import ready
from headrace.toml_files import seconds_of

MODULE = "headrace.cli.job_work"
LOOK_S = 0.1
END_S = 10.0
LOG_LINES = 30


class Said(msgspec.Struct):
    """A line of the process: `progress` on the way, `done` or `failed` at the end."""

    progress: str | None = None
    done: str | None = None
    failed: str | None = None


class JobProcess:
    """Starts one process for each call."""

    def __init__(self, project: Project, url: str) -> None:
        self._project, self._url = project, url

    def __call__(self, job: Job, said: Callable[[str], None], stopped: threading.Event) -> Outcome:
        log = self._project.data / "jobs" / f"{job.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", MODULE, "--project", str(self._project.folder), "--url", self._url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=os.environ | {"PYTHONUNBUFFERED": "1", "HEADRACE_JOB_PARENT": str(os.getpid())},
                process_group=0,
            )
        try:
            return self._wait(job, process, said, stopped, log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _wait(
        self,
        job: Job,
        process: subprocess.Popen[bytes],
        said: Callable[[str], None],
        stopped: threading.Event,
        log: Path,
    ) -> Outcome:
        assert process.stdin is not None
        assert process.stdout is not None
        ends: list[Said] = []
        reader = threading.Thread(target=_listen, args=(process.stdout, said, ends), name=f"headrace-hear-{job.name}")
        reader.start()
        with suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(job))
            process.stdin.close()
        left = seconds_of(job.timeout) if job.timeout else float("inf")
        while process.poll() is None and left > 0:
            if stopped.wait(LOOK_S):
                break
            left -= LOOK_S
        if process.poll() is None:
            _end(process)
        reader.join()
        process.stdout.close()
        text = "\n".join(tail(log, LOG_LINES))
        if stopped.is_set():
            return Outcome(False, "it was stopped", text)
        if left <= 0:
            return Outcome(False, f"it took longer than {job.timeout}", text)
        if ends and ends[-1].done is not None and process.returncode == 0:
            return Outcome(True, ends[-1].done, text)
        failed = ends[-1].failed if ends else None
        return Outcome(False, failed or f"its process ended with {process.returncode}", text)


def _listen(lines: IO[bytes], said: Callable[[str], None], ends: list[Said]) -> None:
    for line in lines:
        try:
            heard = msgspec.json.decode(line, type=ready(Said))
        except msgspec.DecodeError:
            continue  # something else that was printed
        if heard.progress is not None:
            said(heard.progress)
        else:
            ends.append(heard)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
