"""Any two versions of a view compared when somebody asks, and the whole difference kept for a while to be looked at.

It is what a deployment does (`coordinate.comparing`), with every row that differs written down. One comparison at a
time; the others wait for it, and no more than a few.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.chains import Chain, NotComparable, chain_between
from headrace.coordinate.comparing import Comparer, ComparisonEnded
from headrace.coordinate.deployer import Surroundings
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.how_far import cut_of, lag_of, offsets_at
from headrace.errors import Conflict, Gone, HeadraceError, NotFound, Overloaded
from headrace.store.cuts import Cut
from headrace.types import display_name
from headrace.views.difference import Apart, Comparison
from headrace.views.difference_rows import DifferenceRows, DifferenceWriter
from headrace.views.versions import Item, Version

MOST_WAITING = 4
MOST_KEPT = 8
KEPT_MS = 3_600_000
"""Since somebody last looked at it."""
COMPARABLE = ("serving", "caught up", "retired")

State = Literal["waiting", "comparing", "done", "failed"]

logger = logging.getLogger("headrace.differences")


@dataclass(frozen=True, slots=True)
class Difference:
    """From version `old` of a view to version `new`."""

    id: int
    view: str
    old: int
    new: int
    state: State = "waiting"
    error: HeadraceError | None = None
    """Why it failed."""
    comparison: Comparison | None = None
    rows: DifferenceRows | None = None
    made_ms: int = 0
    looked_ms: int = 0
    found: int = 0
    """Rows that differ, as far as they were compared."""


@dataclass(slots=True)
class Differences:
    """Safe to use from several threads. `submit` runs something in a pool."""

    around: Surroundings
    deployments: Deployments
    submit: Callable[[Callable[[], None]], object]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[int, Difference] = field(default_factory=dict)
    _waiting: list[int] = field(default_factory=list)
    _last: int = 0
    _working: bool = False
    _closed: bool = False
    _cancelled: set[int] = field(default_factory=set)
    _found: dict[int, int] = field(default_factory=dict)

    def start(self, name: str, old: int | None = None, new: int | None = None) -> Difference:
        """Compare two versions as soon as may be; by default the one that serves with the one that came before it, or
        is to come after it. Who asks for what is being compared already is told of that."""
        old, new = self._chosen(name, old, new)
        for number in (old, new):
            self._check(name, number)
        with self._lock:
            for known in self._known.values():
                if (known.view, known.old, known.new) == (name, old, new) and known.state in ("waiting", "comparing"):
                    return known
            if len(self._waiting) >= MOST_WAITING:
                raise Overloaded(f"{MOST_WAITING} comparisons are waiting already", retry_after=5.0)
            self._last += 1
            now = self.around.clock.now_ms()
            found = self._known[self._last] = Difference(self._last, name, old, new, made_ms=now, looked_ms=now)
            self._waiting.append(found.id)
            begin, self._working = not self._working, True
        if begin:
            self.submit(self._work)
        return found

    def get(self, name: str, number: int) -> Difference:
        with self._lock:
            known = self._known.get(number)
            if known is None and 0 < number <= self._last:
                raise Gone(f"difference {number} is not kept any more", hint="compare again")
            if known is None or known.view != name:
                raise NotFound(f"`{display_name(name)}` has no difference {number}", hint="compare its versions first")
            now, so_far = self.around.clock.now_ms(), self._found.get(number, known.found)
            found = self._known[number] = replace(known, looked_ms=now, found=so_far)
            return found

    def cancel(self, name: str, number: int) -> Difference:
        """End a comparison that waits or runs; nothing of it is kept."""
        if self.get(name, number).state in ("waiting", "comparing"):
            self._cancelled.add(number)
        return self.get(name, number)

    def done(self, name: str, number: int) -> tuple[Comparison, DifferenceRows]:
        """One whose rows can be looked at; what went wrong is raised."""
        found = self.get(name, number)
        if found.error is not None:
            raise found.error
        if found.comparison is None or found.rows is None:
            raise Conflict(f"difference {number} is {found.state}", hint="ask again until it is `done`")
        return found.comparison, found.rows

    def watched(self, found: Difference, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Pieces of a file that is made of it: whoever takes one looks at it, however long all of them take."""
        for piece in pieces:
            self.get(found.view, found.id)
            yield piece

    def sweep(self) -> None:
        """Let go of what nobody has looked at for long."""
        old = self.around.clock.now_ms() - KEPT_MS
        with self._lock:
            ended = [one for one in self._known.values() if one.state in ("done", "failed")]
            ended.sort(key=lambda one: one.looked_ms)
            gone = [one for at, one in enumerate(ended) if one.looked_ms <= old or at < len(ended) - MOST_KEPT]
            for one in gone:
                del self._known[one.id]
        for one in gone:
            self._remove(one)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            known, self._known = list(self._known.values()), {}
        for one in known:
            self._remove(one)

    def _remove(self, one: Difference) -> None:
        if one.rows is not None:
            one.rows.close()
        shutil.rmtree(self._folder(one.id), ignore_errors=True)

    def _folder(self, number: int) -> Path:
        return self.around.scratch / f"compare-kept-{number}"

    # Which

    def _chosen(self, name: str, old: int | None, new: int | None) -> tuple[int, int]:
        versions = [version for version in self.around.catalog.versions(name) if version.state in COMPARABLE]
        serving = next((version.number for version in versions if version.state == "serving"), None)
        if new is None:
            later = [version.number for version in versions if version.state == "caught up" and version.number != old]
            new = later[-1] if later and old in (None, serving) else serving
        if old is None:
            before = [version for version in versions if version.number != new and version.state == "retired"]
            newest = max(before, key=lambda version: version.since_ms, default=None)
            old = serving if new != serving else newest.number if newest is not None else None
        if old is None or new is None or old == new:
            kept = ", ".join(f"{version.number} ({version.state})" for version in versions)
            raise Conflict(
                f"`{display_name(name)}` has no two versions to compare", detail=f"there is {kept}" if kept else None
            )
        return old, new

    def _check(self, name: str, number: int) -> Version:
        """A version that is kept up to date, and that nobody is about to do something else with."""
        versions = self.around.catalog.state.versions.get(name, {})
        version, shown = versions.get(number), f"version {number} of `{display_name(name)}`"
        if version is None:
            there = ", ".join(str(one) for one in sorted(versions))
            raise NotFound(f"{shown} is not kept", detail=f"there is {there}", hint="headrace view show lists them")
        if version.source.kind != "table":
            raise Conflict("streams have no rows to compare", hint="compare a table that reads it")
        if version.state not in COMPARABLE:
            raise Conflict(f"{shown} is {version.state}", hint="it can be compared once it has caught up")
        deployment = self.around.catalog.state.deployments.get(version.deployment)
        if version.state == "caught up" and deployment is not None and deployment.stage != "waiting":
            raise Conflict(
                f"deployment {deployment.id} is {deployment.stage}", hint=f"headrace deploy follow {deployment.id}"
            )
        return version

    # Comparing

    def _work(self) -> None:
        while True:
            with self._lock:
                self._working = bool(self._waiting) and not self._closed
                if not self._working:
                    return
                number = self._waiting.pop(0)
            wanted = self._set(number, state="comparing")
            if wanted is None:
                return
            try:
                if number in self._cancelled:
                    raise Conflict("the comparison was cancelled", hint="compare again")
                self._compare(wanted)
            except HeadraceError as error:
                self._set(number, state="failed", error=error)
            except Exception as error:
                logger.exception("difference %d could not be made", number)
                self._set(number, state="failed", error=HeadraceError(f"{type(error).__name__}: {error}"))
            self._cancelled.discard(number)
            self._found.pop(number, None)
            self.sweep()

    def _set(self, number: int, **changes: Any) -> Difference | None:
        """None if all was given up meanwhile."""
        with self._lock:
            if number not in self._known:
                return None
            found = self._known[number] = replace(self._known[number], **changes, looked_ms=self.around.clock.now_ms())
            return found

    def _compare(self, wanted: Difference) -> None:
        around = self.around
        states = {number: self._check(wanted.view, number).state for number in (wanted.old, wanted.new)}
        chain = chain_between(around.catalog, wanted.view, *self._waits_last(wanted))
        old, new = (self._check(wanted.view, number).source for number in (wanted.old, wanted.new))
        folder = self._folder(wanted.id)
        writer = DifferenceWriter(folder, old, new)
        ended = partial(self._has_ended, wanted, states)
        comparer = Comparer(
            around.log,
            around.catalog,
            self.deployments,
            around.followers,
            around.clock,
            around.scratch,
            ended,
        )

        def keep(row: Apart) -> None:
            if self._closed or wanted.id in self._cancelled:
                raise ComparisonEnded("the server stops, or it was cancelled")
            writer.add(row)
            self._found[wanted.id] = self._found.get(wanted.id, 0) + 1

        try:
            found = comparer.compare_two(chain, partial(self._check_moving, chain), wanted.old, keep)
            rows = DifferenceRows(writer.close(), old, new)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, ComparisonEnded) and wanted.id in self._cancelled:
                raise Conflict("the comparison was cancelled", hint="compare again") from None
            if isinstance(error, ComparisonEnded):
                why = "the server stops" if self._closed else "which version serves has changed meanwhile"
                raise Conflict(f"the comparison was ended: {why}", hint="compare again") from None
            raise
        done = {"comparison": msgspec.structs.replace(found, samples=[]), "rows": rows}
        if self._set(wanted.id, state="done", found=self._found.get(wanted.id, 0), **done) is None:
            self._remove(replace(wanted, rows=rows))

    def _waits_last(self, wanted: Difference) -> tuple[int, int]:
        """What serves is not held up; what stands still needs not be."""
        serving = self.around.catalog.state.serving.get(wanted.view)
        stands = [self._standing(wanted.view, number) for number in (wanted.old, wanted.new)]
        turned = wanted.new == serving or (wanted.old != serving and stands[1] is not None and stands[0] is None)
        return (wanted.new, wanted.old) if turned else (wanted.old, wanted.new)

    def _has_ended(self, wanted: Difference, states: Mapping[int, str]) -> bool:
        if self._closed or wanted.id in self._cancelled:
            return True
        try:
            return any(self._check(wanted.view, number).state != state for number, state in states.items())
        except HeadraceError:
            return True

    def _query(self, name: str, number: int) -> QueryDefinition | None:
        version = self.around.catalog.state.versions.get(name, {}).get(number)
        return self.around.catalog.query(version.source.query or "") if version is not None else None

    def _standing(self, name: str, number: int) -> str | None:
        """Why a version does not go on; None if it does."""
        query = self._query(name, number)
        if query is None:
            return "nothing writes it any more"
        status = self.around.engine.status(query.id)
        if query.wanted == "stopped":
            return f"its query {query.id} is stopped"
        if status is not None and status.state == "failed":
            return f"its query {query.id} has failed"
        return None

    def _check_moving(self, chain: Chain) -> None:
        """Versions are at different places, and one of them never comes to the other's."""
        for item in chain.items:
            for number, other in ((item.before, item.number), (item.number, item.before)):
                why = self._standing(item.name, number)
                if why is None or self._is_abreast(item):
                    continue
                places = [self._place(item.name, one) for one in (number, other)]
                query = self._query(item.name, number)
                raise NotComparable(
                    f"version {number} of `{display_name(item.name)}` stands at {places[0]}: {why}",
                    detail=f"version {other} is at {places[1]}, and rows are compared at the same records",
                    hint=f"headrace query start {query.id}" if query is not None else None,
                )

    def _is_abreast(self, item: Item) -> bool:
        """Whether both versions have read the same of what both read; where that is nothing, all of it."""
        log = self.around.log
        old, new = (self._query(item.name, number) for number in (item.before, item.number))
        if old is None or new is None:
            return False
        common = set(old.reads.values()) & set(new.reads.values())
        if not common:
            return not lag_of(log, old) and not lag_of(log, new)
        cuts = cut_of(log, old), cut_of(log, new)
        return all(offsets_at(log, topic, cuts[0]) == offsets_at(log, topic, cuts[1]) for topic in common)

    def _place(self, name: str, number: int) -> str:
        query = self._query(name, number)
        return "no place" if query is None else place_text(cut_of(self.around.log, query))


def place_text(cut: Cut) -> str:
    """
    >>> place_text(1200), place_text({"a": {0: 5, 1: 1200}})
    ('arrival 1,200', 'a 0:5 1:1,200')
    """
    if isinstance(cut, int):
        return f"arrival {cut:,}"
    return ", ".join(
        " ".join([topic, *(f"{number}:{offset:,}" for number, offset in places.items())])
        for topic, places in cut.items()
    )
