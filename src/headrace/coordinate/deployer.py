"""Takes deployments from stage to stage, built, compared, switched; and lets go of what was kept long enough.

It only looks and acts on what it finds, so it does not matter who was killed when: the next look goes on from there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from headrace.clock import Clock
from headrace.coordinate.abreast import is_abreast
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.carrying import Carrier
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.chains import Chain
from headrace.coordinate.comparing import Comparer, ComparisonEnded, sweep_scratch
from headrace.coordinate.deciding import decide, removed_columns
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.how_far import lag_of, read_by
from headrace.coordinate.rebuilding import rebuilt_versions
from headrace.coordinate.refreshing import (
    KEPT_MS,
    due_refreshes,
    is_refresh,
    refreshed_versions,
    waits_for_somebody,
)
from headrace.coordinate.status import EngineStatus
from headrace.errors import HeadraceError, NotFound
from headrace.log.base import Log
from headrace.store.follow import Followers
from headrace.store.revisions import Revisions
from headrace.views.difference import Comparison
from headrace.views.versions import Deployment, Version

LOOK_S = 0.1
SWEEP_S = 10.0
PATIENCE_MS = 30_000
CLOSE = 20_000
"""Records behind the end at which a build counts as caught up; what follows is a matter of seconds. It serves once it
is abreast of the version before."""

logger = logging.getLogger("headrace.deploy")


@dataclass(frozen=True, slots=True)
class Surroundings:
    log: Log
    catalog: Catalog
    engine: EngineStatus
    followers: Followers
    clock: Clock
    scratch: Path
    keep_ms: int


class Deployer:
    """One thread, from `start` until `close`."""

    def __init__(self, deployments: Deployments, around: Surroundings) -> None:
        self._deployments, self._around = deployments, around
        revisions = Revisions(around.log)
        self._carrier = Carrier(around.log, around.catalog, around.followers, around.clock, revisions)
        deployments.before_rollback = self._carrier.carry_back
        self._stop = threading.Event()
        self._swept = 0.0
        self._started = around.clock.now_ms(), around.clock.monotonic()
        self._told: dict[str, str] = {}
        """What could not be done, and what was said of it."""
        self._untold: set[str] = set()
        """Views that could not be refreshed, and that this was said of."""
        self.swept: dict[str, Callable[[], None]] = {}
        """What else is to be looked after now and then, by what it is."""
        self._thread = threading.Thread(target=self._run, name="headrace-deployer", daemon=True)

    def start(self) -> None:
        sweep_scratch(self._around.scratch)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            if not self.look():
                self._stop.wait(1.0)

    def look(self) -> bool:
        """One step of each deployment that is not over; one that cannot be taken leaves the others theirs. False if
        there was such a one."""
        steps: dict[str, Callable[[], None]] = {
            f"deployment {deployment.id}": partial(self._advance, deployment)
            for deployment in self._around.catalog.deployments()
            if not deployment.over and not deployment.paused
        }
        if self._around.clock.monotonic() >= self._swept + SWEEP_S:
            self._swept = self._around.clock.monotonic()
            steps |= {"what was kept": self._let_go, "what was held": self._deployments.unbound}
            steps |= {"refreshes": self._refresh, **self.swept}
        failed = [what for what, step in steps.items() if not self._tried(what, step)]
        return not failed

    def _tried(self, what: str, step: Callable[[], None]) -> bool:
        try:
            step()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if self._told.get(what) != text:
                logger.exception("%s cannot be looked after", what)
            self._told[what] = text
            return False
        self._told.pop(what, None)
        return True

    def _advance(self, deployment: Deployment) -> None:
        if failed := self._failure(deployment):
            self._deployments.fail(deployment, failed)
            return
        if deployment.stage == "building":
            self._deployments.begin_speed(deployment)
        match deployment.stage:
            case "building" if self._caught_up(deployment):
                self._built(deployment)
            case "comparing":
                self._compare(deployment)
            case "switching" if self._caught_up(deployment) and self._is_ready(deployment):
                done = self._deployments.switch(deployment)
                if done.over:
                    said = f"{done.stage}: {done.detail}" if done.detail else done.stage
                    logger.info("deployment %d is %s", done.id, said)

    def _failure(self, deployment: Deployment) -> str | None:
        failed = {status.id: status for status in self._around.engine.all() if status.state == "failed"}
        for query in self._deployments.queries(deployment) if failed else ():
            if query.id in failed:
                error = failed[query.id].last_error
                return f"{query.id}: {error.message if error else 'no reason given'}"
        return None

    def _caught_up(self, deployment: Deployment) -> bool:
        queries = self._deployments.queries(deployment)
        self._unbound(queries)
        if any(not self._has_begun(query) or lag_of(self._around.log, query) > CLOSE for query in queries):
            return False
        return all(self._filled(query) for query in queries)

    def _unbound(self, queries: list[QueryDefinition]) -> None:
        """Only a comparison holds a build back; one that was cut short may have left it so."""
        self._deployments.bound({query.id: None for query in queries if query.until is not None})

    def _has_begun(self, query: QueryDefinition) -> bool:
        """A query that has nothing to read commits nothing."""
        log = self._around.log
        return log.last_identity(query.id, query.version) is not None or lag_of(log, query) == 0

    def _filled(self, query: QueryDefinition) -> bool:
        version = self._around.catalog.version_of(query)
        if version is None or version.source.kind != "table":
            return True
        try:
            return self._around.followers.lag(version.name, version.number) <= CLOSE
        except NotFound:
            return False  # not opened yet

    def _built(self, deployment: Deployment) -> None:
        rows = sum(read_by(self._around.log, query) for query in self._deployments.building(deployment))
        took = max(1, self._around.clock.now_ms() - deployment.started_ms)
        compared = _has_before(deployment) and not is_refresh(deployment) and not deployment.again
        stage = "comparing" if compared else "switching"
        if stage == "comparing":
            self._carrier.carry(deployment)
        self._deployments.advance(deployment, stage=stage, rows_read=rows, build_ms=took)

    def _compare(self, deployment: Deployment) -> None:
        around = self._around
        comparer = Comparer(
            around.log,
            around.catalog,
            self._deployments,
            around.followers,
            around.clock,
            around.scratch,
            lambda: self._ended(deployment),
        )
        try:
            chain = Chain(tuple(deployment.items), partial(self._deployments.queries, deployment))
            found = comparer.compare(chain)
        except ComparisonEnded:
            return  # paused, cancelled, failed or stopping: the next look sees what it is
        removed = removed_columns(around.catalog, deployment)

        def conclusion(now: Deployment) -> dict[str, Any]:
            stage, detail = decide(now, found, removed)
            comparisons = [msgspec.to_builtins(one) for one in found if isinstance(one, Comparison)]
            return {"stage": stage, "detail": detail, "comparisons": comparisons}

        self._deployments.conclude(deployment, conclusion)

    def _ended(self, compared: Deployment) -> bool:
        now = self._deployments.get(compared.id)
        over = self._stop.is_set() or now.stage != "comparing" or now.paused
        return over or self._failure(compared) is not None

    def _let_go(self) -> None:
        """Versions that were kept long enough, and those of failed deployments once there is another."""
        now, catalog = self._steady_ms(), self._around.catalog
        old, crossed = now - self._around.keep_ms, now - KEPT_MS
        newest = max((one.id for one in catalog.deployments() if not is_refresh(one)), default=0)

        def is_due(version: Version) -> bool:
            followed = version.state == "failed" and version.deployment < newest
            return followed or (version.state in ("retired", "failed") and version.since_ms <= old)

        due = [version for version in catalog.beside() if is_due(version)]
        let_go = refreshed_versions(catalog) + rebuilt_versions(catalog)
        due += [v for v in let_go if v.since_ms <= crossed and v not in due]
        if due:
            try:
                self._deployments.drop_versions(due)
            except HeadraceError as error:
                logger.warning("versions that were kept long enough cannot be removed: %s", error)

    def _steady_ms(self) -> int:
        """The time, but no later than it can be since this process began: a clock that is set forward must not take
        the way back away at once."""
        clock, (began_ms, began) = self._around.clock, self._started
        return min(clock.now_ms(), began_ms + int((clock.monotonic() - began) * 1000))

    def _refresh(self) -> None:
        """Batch layers whose time has come, one after the other."""
        catalog = self._around.catalog
        if any(not one.over and not waits_for_somebody(one) for one in catalog.deployments()):
            return
        for name in due_refreshes(catalog, self._around.clock.now_ms()):
            try:
                self._deployments.refresh(name, "schedule")
            except HeadraceError as error:
                if name not in self._untold:
                    logger.warning("view `%s` cannot be refreshed: %s", name, error)
                self._untold.add(name)
            else:
                self._untold.discard(name)
                return

    def _is_ready(self, deployment: Deployment) -> bool:
        """A version takes over once it shows no less than the one before, with what was repaired there meanwhile; under
        traffic that never ends, soon."""
        around = self._around
        patient = around.clock.now_ms() - deployment.changed_ms <= PATIENCE_MS
        if patient and not is_abreast(around.log, around.catalog, around.followers, deployment):
            return False
        # What is written only now is seen by the next look.
        return not self._carrier.carry(deployment) or not patient


def _has_before(deployment: Deployment) -> bool:
    return any(item.before and item.number and item.number != item.before for item in deployment.items)
