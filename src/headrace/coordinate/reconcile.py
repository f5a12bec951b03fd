"""What the catalog wants against what the runner runs. Nobody tells the engine anything: it looks, and makes it so."""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from headrace.clock import Clock
from headrace.coordinate.base import QueryDefinition, is_question
from headrace.coordinate.catalog import Catalog, query_number
from headrace.coordinate.planning import checkpoint_name, layer_spec, query_spec, question_spec
from headrace.errors import Disconnected, HeadraceError, LogError, NotRunning
from headrace.process.base import JobSpec, LayerSpec, PlanSpec, QueryError, QueryRunner, QueryStatus

logger = logging.getLogger("headrace.engine")

MOST_ANSWERED = 1_000_001
"""Rows of a question's answer: one more than anybody is given, to know whether there are more."""


class Answering(Protocol):
    """Who answers questions: `process.ask.jobs.Jobs`."""

    def start(self, spec: JobSpec | PlanSpec | LayerSpec) -> None: ...

    def pause(self, spec: LayerSpec) -> None: ...

    def throttle(self, query_id: str, rows_per_second: int) -> None: ...

    def forget(self, query_id: str) -> None: ...

    def statuses(self) -> list[QueryStatus]: ...


class Reconciler:
    """One thread calls `reconcile`; any may ask for `statuses`."""

    def __init__(
        self, catalog: Catalog, runner: QueryRunner, checkpoints: Path, clock: Clock, jobs: Answering | None = None
    ) -> None:
        self._jobs = jobs
        self._asked: dict[str, _How] = {}
        self._catalog = catalog
        self._runner = runner
        self._checkpoints = checkpoints
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, QueryDefinition] = {}
        """What the runner was told, as it was when it was told."""
        self._refused: dict[str, QueryStatus] = {}
        """Queries that could not even be planned."""
        self.unfinished = False
        """Whether something is left to do, though the catalog does not change: the log was away for it."""
        self.reconciled = 0
        """How many of the catalog's events everything runs by."""

    def reconcile(self) -> bool:
        """Start what is missing, stop what is not wanted, forget what is gone. True if anything was done."""
        self.unfinished = False
        events = self._catalog.state.events
        wanted = {query.id: query for query in self._catalog.queries() if not _ends(query)}
        done = self._reconcile_jobs()
        for query_id, known in list(self._known.items()):
            query = wanted.get(query_id)
            if query is None:
                self._forget(known)
                done = True
            elif query.wanted == "stopped" and known.wanted == "running":
                self._stop(query)
                done = True
            elif known.wanted == "running" and self._is_only_bounded(query, known):
                self._remember(query)
                done = True
            elif _runs_differently(query, known) and known.wanted == "running":
                # CREATE OR REPLACE, or another pace: it goes on from where it was, as another one.
                self._stop(replace(query, wanted="stopped"))
                done = True
        for query in wanted.values():
            known_query = self._known.get(query.id)
            if query.wanted == "running" and (known_query is None or known_query.wanted == "stopped"):
                self._start(query)
                done = True
        self.reconciled = events
        return done

    def _reconcile_jobs(self) -> bool:
        """A question that is dropped, or not wanted for now, is cancelled. A batch layer that is not wanted for now
        rests."""
        if self._jobs is None:
            return False
        wanted = [q for q in self._catalog.queries() if _ends(q) and (q.wanted == "running" or q.layer == "batch")]
        asked = {query.id: query for query in wanted}
        gone = [query_id for query_id in self._asked if query_id not in asked]
        for query_id in gone:
            del self._asked[query_id]
            self._jobs.forget(query_id)
            with self._lock:
                self._refused.pop(query_id, None)
        changed = [query for query_id, query in asked.items() if self._asked.get(query_id) != _how(query)]
        for query in changed:
            self._reconcile_job(self._jobs, query)
        return bool(gone or changed)

    def _reconcile_job(self, jobs: Answering, query: QueryDefinition) -> None:
        before, self._asked[query.id] = self._asked.get(query.id), _how(query)
        if before is not None and before.wanted == query.wanted:
            jobs.throttle(query.id, query.rows_per_second)
            return
        try:
            spec = self._job_spec(query)
            if isinstance(spec, LayerSpec) and query.wanted == "stopped":
                jobs.pause(spec)
            else:
                jobs.start(spec)
        except HeadraceError as error:
            if _is_away(error):
                self._asked.pop(query.id)
                self._try_later(query, error)
            else:
                self._refuse(query, error)

    def _job_spec(self, query: QueryDefinition) -> JobSpec | PlanSpec | LayerSpec:
        if query.layer == "batch":
            return layer_spec(query, self._catalog, self._catalog.log, self._checkpoints)
        return question_spec(query, self._catalog, MOST_ANSWERED)

    def statuses(self) -> list[QueryStatus]:
        with self._lock:
            refused = list(self._refused.values())
            stopped = {query.id for query in self._known.values() if query.wanted == "stopped"}
        found = self._runner.statuses() + (self._jobs.statuses() if self._jobs is not None else [])
        running = {status.id for status in found}
        return found + [s for s in refused if s.id not in running and s.id not in stopped]

    def _start(self, query: QueryDefinition) -> None:
        logger.info("starting %s", query.id)
        try:
            self._runner.start(query_spec(query, self._catalog, self._checkpoints))
        except HeadraceError as error:
            if _is_away(error):
                self._try_later(query, error)
                return
            logger.error("%s cannot be started: %s", query.id, error)
            self._refuse(query, error)
        else:
            with self._lock:
                self._refused.pop(query.id, None)
        self._remember(query)

    def _is_only_bounded(self, query: QueryDefinition, known: QueryDefinition) -> bool:
        """Whether nothing but its bound is another one, and it keeps to that while it runs."""
        bounded = replace(known, until=query.until)
        if query.until == known.until or _runs_differently(query, bounded) or query.id in self._refused:
            return False
        return self._runner.bound(query.id, query.until)

    def _stop(self, query: QueryDefinition) -> None:
        logger.info("stopping %s", query.id)
        if query.id not in self._refused:
            self._runner.stop(query.id)
        self._remember(query)

    def _forget(self, query: QueryDefinition) -> None:
        logger.info("forgetting %s", query.id)
        with self._lock:
            refused = self._refused.pop(query.id, None)
            del self._known[query.id]
        if refused is None:
            self._runner.forget(query.id)
        shutil.rmtree(self._checkpoints / checkpoint_name(query), ignore_errors=True)

    def _remember(self, query: QueryDefinition) -> None:
        with self._lock:
            self._known[query.id] = replace(query)

    def _try_later(self, query: QueryDefinition, error: HeadraceError) -> None:
        logger.warning("%s is started when the log is back: %s", query.id, error)
        self.unfinished = True

    def _refuse(self, query: QueryDefinition, error: HeadraceError) -> None:
        now = self._clock.now_ms()
        detail = "\n".join(part for part in (error.detail, error.hint) if part) or None
        failed = QueryStatus(query.id, "failed", last_error=QueryError(error.message, now, detail), updated_ms=now)
        with self._lock:
            self._refused[query.id] = failed


