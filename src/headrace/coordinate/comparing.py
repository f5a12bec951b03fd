"""Both versions of a view at the same records, while events go on arriving.

The version that serves is not held up: its rows are read at a moment when they are exactly what its query last wrote,
and that query's own commit says which records those are, by an arrival number. The version that was built has to wait:
its first queries are bounded at that number, and when all of its chain rests, its rows are of the same records.
(docs/decisions: two versions are compared at a commit of the one that serves.)
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.clock import Clock
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.events import QueryPaced
from headrace.errors import HeadraceError, QueryFailed
from headrace.log.base import Log
from headrace.process.progress import lag, parse_arrival, parse_offsets
from headrace.store.arrivals import behind, has_arrivals
from headrace.store.base import ViewStore
from headrace.store.follow import Followers
from headrace.types import display_name
from headrace.views.difference import Comparison, Spool, compare_spools, spool_rows
from headrace.views.versions import Deployment, Item

LOOK_S = 0.005
PATIENCE_S = 120.0

Offsets = tuple[int, ...]


class NotComparable(HeadraceError):
    """There is a reason why these versions cannot be compared at the same records."""


def cut_of(log: Log, query: QueryDefinition) -> int:
    """The arrival number below which the query has read everything, by what it last committed."""
    identity = log.last_identity(query.id, query.version)
    if identity is None:
        return query.cut if query.layer == "speed" else 0
    return parse_arrival(identity.offsets) or 0


def offsets_at(log: Log, topic: str, arrival: int) -> Offsets:
    parts = len(log.snapshot().ends.get(topic, ()))
    return tuple(log.offset_at_arrival(topic, number, arrival) for number in range(parts))


def ends_of(log: Log, topic: str) -> Offsets:
    return tuple(end.end for end in log.snapshot().ends.get(topic, ()))


def lag_of(log: Log, query: QueryDefinition, until: int | None = None) -> int:
    """Records that the query has yet to read: of all that is there, or below an arrival number."""
    if not has_arrivals(log):
        identity = log.last_identity(query.id, query.version)
        read = parse_offsets(identity.offsets) if identity is not None else {}
        return lag(log.snapshot(), next(iter(query.reads.values())), read)
    cut = cut_of(log, query)
    left = 0
    for topic in query.reads.values():
        ends = ends_of(log, topic) if until is None else offsets_at(log, topic, until)
        left += sum(max(0, end - at) for end, at in zip(ends, offsets_at(log, topic, cut), strict=True))
    return left


@dataclass(slots=True)
class Comparer:
    """Compares the views of one deployment, one after the other. `stopped` ends it early."""

    log: Log
    catalog: Catalog
    deployments: Deployments
    followers: Followers
    clock: Clock
    folder: Path
    stopped: Callable[[], bool]
    history: dict[tuple[str, Offsets], int] = field(default_factory=dict)
    """What was seen of the queries that serve: where their topic ended, and which records that was for."""

    def compare(self, deployment: Deployment) -> list[Comparison]:
        if not has_arrivals(self.log):
            raise NotComparable(
                "this log has no arrival numbers, so the versions cannot be stopped at the same records"
            )
        found = []
        try:
            self._bound(deployment, self.log.snapshot().arrival)
            for item in deployment.items:
                version = self.catalog.state.versions.get(item.name, {}).get(item.number)
                if item.before and item.number != item.before and version and version.source.kind == "table":
                    found.append(self._compare(deployment, item))
        finally:
            self._bound(deployment, None)
        return found

    def _compare(self, deployment: Deployment, item: Item) -> Comparison:
        self._rest(deployment)
        with self._scratch() as folder:
            cut, old = self._serving_rows(deployment, item, folder / "old")
            self._bound(deployment, cut)
            self._rest(deployment)
            view = self.followers.version(item.name, item.number)
            self._until(lambda: not self._is_behind(view), f"`{display_name(item.name)}` to be filled")
            new = spool_rows(view, folder / "new")
            return compare_spools(old, new, (item.before, item.number), cut)

    def _serving_rows(self, deployment: Deployment, item: Item, folder: Path) -> tuple[int, Spool]:
        """Rows of the version that serves, and the arrival number below which exactly the records are that made them.
        It has to be one the other version has not passed."""
        view = self.followers.version(item.name, item.before)
        query = self._query(item.name, item.before)
        floor = max((cut_of(self.log, first) for first in self.deployments.first_queries(deployment)), default=0)
        for _ in self._looks(f"`{display_name(item.name)}` to keep still"):
            self._observe(deployment)
            committed = cut_of(self.log, query)
            if self._is_behind(view):
                continue
            cut = self._first_cut(deployment, query, committed)
            if cut is None or (cut < floor and not self._nothing_between(deployment, cut, floor)):
                continue
            spooled = spool_rows(view, folder)
            # Rows are read in one transaction: if nothing was written since, they are those of that commit.
            ends = ends_of(self.log, view.source.topic)
            position = tuple(spooled.position.offsets.get(number, 0) for number in range(len(ends)))
            if cut_of(self.log, query) == committed and position == ends:
                return max(cut, floor), spooled
        raise NotComparable("the version that serves did not keep still")

    def _first_cut(self, deployment: Deployment, query: QueryDefinition, cut: int) -> int | None:
        """The records at the beginning of the chain that a commit further down includes; None if that is not known
        (yet), or not the same for all it reads."""
        changed = {item.name: item.before for item in deployment.items if item.number != item.before}
        found: set[int | None] = set()
        for name, topic in query.reads.items():
            if not changed.get(name):
                found.add(cut)
                continue
            below = self._query(name, changed[name])
            at = self.history.get((topic, offsets_at(self.log, topic, cut)))
            found.add(None if at is None else self._first_cut(deployment, below, at))
        return found.pop() if len(found) == 1 else None

    def _observe(self, deployment: Deployment) -> None:
        """Remember where the topics of the chain that serves end, and for which commit."""
        for item in deployment.items:
            version = self.catalog.state.versions.get(item.name, {}).get(item.before)
            if version is None or version.source.query is None or item.number == item.before:
                continue
            query = self._query(item.name, item.before)
            cut, ends = cut_of(self.log, query), ends_of(self.log, version.source.topic)
            if cut_of(self.log, query) == cut:
                self.history[version.source.topic, ends] = cut

    def _nothing_between(self, deployment: Deployment, low: int, high: int) -> bool:
        """Whether the first topics have no records between two arrival numbers: then both are the same place."""
        topics = {topic for query in self.deployments.first_queries(deployment) for topic in query.reads.values()}
        return all(offsets_at(self.log, topic, low) == offsets_at(self.log, topic, high) for topic in topics)

    def _bound(self, deployment: Deployment, until: int | None) -> None:
        paced = [
            QueryPaced(query.id, query.rows_per_second, until)
            for query in self.deployments.first_queries(deployment)
            if query.until != until
        ]
        if paced:
            self.catalog.append(paced)

    def _rest(self, deployment: Deployment) -> None:
        """Until all of the new versions have read what they may."""

        def resting() -> bool:
            return not any(lag_of(self.log, query, query.until) for query in self.deployments.queries(deployment))

        self._until(resting, "the new versions to read up to one place")

    def _query(self, name: str, number: int) -> QueryDefinition:
        version = self.catalog.state.versions.get(name, {}).get(number)
        query = self.catalog.query(version.source.query or "") if version else None
        if query is None:
            raise NotComparable(f"nothing writes version {number} of `{display_name(name)}` any more")
        return query

    def _is_behind(self, view: ViewStore) -> bool:
        return behind(self.log.snapshot(), view.source.topic, view.position()) > 0

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in self._looks(what):
            if condition():
                return

    def _looks(self, what: str) -> Iterator[None]:
        deadline, pause = self.clock.monotonic() + PATIENCE_S, threading.Event()
        while True:
            if self.stopped():
                raise QueryFailed("the comparison was ended")
            yield
            if self.clock.monotonic() > deadline:
                raise NotComparable(f"waited {PATIENCE_S:.0f} s for {what}")
            pause.wait(LOOK_S)

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="compare-", dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def sweep_scratch(folder: Path) -> None:
    """What a killed process left."""
    for left in folder.glob("compare-*"):
        shutil.rmtree(left, ignore_errors=True)


def read_by(log: Log, query: QueryDefinition) -> int:
    """How many records the query has read."""
    snapshot, left = log.snapshot(), lag_of(log, query)
    held = sum(end.end - end.start for topic in query.reads.values() for end in snapshot.ends.get(topic, ()))
    return max(0, held - left)
