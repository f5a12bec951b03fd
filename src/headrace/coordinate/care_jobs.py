"""Repairs, checks and explanations that take long: jobs with progress, which can be followed, cancelled and run again.

A repair and a check go on when the server is restarted: what is under way stands in a file. Both may be run again
without harm, and go on where they were: every window that was repaired is written down with its revision.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from headrace.clock import Clock
from headrace.errors import Gone, HeadraceError, NotFound, Overloaded
from headrace.structs import ready
from headrace.types import display_name

MOST_WAITING = 16
MOST_KEPT = 64
FILE = "care-jobs.json"

Kind = Literal["repair", "check", "why"]
State = Literal["waiting", "running", "done", "failed", "cancelled"]
OVER = ("done", "failed", "cancelled")

logger = logging.getLogger("headrace.views")


class Wish(msgspec.Struct, frozen=True):
    """What a job is to do. Two equal ones are one job."""

    kind: Kind
    view: str
    between: tuple[int, int] | None = None
    dry_run: bool = False
    rows: int = 0
    text: str = ""
    """What else tells one from another, such as a row's key."""

    @property
    def goes_on(self) -> bool:
        """Whether it is begun again by a server that finds it under way."""
        return self.kind in ("repair", "check") and not self.dry_run


@dataclass(slots=True)
class CareJob:
    """One job. `work` fills in `done`, `all` and `unit` while it runs, and `result` also if it ends early."""

    id: int
    wish: Wish
    state: State = "waiting"
    done: int = 0
    all: int | None = None
    unit: str = ""
    result: Any = None
    error: HeadraceError | None = None
    started_ms: int = 0
    ended_ms: int | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def progress(self, done: int, all_: int | None) -> bool:
        """Note how far it is. False if it is to stop."""
        self.done, self.all = done, all_
        return not self.cancelled.is_set()


Work = Callable[[CareJob], Any]
"""Does a job, in a thread. What it returns is the job's result."""


class CareJobs:
    """Safe to use from several threads. `submit` runs something in a pool, `work_of` says how a wish is fulfilled."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        submit: Callable[[Callable[[], None]], object],
        work_of: Callable[[Wish], Work],
    ) -> None:
        self._file, self._clock, self._submit, self._work_of = folder / FILE, clock, submit, work_of
        self._lock = threading.Lock()
        self._jobs: dict[int, CareJob] = {}
        self._works: dict[int, Work] = {}
        self._last = 0
        self._closing = False

    def resume(self) -> None:
        """Begin again what was under way when the last server ended."""
        try:
            wishes = msgspec.json.decode(self._file.read_bytes(), type=ready(list[Wish]))
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("jobs that were under way cannot be read from `%s`: %s", self._file, error)
            return
        for wish in wishes:
            try:
                self.start(wish)
            except HeadraceError as error:
                logger.warning("the %s of `%s` is not resumed: %s", wish.kind, display_name(wish.view), error.message)

    def start(self, wish: Wish, work: Work | None = None) -> CareJob:
        """Begin a job; who wishes for what is under way already is told of that."""
        with self._lock:
            under_way = [job for job in self._jobs.values() if job.state not in OVER]
            for job in under_way:
                if job.wish == wish and not job.cancelled.is_set():
                    return job
            if len(under_way) >= MOST_WAITING:
                raise Overloaded(f"{MOST_WAITING} repairs, checks and explanations are under way", retry_after=5.0)
            self._last += 1
            job = CareJob(self._last, wish, started_ms=self._clock.now_ms())
            self._works[job.id] = work or self._work_of(wish)
            self._jobs[job.id] = job
            over = [known for known in self._jobs.values() if known.state in OVER]
            for old in over[: max(0, len(over) - MOST_KEPT)]:
                del self._jobs[old.id]
            self._save()
        self._submit(lambda: self._run(job))
        return job

    def get(self, number: int) -> CareJob:
        with self._lock:
            job = self._jobs.get(number)
            if job is None and 0 < number <= self._last:
                raise Gone(f"job {number} is not kept any more", hint="its result was kept for a while; run it again")
            if job is None:
                raise NotFound(f"there is no job {number}", hint="GET /v1/care lists them; a restart numbers them anew")
            return job

    def jobs(self) -> list[CareJob]:
        """All that are kept, the newest first."""
        with self._lock:
            return sorted(self._jobs.values(), key=lambda job: -job.id)

    def cancel(self, number: int) -> CareJob:
        """Stop a job at the next place where it can be: what was done stays."""
        job = self.get(number)
        job.cancelled.set()
        with self._lock:
            if job.state == "waiting":
                self._end(job, "cancelled")
        return job

    def close(self) -> None:
        """Stop what runs; what goes on is begun again by the next server."""
        with self._lock:
            self._closing = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.cancelled.set()

    def _run(self, job: CareJob) -> None:
        with self._lock:
            if job.state != "waiting" or self._closing:
                return
            job.state = "running"
            work = self._works[job.id]
        try:
            job.result = work(job)
            state: State = "cancelled" if job.cancelled.is_set() else "done"
        except HeadraceError as error:
            job.error, state = error, "cancelled" if job.cancelled.is_set() else "failed"
        except Exception as error:
            logger.exception("the %s of `%s` failed", job.wish.kind, display_name(job.wish.view))
            job.error, state = HeadraceError(f"something went wrong: {error}", hint="see headrace logs"), "failed"
        with self._lock:
            if not self._closing:
                self._end(job, state)

    def _end(self, job: CareJob, state: State) -> None:
        job.state, job.ended_ms = state, self._clock.now_ms()
        self._works.pop(job.id, None)
        self._save()
        job.over.set()

    def _save(self) -> None:
        wishes = [job.wish for job in self._jobs.values() if job.state not in OVER and job.wish.goes_on]
        new = self._file.with_name(f".{self._file.name}.new")
        try:
            if wishes or self._file.exists():
                new.write_bytes(msgspec.json.encode(wishes))
                new.replace(self._file)
        except OSError as error:
            # The job runs all the same; only a restart would not take it up.
            logger.warning("jobs under way cannot be written to `%s`: %s", self._file, error)