def _is_away(error: HeadraceError) -> bool:
    """Whether it is only that the log does not answer: those that say what is wrong with it are kinds of their own."""
    return isinstance(error, NotRunning | Disconnected) or type(error) is LogError


class _How(NamedTuple):
    """How a job is to go on."""

    wanted: str
    rows_per_second: int


def _how(query: QueryDefinition) -> _How:
    return _How(query.wanted, query.rows_per_second)


def _ends(query: QueryDefinition) -> bool:
    return query.layer == "batch" or is_question(query.id)


def _runs_differently(query: QueryDefinition, known: QueryDefinition) -> bool:
    def how(query: QueryDefinition) -> tuple[object, ...]:
        topics = query.sink_topic, tuple(sorted(query.reads.items()))
        return query.statement, query.functions, query.rows_per_second, query.until, topics

    return how(query) != how(known)


def sweep_checkpoints(catalog: Catalog, folder: Path) -> None:
    """Remove checkpoints of queries that were dropped while nobody was looking. Only of those the catalog has known: a
    checkpoint removed by mistake would cost a query its life."""
    if not folder.is_dir():
        return
    alive = {checkpoint_name(query) for query in catalog.queries()}
    newest = catalog.state.last_query_number
    for checkpoint in folder.iterdir():
        query_id, _, version = checkpoint.name.rpartition("-v")
        if checkpoint.name not in alive and version.isdigit() and 0 < query_number(query_id) <= newest:
            logger.info("removing the checkpoint of a query that is gone: %s", checkpoint.name)
            shutil.rmtree(checkpoint, ignore_errors=True)
