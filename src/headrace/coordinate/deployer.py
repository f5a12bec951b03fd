"""Takes deployments from stage to stage, built, compared, switched; and lets go of what was kept long enough.

It only looks and acts on what it finds, so it does not matter who was killed when: the next look goes on from there.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headrace.clock import Clock
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.carrying import carry_repairs
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.comparing import Comparer, NotComparable, cut_of, lag_of, read_by, sweep_scratch
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.events import QueryPaced
from headrace.coordinate.refreshing import KEPT_MS, due_refreshes, is_refresh, refreshed_versions
from headrace.coordinate.status import EngineStatus
from headrace.errors import HeadraceError, NotFound, QueryFailed
from headrace.log.base import Log
from headrace.store.cuts import has_reached
from headrace.store.follow import Followers
from headrace.store.revisions import Revisions
from headrace.views.difference import Comparison
from headrace.views.versions import Deployment

LOOK_S = 0.1
SWEEP_S = 10.0
PATIENCE_MS = 30_000
CLOSE = 20_000
"""Records behind the end at which a build counts as caught up; what follows is a matter of seconds."""

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
        self._revisions = Revisions(around.log)
        self._stop = threading.Event()
        self._swept = 0.0
        self._untold: set[str] = set()
        """Views that could not be refreshed, and that this was said of."""
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
            try:
                self.look()
            except Exception:
                logger.exception("deployments could not be looked at")
                self._stop.wait(1.0)

    def look(self) -> None:
        """One step of each deployment that is not over."""
        for deployment in self._around.catalog.deployments():
            if not deployment.over and not deployment.paused:
                self._advance(deployment)
        if self._around.clock.monotonic() >= self._swept + SWEEP_S:
            self._swept = self._around.clock.monotonic()
            self._let_go()
            self._refresh()

    def _advance(self, deployment: Deployment) -> None:
        if failed := self._failure(deployment):
            # Nobody is to look at what a refresh could not do; the next one begins anew.
            dropped = self._deployments.dropped(deployment.id) if is_refresh(deployment) else []
            self._deployments.advance(deployment, *dropped, stage="failed", detail=failed)
            return
        if deployment.stage == "building":
            self._deployments.begin_speed(deployment)
        match deployment.stage:
            case "building" if self._caught_up(deployment):
                self._built(deployment)
            case "comparing":
                self._compare(deployment)
            case "switching" if self._caught_up(deployment) and self._abreast(deployment):
                self._deployments.switch(deployment)
                logger.info("deployment %d is switched", deployment.id)

    def _failure(self, deployment: Deployment) -> str | None:
        for query in self._deployments.queries(deployment):
            status = self._around.engine.status(query.id)
            if status is not None and status.state == "failed":
                reason = status.last_error.message if status.last_error else "no reason given"
                return f"{query.id}: {reason}"
        return None

    def _caught_up(self, deployment: Deployment) -> bool:
        queries = self._deployments.queries(deployment)
        self._unbound(queries)
        if any(not self._has_begun(query) or lag_of(self._around.log, query) > CLOSE for query in queries):
            return False
        return all(self._filled(query) for query in queries)

    def _unbound(self, queries: list[QueryDefinition]) -> None:
        """Only a comparison holds a build back; one that was cut short may have left it so."""
        left = [QueryPaced(query.id, query.rows_per_second) for query in queries if query.until is not None]
        if left:
            self._around.catalog.append(left)

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
        rows = sum(read_by(self._around.log, query) for query in self._deployments.queries(deployment))
        took = max(1, self._around.clock.now_ms() - deployment.started_ms)
        stage = "comparing" if _has_before(deployment) and not is_refresh(deployment) else "switching"
        if stage == "comparing":
            around = self._around
            carry_repairs(around.log, around.catalog, around.followers, around.clock, self._revisions, deployment)
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
            lambda: self._ended(deployment.id),
        )
        try:
            comparisons = comparer.compare(deployment)
            stage, detail = decide(self._deployments.get(deployment.id), comparisons)
        except NotComparable as error:
            comparisons = []
            approved = self._deployments.get(deployment.id).approved
            stage, detail = ("switching" if approved else "waiting"), f"not compared: {error.message}"
        except QueryFailed:
            return  # paused, cancelled or stopping: the next look sees what it is
        found = [msgspec.to_builtins(comparison) for comparison in comparisons]
        self._deployments.advance(deployment, stage=stage, detail=detail, comparisons=found)

    def _ended(self, number: int) -> bool:
        deployment = self._deployments.get(number)
        return self._stop.is_set() or deployment.stage != "comparing" or deployment.paused

    def _let_go(self) -> None:
        """Versions that were kept long enough."""
        old = self._around.clock.now_ms() - self._around.keep_ms
        due = [v for v in self._around.catalog.beside() if v.state == "retired" and v.since_ms <= old]
        crossed = self._around.clock.now_ms() - KEPT_MS
        due += [v for v in refreshed_versions(self._around.catalog) if v.since_ms <= crossed and v not in due]
        if due:
            try:
                self._deployments.drop_versions(due)
            except HeadraceError as error:
                logger.warning("versions that were kept long enough cannot be removed: %s", error)

    def _refresh(self) -> None:
        """Batch layers whose time has come, one after the other."""
        if any(not deployment.over for deployment in self._around.catalog.deployments()):
            return
        for name in due_refreshes(self._around.catalog, self._around.clock.now_ms())[:1]:
            try:
                self._deployments.refresh(name, "schedule")
                self._untold.discard(name)
            except HeadraceError as error:
                if name not in self._untold:
                    logger.warning("view `%s` cannot be refreshed: %s", name, error)
                self._untold.add(name)

    def _abreast(self, deployment: Deployment) -> bool:
        """A refresh takes over once it shows no less than the version before; under traffic that never ends, soon."""
        if not is_refresh(deployment) or self._around.clock.now_ms() - deployment.changed_ms > PATIENCE_MS:
            return True
        around, [item] = self._around, deployment.items
        old, new = (around.catalog.state.versions.get(item.name, {}).get(n) for n in (item.before, item.number))
        queries = [around.catalog.query(version.source.query or "") if version else None for version in (old, new)]
        cuts = [cut_of(around.log, query) if query else 0 for query in queries]
        return has_reached(cuts[1], cuts[0]) and around.followers.lag(item.name, item.number) == 0


def decide(deployment: Deployment, comparisons: list[Comparison]) -> tuple[str, str]:
    """The stage after a comparison, and why."""
    worst = max(comparisons, key=lambda comparison: comparison.share, default=None)
    if deployment.approved or worst is None:
        return "switching", ""
    found = f"{worst.different:,} of {worst.same + worst.different:,} rows of `{worst.view}` differ ({worst.share:.2%})"
    if deployment.max_changed is not None:
        if worst.share <= deployment.max_changed:
            return "switching", ""
        return "waiting", f"{found}, and {deployment.max_changed:.2%} may"
    return ("switching", "") if not worst.different else ("waiting", f"{found}: somebody has to approve")


def _has_before(deployment: Deployment) -> bool:
    return any(item.before and item.number and item.number != item.before for item in deployment.items)
