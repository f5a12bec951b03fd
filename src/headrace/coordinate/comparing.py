"""Both versions of a view at the same records, while events go on arriving.

The version that serves is not held up: its rows are read in one transaction, at a position that is known to be the end
of one of its query's commits, and that commit says which records those are, by an arrival number, or on Kafka by
offsets. The version that was built has to wait: its first queries are bounded there, and when all of its chain rests,
its rows are of the same records. Where results wait for time, only those commits count by which everything is out that
these records have closed.
(docs/decisions: two versions are compared at a commit of the one that serves; and after all that its records close.)
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from headrace.clock import Clock
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.chains import Chain, NotComparable, independent, query_of
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.how_far import Offsets, cut_of, ends_of, lag_of, offsets_at
from headrace.coordinate.origins import (
    check_origins,
    followed_topics,
    inputs_below,
    serving_queries,
    waiting_topics,
    with_origins,
)
from headrace.coordinate.planning import plan_definition
from headrace.errors import HeadraceError
from headrace.log.base import Log
from headrace.sql.plan import waits_for_time
from headrace.store.arrivals import behind, has_arrivals
from headrace.store.base import Position, ViewStore
from headrace.store.cuts import Cut, Places, cut_now, has_reached, later, parse_closed
from headrace.store.follow import Followers
from headrace.types import display_name
from headrace.views.compare import summed_columns
from headrace.views.difference import Comparison, Keep, compare_spools
from headrace.views.spool import Spool, parts_of, spool_rows
from headrace.views.versions import Item

logger = logging.getLogger("headrace.deploy")

LOOK_S = 0.005
PATIENCE_S = 300.0
"""More than a batch takes, also on a machine that is busy with others."""
REMEMBERED = 10_000

AT_ONCE = 4
"""Groups of views that are compared at the same time."""

QUIET_S = 1.0
"""How long two versions that are there already have to be found at the same place, before one is held up for it."""


class ComparisonEnded(HeadraceError):
    """The deployment was paused or cancelled, or the process stops."""


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A view of which it is not known whether its versions differ."""

    view: str
    """As people see it."""
    why: str

    def __str__(self) -> str:
        return f"`{self.view}` not compared: {self.why}"


@dataclass(frozen=True, slots=True)
class Both:
    """Rows of two versions, of the same records."""

    cut: Cut
    before: Spool
    now: Spool


