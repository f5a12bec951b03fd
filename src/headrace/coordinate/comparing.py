"""Both versions of a view at the same records, while events go on arriving.

The version that serves is not held up: its rows are read in one transaction, at a position that is known to be the end
of one of its query's commits, and that commit says which records those are, by an arrival number, or on Kafka by
offsets. The version that was built has to wait: its first queries are bounded there, and when all of its chain rests,
its rows are of the same records.
(docs/decisions: two versions are compared at a commit of the one that serves.)
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headrace.clock import Clock
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.planning import plan_definition
from headrace.errors import HeadraceError
from headrace.log.base import Log
from headrace.process.progress import parse_offsets
from headrace.store.arrivals import behind, has_arrivals
from headrace.store.base import Position, ViewStore
from headrace.store.cuts import Cut, Places, Reading, cut_now, has_reached, later
from headrace.store.cuts import offsets_at as offsets_of
from headrace.store.follow import Followers
from headrace.types import display_name
from headrace.views.compare import summed_columns
from headrace.views.difference import Comparison, compare_spools
from headrace.views.spool import Spool, parts_of, spool_rows
from headrace.views.versions import Deployment, Item

LOOK_S = 0.005
PATIENCE_S = 120.0
REMEMBERED = 10_000

Offsets = tuple[int, ...]


class NotComparable(HeadraceError):
    """There is a reason why these versions cannot be compared at the same records."""


class ComparisonEnded(HeadraceError):
    """The deployment was paused or cancelled, or the process stops."""


def cut_of(log: Log, query: QueryDefinition) -> Cut:
    """What the query has read, by what it last committed."""
    topics = tuple(query.reads.values())
    begun = query.cut if query.layer == "speed" else 0
    found = Reading(log, query.id, query.version, topics, begun, query.starts).cut()
    if found is not None:
        return found
    # An older version said less: of several topics how far the first was read.
    identity = log.last_identity(query.id, query.version)
    known = {topics[0]: parse_offsets(identity.offsets)} if identity is not None and topics else {}
    return 0 if has_arrivals(log) else known


def offsets_at(log: Log, topic: str, cut: Cut) -> Offsets:
    return tuple(offsets_of(log, log.snapshot(), topic, cut).values())


def ends_of(log: Log, topic: str) -> Offsets:
    return tuple(end.end for end in log.snapshot().ends.get(topic, ()))


def lag_of(log: Log, query: QueryDefinition, until: Cut | None = None) -> int:
    """Records that the query has yet to read: of all that is there, or before a cut."""
    cut, now = cut_of(log, query), log.snapshot()
    left = 0
    for topic in query.reads.values():
        read = offsets_of(log, now, topic, cut)
        bounds = {} if until is None else offsets_of(log, now, topic, until)
        for number, end in enumerate(now.ends.get(topic, ())):
            left += max(0, bounds.get(number, end.end) - max(end.start, read[number]))
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
    history: dict[tuple[str, Offsets], Cut] = field(default_factory=dict)
    """What was seen of the queries that serve: where their topic ended, and which records that was for."""

    def compare(self, deployment: Deployment) -> list[Comparison]:
        found = []
        topics = {topic for query in self.deployments.first_queries(deployment) for topic in query.reads.values()}
        try:
            self._bound(deployment, cut_now(self.log, self.log.snapshot(), topics))
            for item in deployment.items:
                version = self.catalog.state.versions.get(item.name, {}).get(item.number)
                if item.before and item.number != item.before and version and version.source.kind == "table":
                    found.append(self._compare(deployment, item))
        finally:
            self._bound(deployment, None)
        return found

    def _compare(self, deployment: Deployment, item: Item) -> Comparison:
        shown = display_name(item.name)
        with self._scratch() as folder:
            for _ in self._looks(f"both versions of `{shown}` to be at one place"):
                self._rest(deployment)
                cut, old = self._serving_rows(deployment, item, folder / "old")
                self._bound(deployment, cut)
                self._rest(deployment)
                view = self.followers.version(item.name, item.number)
                self._until(partial(self._is_filled, view), f"`{shown}` to be filled")
                new = spool_rows(view, folder / "new", len(old.files))
                # A batch that was under way when its query was bounded may have read further.
                if new is not None and self._is_ahead(deployment, cut, self._passed(deployment)):
                    return compare_spools(old, new, (item.before, item.number), cut, self._summed(item))
        raise NotComparable("the new version did not keep still")

    def _serving_rows(self, deployment: Deployment, item: Item, folder: Path) -> tuple[Cut, Spool]:
        """Rows of the version that serves, and the cut that includes exactly the records that made them. It has to be
        one the other version has not passed."""
        view = self.followers.version(item.name, item.before)
        query = self._query(item.name, item.before)
        passed = self._passed(deployment)
        parts = parts_of(view)
        found: list[Cut] = []

        def is_known(position: Position) -> bool:
            # Asked in the transaction that the rows are read in: what is committed meanwhile is not among them.
            self._observe(deployment)
            cut = self._cut_at(deployment, query, view.source.topic, position)
            if cut is None or not self._is_ahead(deployment, cut, passed):
                return False
            found.append(max(cut, passed) if isinstance(cut, int) and isinstance(passed, int) else cut)
            return True

        for _ in self._looks(f"`{display_name(item.name)}` to keep still"):
            self._observe(deployment)
            spooled = spool_rows(view, folder, parts, is_known)
            if spooled is not None:
                return found[-1], spooled
        raise NotComparable("the version that serves did not keep still")

    def _cut_at(self, deployment: Deployment, query: QueryDefinition, topic: str, position: Position) -> Cut | None:
        """Which records at the beginning of the chain rows are made of; None if their position was not seen to be the
        end of a commit."""
        ends = ends_of(self.log, topic)
        committed = self.history.get((topic, tuple(position.offsets.get(number, 0) for number in range(len(ends)))))
        return None if committed is None else self._first_cut(deployment, query, committed)

    def _summed(self, item: Item) -> frozenset[str]:
        """Of either version."""
        queries = [self._query(item.name, number) for number in (item.before, item.number)]
        return frozenset(name for query in queries for name in summed_columns(plan_definition(query, self.catalog)))

    def _passed(self, deployment: Deployment) -> Cut:
        """What the new versions have read already."""
        cuts = [cut_of(self.log, first) for first in self.deployments.first_queries(deployment)]
        if has_arrivals(self.log):
            return max((cut for cut in cuts if isinstance(cut, int)), default=0)
        found: Places = {}
        for cut in cuts:
            found = found if isinstance(cut, int) else later(found, cut)
        return found

    def _is_ahead(self, deployment: Deployment, cut: Cut, passed: Cut) -> bool:
        if isinstance(cut, int) and isinstance(passed, int):
            return cut >= passed or self._nothing_between(deployment, cut, passed)
        known = passed if isinstance(cut, int) or isinstance(passed, int) else {t: passed.get(t, {}) for t in cut}
        return has_reached(cut, known)

    def _first_cut(self, deployment: Deployment, query: QueryDefinition, cut: Cut) -> Cut | None:
        """The records at the beginning of the chain that a commit further down includes; None if that is not known
        (yet), or not the same for all it reads."""
        changed = {item.name: item.before for item in deployment.items if item.number != item.before}
        found: list[Cut | None] = []
        for name, topic in query.reads.items():
            if not changed.get(name):
                found.append(cut if isinstance(cut, int) else {topic: cut[topic]} if topic in cut else None)
                continue
            below = self._query(name, changed[name])
            at = self.history.get((topic, offsets_at(self.log, topic, cut)))
            found.append(None if at is None else self._first_cut(deployment, below, at))
        if not isinstance(cut, int) and 0 < sum(1 for name in query.reads if changed.get(name)) < len(query.reads):
            raise NotComparable(
                f"`{display_name(query.sink)}` reads what is changed and what is not, and on Kafka only the first of a "
                "chain can be stopped at a place"
            )
        return _agreed(found)

    def _observe(self, deployment: Deployment) -> None:
        """Remember where the topics of the chain that serves end, and for which commit."""
        for item in deployment.items:
            version = self.catalog.state.versions.get(item.name, {}).get(item.before)
            if version is None or version.source.query is None or item.number == item.before:
                continue
            query, topic = self._query(item.name, item.before), version.source.topic
            # A log that shows a commit partition by partition has shown all of it once it was at rest; what was the
            # same before and after, was so then.
            cut, ends = cut_of(self.log, query), ends_of(self.log, topic)
            still = self.log.at_rest([topic])
            if still and ends_of(self.log, topic) == ends and cut_of(self.log, query) == cut:
                self.history[topic, ends] = cut
        while len(self.history) > REMEMBERED:
            del self.history[next(iter(self.history))]

    def _nothing_between(self, deployment: Deployment, low: int, high: int) -> bool:
        """Whether the first topics have no records between two arrival numbers: then both are the same place."""
        topics = {topic for query in self.deployments.first_queries(deployment) for topic in query.reads.values()}
        return all(offsets_at(self.log, topic, low) == offsets_at(self.log, topic, high) for topic in topics)

    def _bound(self, deployment: Deployment, until: Cut | None) -> None:
        first = self.deployments.first_queries(deployment)
        self.deployments.bound({query.id: _bound_of(query, until) for query in first})

    def _rest(self, deployment: Deployment) -> None:
        """Until all of the new versions have read what they may."""
        topics = [query.sink_topic for query in self.deployments.queries(deployment)]

        def lagging() -> bool:
            return any(lag_of(self.log, query, query.until) for query in self.deployments.queries(deployment))

        def resting() -> bool:
            # What one query has committed is what the next has yet to read, once all of it is seen.
            return not lagging() and self.log.at_rest(topics) and not lagging()

        self._until(resting, "the new versions to read up to one place")

    def _query(self, name: str, number: int) -> QueryDefinition:
        version = self.catalog.state.versions.get(name, {}).get(number)
        query = self.catalog.query(version.source.query or "") if version else None
        if query is None:
            raise NotComparable(f"nothing writes version {number} of `{display_name(name)}` any more")
        return query

    def _is_filled(self, view: ViewStore) -> bool:
        return self.log.at_rest([view.source.topic]) and not self._is_behind(view)

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
                raise ComparisonEnded("the comparison was ended")
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


def _agreed(cuts: list[Cut | None]) -> Cut | None:
    """One cut, if all say the same of what they both speak of."""
    found: dict[str, Mapping[int, int]] = {}
    for cut in cuts:
        if cut is None:
            return None
        if isinstance(cut, int):
            return cut if all(other == cut for other in cuts) else None
        if any(found.get(topic, places) != places for topic, places in cut.items()):
            return None
        found |= cut
    return found


def _bound_of(query: QueryDefinition, until: Cut | None) -> Cut | None:
    """A place in other topics than a query reads leaves it where it was."""
    if until is None or isinstance(until, int):
        return until
    before = query.until if query.until is not None and not isinstance(query.until, int) else {}
    named = {**before, **until}
    return {topic: named[topic] for topic in query.reads.values() if topic in named}


def sweep_scratch(folder: Path) -> None:
    """What a killed process left."""
    for left in folder.glob("compare-*"):
        shutil.rmtree(left, ignore_errors=True)


def read_by(log: Log, query: QueryDefinition) -> int:
    """How many records the query has read."""
    snapshot, left = log.snapshot(), lag_of(log, query)
    held = sum(end.end - end.start for topic in query.reads.values() for end in snapshot.ends.get(topic, ()))
    return max(0, held - left)
