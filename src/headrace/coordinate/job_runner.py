"""Runs a project's jobs: those whose time has come, those that come after one that succeeded, and those asked for.

A job's work is done by a process of its own, so that a large import takes nothing from the server but disk, and a job
that goes wrong takes nothing with it. It runs never twice at once: a run is written to the log before it begins, and
there is one runner, the log's owner. A run that was killed with the server is run once more; every job may be.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from headrace.clock import Clock
from headrace.config import Project
from headrace.coordinate.job_history import UNDER_WAY, JobHistory, JobRun, State, Why, take_over
from headrace.coordinate.job_schedule import Every
from headrace.coordinate.jobs import NO_JOBS, Job, job_files, load_jobs, schedule_of, wanted_jobs
from headrace.errors import ConfigError, Conflict, HeadraceError, NotFound
from headrace.log.base import Log
from headrace.toml_files import Stamp, stamp_files

LOOK_S = 0.5
LONGEST_PAUSE_S = 300.0
SIDE_BY_SIDE = 2
"""Jobs that run at the same time, if none comes after the other."""

logger = logging.getLogger("headrace.jobs")


@dataclass(frozen=True, slots=True)
class Outcome:
    done: bool
    message: str
    log: str = ""


class Work(Protocol):
    """Does what a job says, once. `said` is told how far it is; `stopped` ends it early."""

    def __call__(self, job: Job, said: Callable[[str], None], stopped: threading.Event) -> Outcome: ...


@dataclass(slots=True)
class _Working:
    job: Job
    run: JobRun
    stop: threading.Event
    thread: threading.Thread
    said: str = ""
    cancelled: bool = False


class JobRunner:
    """One thread that looks, from `start` until `close`, and one for each job that runs."""

    def __init__(self, project: Project, log: Log, clock: Clock) -> None:
        self._project, self._clock = project, clock
        self.history = JobHistory(log)
        self.problem: str | None = None
        """What is wrong with files; the jobs of those are the ones that were right last."""
        self._loaded = NO_JOBS
        self._files: Stamp | None = None
        self._seen: dict[str, int] = {}
        self._begun_ms = clock.now_ms()
        self._working: dict[str, _Working] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._work: Work | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-jobs", daemon=True)

    def start(self, work: Work, by_itself: bool = True) -> None:
        """Not by itself: whoever started it calls `look`."""
        take_over(self._project.data, self.history)
        self._work = work
        self._pick_up()
        if by_itself:
            self._thread.start()

    def close(self) -> None:
        """What runs is stopped, and run again by the next."""
        self._stop.set()
        with self._lock:
            working = list(self._working.values())
        for one in working:
            one.stop.set()
        for one in working:
            one.thread.join()
        if self._thread.is_alive():
            self._thread.join()

    def jobs(self) -> list[Job]:
        """As the files are now, each after those it comes after."""
        with self._lock:
            self._load()
            return list(self._loaded.jobs)

    def shown(self) -> list[Job]:
        """And those that still run, though no file has them any more."""
        with self._lock:
            jobs = self.jobs()
            names = {job.name for job in jobs}
            return [*jobs, *(one.job for one in self._working.values() if one.job.name not in names)]

    def job(self, name: str) -> Job:
        for job in self.shown():
            if job.name == name:
                return job
        hint = "headrace run --list lists all"
        wrong = None if self.problem is None else f"perhaps it is in a file that is wrong:\n{self.problem}"
        raise NotFound(f"job `{name[:100]}` does not exist", detail=wrong, hint=hint)

    def progress(self, name: str) -> str:
        """What a job that runs says of itself."""
        with self._lock:
            working = self._working.get(name)
            return working.said if working else ""

    def next_ms(self, job: Job) -> int | None:
        """When it is due by itself; None if that is not a matter of time."""
        with self._lock:
            last = self.history.last(job.name)
            return None if last is not None and last.state in UNDER_WAY else self._due_at(job, last)

    def ask(self, names: Sequence[str]) -> list[JobRun]:
        """Run these now, with all they come after. What is under way already is not begun again."""
        with self._lock:
            jobs = self.jobs()
            if self.problem is not None and not jobs:
                raise ConfigError(self.problem)
            asked = []
            for job in wanted_jobs(jobs, names):
                last = self.history.last(job.name)
                asked.append(last if last is not None and last.state in UNDER_WAY else self._write_new(job, "asked"))
            return asked

    def cancel(self, name: str) -> JobRun:
        with self._lock:
            last = self.history.last(self.job(name).name)
            if last is None or last.state not in UNDER_WAY:
                raise Conflict(f"job `{name}` is not running")
            working = self._working.get(name)
            if working is None:
                return self._write(last, "cancelled", "before it began")
            working.cancelled = True
            working.stop.set()
            return last

    def look(self) -> None:
        """Begin what is due and has room."""
        with self._lock:
            if self._stop.is_set():
                return  # nobody would end what is begun now; and what was stopped is the next one's to run again
            self._load()
            for job in self._loaded.jobs:
                last = self.history.last(job.name)
                if job.name in self._working:
                    continue
                if last is not None and last.state == "running":
                    # Its end could not be written down: the disk was full, say.
                    self._interrupted(last, "what became of it is not known")
                    continue
                queued = last if last is not None and last.state == "queued" else self._due(job, last)
                if queued is not None and len(self._working) < SIDE_BY_SIDE:
                    self._begin(job, queued)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.look()
            except (HeadraceError, OSError) as error:
                logger.warning("jobs could not be looked at: %s", error)
                self._stop.wait(5.0)
            except Exception:
                logger.exception("jobs could not be looked at")
                self._stop.wait(5.0)

    def _load(self) -> None:
        files = stamp_files(job_files(self._project))
        if files == self._files:
            return
        self._files = files
        self._loaded = load_jobs(self._project, self._loaded)
        self.problem = "\n".join(map(str, self._loaded.problems)) or None
        if self.problem is not None:
            logger.warning("jobs: %s", self.problem)

    def _pick_up(self) -> None:
        """Runs of a server that was killed."""
        for run in self.history.under_way():
            if run.state == "running":
                self._interrupted(run, "the server stopped while it ran")

    def _interrupted(self, run: JobRun, message: str) -> None:
        """Once more, unless that was the second time already."""
        self._write(run, "interrupted", message)
        known = next((job for job in self.jobs() if job.name == run.job), None)
        if run.why != "again" and known is not None:
            self._write_new(known, "again")

    def _due(self, job: Job, last: JobRun | None) -> JobRun | None:
        """A new run, if it is time, or if what it comes after has succeeded since."""
        due_at = self._due_at(job, last)
        if due_at is not None:
            return self._write_new(job, "schedule") if due_at <= self._clock.now_ms() else None
        if job.every or job.schedule or not job.after:
            return None
        before = [self.history.last(name) for name in job.after]
        if any(run is None or run.state != "done" for run in before):
            return None
        newest = max(run.place for run in before if run is not None)
        return self._write_new(job, "after") if last is None or newest > last.begun else None

    def _due_at(self, job: Job, last: JobRun | None) -> int | None:
        """A clock that was set back delays nothing for ever: a run that seems to have been in the future does not
        count, the time since which this is known does."""
        schedule = schedule_of(job)
        if schedule is None:
            return None
        now = self._clock.now_ms()
        seen = min(self._seen.setdefault(job.name, now), now)
        self._seen[job.name] = seen
        if last is None:
            return seen if isinstance(schedule, Every) else schedule.after(seen)
        base = last.started_ms if last.started_ms <= now else seen
        if job.missed == "skip":
            base = max(base, min(self._begun_ms, now))
        return schedule.after(base)

    def _begin(self, job: Job, queued: JobRun) -> None:
        before = {name: self.history.last(name) for name in job.after}
        if any(run is not None and run.state in UNDER_WAY for run in before.values()):
            return
        failed = [name for name, run in before.items() if run is None or run.state != "done"]
        if failed:
            self._write(queued, "waiting", _why_waiting(failed[0], before))
            return
        stop = threading.Event()
        run = self._write(msgspec.structs.replace(queued, started_ms=self._clock.now_ms()), "running")
        thread = threading.Thread(target=self._carry_out, args=(job, run, stop), name=f"headrace-job-{job.name}")
        self._working[job.name] = _Working(job, run, stop, thread)
        thread.start()

    def _carry_out(self, job: Job, run: JobRun, stop: threading.Event) -> None:
        try:
            self._try(job, run, stop)
        except Exception as error:
            logger.exception("job `%s`", job.name)
            if not self._stop.is_set():
                self._write(run, "failed", f"{type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._working.pop(job.name, None)

    def _try(self, job: Job, run: JobRun, stop: threading.Event) -> None:
        assert self._work is not None
        for attempt in range(1, job.retries + 2):
            run = msgspec.structs.replace(run, attempts=attempt)
            outcome = self._work(job, lambda text: self._say(job.name, text), stop)
            if stop.is_set() and self._stop.is_set():
                return  # the next server goes on
            if stop.is_set() or outcome.done or attempt > job.retries:
                state: State = "cancelled" if stop.is_set() else "done" if outcome.done else "failed"
                self._write(run, state, outcome.message, outcome.log)
                return
            run = self._write(run, "running", f"{outcome.message}; trying again", outcome.log)
            stop.wait(min(LONGEST_PAUSE_S, 2.0 ** (attempt - 1)))
            if stop.is_set():
                if not self._stop.is_set():
                    self._write(run, "cancelled", outcome.message, outcome.log)
                return

    def _say(self, name: str, text: str) -> None:
        with self._lock:
            if name in self._working:
                self._working[name].said = text[:200]

    def _write_new(self, job: Job, why: Why) -> JobRun:
        last = self.history.last(job.name)
        number = 1 if last is None else last.number + 1
        run = JobRun(job=job.name, number=number, state="queued", why=why, started_ms=self._clock.now_ms())
        self.history.write(run, run.started_ms)
        return run

    def _write(self, run: JobRun, state: State, message: str = "", log: str = "") -> JobRun:
        now = self._clock.now_ms()
        finished = None if state in UNDER_WAY else now
        run = msgspec.structs.replace(run, state=state, finished_ms=finished, message=message[:2000], log=log[-8000:])
        self.history.write(run, now)
        if state not in ("queued", "running"):
            logger.log(logging.INFO if state == "done" else logging.WARNING, "job `%s` %s %s", run.job, state, message)
        return run


def _why_waiting(name: str, before: Mapping[str, JobRun | None]) -> str:
    run = before[name]
    return f"`{name}` has not run yet" if run is None else f"`{name}` {run.state}"