@dataclass(slots=True)
class Comparer:
    """Compares views in two versions each. `stopped` ends it early."""

    log: Log
    catalog: Catalog
    deployments: Deployments
    followers: Followers
    clock: Clock
    folder: Path
    stopped: Callable[[], bool]
    history: dict[tuple[str, Offsets], Cut] = field(default_factory=dict)
    """What was seen of the queries that serve: where their topic ended, and which records that was for."""
    waiting: dict[tuple[str, int], bool] = field(default_factory=dict)
    """By query and version: whether it has results that wait for time."""
    patience_s: float = PATIENCE_S
    """How long to wait for anything. What belongs together was waited for in vain once: then for nothing else of it, as
    all of it is held meanwhile."""

    def compare(self, chain: Chain) -> list[Comparison | NotCompared]:
        """All of its views. Those that have nothing to do with each other at once: most of it is waiting, each for a
        batch of its own. One that cannot be compared takes nothing from the others."""
        parts = independent(self.catalog, chain)
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="headrace-compare") as pool:
            found = pool.map(lambda part: list(replace(self, history={}, waiting={})._compare_part(part)), parts)
            return [one for part in found for one in part]

    def _compare_part(self, chain: Chain) -> Iterator[Comparison | NotCompared]:
        items = [item for item in chain.items if self._has_both(item)]
        with self._held(chain) if items else nullcontext():
            for item in items:
                yield self._compare_if_possible(chain, item)

    def _compare_if_possible(self, chain: Chain, item: Item) -> Comparison | NotCompared:
        name = display_name(item.name)
        try:
            return self._compare_item(chain, item)
        except ComparisonEnded:
            raise
        except NotComparable as error:
            return NotCompared(name, error.message)
        except Exception as error:
            if self.stopped():
                raise ComparisonEnded("the comparison was ended") from error
            # Trying again and again would help nobody; whoever approves or cancels it knows that it was not compared.
            logger.exception("`%s` could not be compared", name)
            return NotCompared(
                name, error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
            )

    def _compare_item(self, chain: Chain, item: Item) -> Comparison:
        with self._scratch() as folder:
            both = self._read(chain, item, folder)
            versions = item.before, item.number
            compared = compare_spools(both.before, both.now, versions, both.cut, self._summed(item))
            return self._certain(chain, item, compared)

    def _has_both(self, item: Item) -> bool:
        version = self.catalog.state.versions.get(item.name, {}).get(item.number)
        replaced = item.before and item.number != item.before
        return bool(replaced and version and version.source.kind == "table" and version.source.query)

    def compare_two(self, chain: Chain, check: Callable[[], None], old: int, keep: Keep) -> Comparison:
        """The last of its views, from version `old` to the other one. Nothing is held up if both rest at one place;
        `check` says what speaks against it if they do not."""
        item = chain.items[-1]
        with self._scratch() as folder:
            both = self._read_resting(chain, item, folder)
            if both is None:
                check()
                with self._held(chain):
                    both = self._read(chain, item, folder)
            spools, versions = (both.before, both.now), (item.before, item.number)
            if old == item.number:
                spools, versions = (both.now, both.before), (item.number, item.before)
            return self._certain(chain, item, compare_spools(*spools, versions, both.cut, self._summed(item), keep))

    def _certain(self, chain: Chain, item: Item, found: Comparison) -> Comparison:
        """No row may be called a difference that is only about to come. On Kafka no commit says that all is out, and
        idle partitions let windows close by the clock on the wall."""
        if not found.different or has_arrivals(self.log):
            return found
        topics = [self._query(item.name, number).sink_topic for number in (item.before, item.number)]
        origins = {origin for topic in topics for origin in with_origins(self.catalog, topic)}
        queries = [*chain.queries(), *serving_queries(self.catalog, chain).values()]
        if any(query.sink_topic in origins and self._waits(query) for query in queries):
            raise NotComparable(
                f"{found.different:,} rows of `{found.view}` differ, or are in one of both, and on Kafka some of "
                "them may be about to come: they wait for windows to close, or for a join's grace to pass"
            )
        return found

    @contextmanager
    def _held(self, chain: Chain) -> Iterator[None]:
        """The new versions read no further than they are told to."""
        try:
            self._bound(chain, cut_now(self.log, self.log.snapshot(), waiting_topics(chain)))
            yield
        finally:
            self._bound(chain, None)

    def _read(self, chain: Chain, item: Item, folder: Path) -> Both:
        check_origins(self.catalog, chain)
        for _ in self._looks(f"both versions of `{display_name(item.name)}` to be at one place"):
            self._rest(chain)
            cut, old = self._serving_rows(chain, item, folder / "old")
            self._bound(chain, cut)
            self._rest(chain)
            view = self.followers.version(item.name, item.number)
            self._until(partial(self._is_filled, view), f"`{display_name(item.name)}` to be filled")
            new = spool_rows(view, folder / "new", len(old.files))
            # A batch that was under way when its query was bounded may have read further.
            if new is not None and self._is_ahead(chain, cut, self._passed(chain)):
                return Both(cut, old, new)
        raise NotComparable("the new version did not keep still")

    def _read_resting(self, chain: Chain, item: Item, folder: Path) -> Both | None:
        """Both as they are, where nothing arrives: None if something does, or one of them is behind."""
        view = self.followers.version(item.name, item.number)
        deadline = self.clock.monotonic() + QUIET_S
        for _ in self._looks(f"`{display_name(item.name)}` to keep still"):
            found = self._seen_serving(chain, item, folder / "old") if self._rests(chain) else None
            if found is not None:
                cut, old = found
                # What had arrived when the other one's rows were read is in these, and nothing that came later.
                new = None
                if self._rests(chain) and self._is_filled(view):
                    new = spool_rows(view, folder / "new", len(old.files))
                return Both(cut, old, new) if new and self._is_ahead(chain, cut, self._passed(chain)) else None
            if self.clock.monotonic() > deadline:
                break
        return None

    def _serving_rows(self, chain: Chain, item: Item, folder: Path) -> tuple[Cut, Spool]:
        for _ in self._looks(f"`{display_name(item.name)}` to keep still"):
            found = self._seen_serving(chain, item, folder)
            if found is not None:
                return found
        raise NotComparable("the version that serves did not keep still")

    def _seen_serving(self, chain: Chain, item: Item, folder: Path) -> tuple[Cut, Spool] | None:
        """Rows of the version that serves, and the cut that includes exactly the records that made them. It has to be
        one the other version has not passed; None if it is not, or not known."""
        view = self.followers.version(item.name, item.before)
        query = self._query(item.name, item.before)
        passed = self._passed(chain)
        found: list[Cut] = []

        def is_known(position: Position) -> bool:
            # Asked in the transaction that the rows are read in: what is committed meanwhile is not among them.
            self._observe(chain)
            cut = self._cut_at(chain, query, view.source.topic, position)
            if cut is None or not self._is_ahead(chain, cut, passed):
                return False
            found.append(max(cut, passed) if isinstance(cut, int) and isinstance(passed, int) else cut)
            return True

        self._observe(chain)
        spooled = spool_rows(view, folder, parts_of(view), is_known)
        return None if spooled is None else (found[-1], spooled)

    def _cut_at(self, chain: Chain, query: QueryDefinition, topic: str, position: Position) -> Cut | None:
        """Which records at the beginning of the chain rows are made of; None if their position was not seen to be the
        end of a commit."""
        ends = ends_of(self.log, topic)
        committed = self.history.get((topic, tuple(position.offsets.get(number, 0) for number in range(len(ends)))))
        return None if committed is None else self._first_cut(chain, query, committed)

    def _summed(self, item: Item) -> frozenset[str]:
        """Of either version."""
        queries = [self._query(item.name, number) for number in (item.before, item.number)]
        return frozenset(name for query in queries for name in summed_columns(plan_definition(query, self.catalog)))

    def _passed(self, chain: Chain) -> Cut:
        """What the new versions have read already."""
        cuts = [cut_of(self.log, first) for first in chain.first()]
        if has_arrivals(self.log):
            return max((cut for cut in cuts if isinstance(cut, int)), default=0)
        found: Places = {}
        for cut in cuts:
            found = found if isinstance(cut, int) else later(found, cut)
        return found

    def _is_ahead(self, chain: Chain, cut: Cut, passed: Cut) -> bool:
        if isinstance(cut, int) and isinstance(passed, int):
            return cut >= passed or self._nothing_between(chain, cut, passed)
        known = passed if isinstance(cut, int) or isinstance(passed, int) else {t: passed.get(t, {}) for t in cut}
        return has_reached(cut, known)

    def _first_cut(self, chain: Chain, query: QueryDefinition, cut: Cut) -> Cut | None:
        """The records at the beginning of the chain that a commit further down includes; None if that is not known
        (yet), or not the same for all it reads."""
        below = inputs_below(self.catalog, chain, query)
        found: list[Cut | None] = []
        for topic in query.reads.values():
            if topic not in below:
                found.append(cut if isinstance(cut, int) else {topic: cut[topic]} if topic in cut else None)
                continue
            at = self.history.get((topic, offsets_at(self.log, topic, cut)))
            found.append(None if at is None else self._first_cut(chain, below[topic], at))
        if not isinstance(cut, int) and 0 < len(below) < len(query.reads):
            raise NotComparable(
                f"`{display_name(query.sink)}` reads what is changed and what is not, and on Kafka only the first of a "
                "chain can be stopped at a place"
            )
        return _agreed(found)

    def _observe(self, chain: Chain) -> None:
        """Remember where the topics of the chain that serves end, and for which commit."""
        for topic, query in serving_queries(self.catalog, chain).items():
            # A log that shows a commit partition by partition has shown all of it once it was at rest; what was the
            # same before and after, was so then.
            identity, ends = self.log.last_identity(query.id, query.version), ends_of(self.log, topic)
            cut = cut_of(self.log, query) if self._is_settled(query) else None
            still = self.log.at_rest([topic]) and ends_of(self.log, topic) == ends
            if cut is not None and still and self.log.last_identity(query.id, query.version) == identity:
                self.history[topic, ends] = cut
        while len(self.history) > REMEMBERED:
            del self.history[next(iter(self.history))]

    def _is_settled(self, query: QueryDefinition) -> bool:
        """Whether there are no rows to come of what it has read, until it reads more."""
        identity = self.log.last_identity(query.id, query.version)
        known = identity is None or not has_arrivals(self.log) or parse_closed(identity.offsets)
        return known or not self._waits(query)

    def _waits(self, query: QueryDefinition) -> bool:
        key = query.id, query.version
        if key not in self.waiting:
            self.waiting[key] = waits_for_time(plan_definition(query, self.catalog))
        return self.waiting[key]

    def _nothing_between(self, chain: Chain, low: int, high: int) -> bool:
        """Whether the first topics of one of both chains have no records between two arrival numbers: then both are
        the same place to it. They are other topics where a view is to read another stream. Of a stream whose place is
        followed back it is what that is made of: there may be records of which nothing has been made yet."""

        def same(topics: Collection[str]) -> bool:
            return all(offsets_at(self.log, topic, low) == offsets_at(self.log, topic, high) for topic in topics)

        return same(waiting_topics(chain)) or same(followed_topics(self.catalog, chain))

    def _bound(self, chain: Chain, until: Cut | None) -> None:
        first = chain.first()
        self.deployments.bound({query.id: _bound_of(query, until) for query in first})

    def _rest(self, chain: Chain) -> None:
        """Until all of the new versions have read what they may, and nothing more comes of it."""
        self._until(partial(self._rests, chain), "the new versions to read up to one place")

    def _rests(self, chain: Chain) -> bool:
        def done() -> bool:
            queries = chain.queries()
            return not any(lag_of(self.log, query, query.until) or not self._is_settled(query) for query in queries)

        # What one query has committed is what the next has yet to read, once all of it is seen.
        topics = [query.sink_topic for query in chain.queries()]
        return done() and self.log.at_rest(topics) and done()

    def _query(self, name: str, number: int) -> QueryDefinition:
        return query_of(self.catalog, name, number)

    def _is_filled(self, view: ViewStore) -> bool:
        return self.log.at_rest([view.source.topic]) and not self._is_behind(view)

    def _is_behind(self, view: ViewStore) -> bool:
        return behind(self.log.snapshot(), view.source.topic, view.position()) > 0

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in self._looks(what):
            if condition():
                return

    def _looks(self, what: str) -> Iterator[None]:
        deadline, pause = self.clock.monotonic() + self.patience_s, threading.Event()
        while True:
            if self.stopped():
                raise ComparisonEnded("the comparison was ended")
            yield
            if self.clock.monotonic() >= deadline:
                self.patience_s = 0.0
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
