"""Log → store: followers apply each view's changelog to its rows, in order, with the position in the same transaction.

One thread serves all views in turns, so that one being filled does not keep the others waiting. A view that fails is
tried again later, each time after a longer pause, and says why; the others go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError, NotFound
from headrace.log.base import Log, Snapshot
from headrace.sql.source import Source
from headrace.store.arrivals import behind
from headrace.store.base import Store, ViewStore
from headrace.store.follower import Follower, Following
from headrace.store.layers import Merging
from headrace.types import display_name

WAIT_SECONDS = 0.1
"""How long an idle follower sleeps before it looks whether it should stop."""
OPEN_AGAIN_SECONDS = 5.0

Address: TypeAlias = tuple[str, int]
"""A view's name and a version's number."""

logger = logging.getLogger("headrace.store")


class ViewLike(Protocol):
    """What is to be followed: `coordinate.base.ViewDefinition`, as far as it matters here."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def topic(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Unopened:
    what: Following
    reason: str


class Followers:
    """All views, in every version there is. Implements `deliver.base.Views`.

    One version of a view serves. Which one is changed for all views by one assignment, so whoever looks sees all of a
    switch or nothing."""

    def __init__(self, log: Log, store: Store, clock: Clock | None = None) -> None:
        self._log, self._store, self._clock = log, store, clock or SystemClock()
        self._followers: dict[Address, Follower] = {}
        self._unopened: dict[Address, Unopened] = {}
        self._serving: dict[str, int] = {}
        self._next_try = 0.0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-followers", daemon=True)
        self._thread.start()

    def sync(
        self,
        views: Iterable[ViewLike],
        sources: Callable[[str], Source | None],
        beside: Iterable[tuple[int, Source]] = (),
        layers: Mapping[Address, Merging] | None = None,
    ) -> None:
        """Follow exactly these: `views` serve, those `beside` them (a version's number and source) do not. What is no
        longer among them is closed and its rows are removed, also those another process left. `layers` are of those
        that have two."""
        serving = {view.name: view.version for view in views}
        found = {(name, version): sources(name) for name, version in serving.items()}
        found |= {(source.name, version): source for version, source in beside}
        merged = {at: merging for at, merging in (layers or {}).items() if at in found}
        wanted = {(m.batch.name, number): Following(m.batch, until=m.ends) for (_, number), m in merged.items()}
        wanted |= {at: Following(source, merged.get(at)) for at, source in found.items()}
        with self._lock:
            before = self._followers
            kept = {at: follower for at, follower in before.items() if at in wanted and follower.goes_on(wanted[at])}
            for at, follower in before.items():
                if at not in kept:
                    follower.close(drop=True)
            self._store.keep_only(wanted)
            self._unopened = {}
            self._followers = kept
            for (name, version), what in wanted.items():
                if (name, version) not in kept:
                    self._open(name, version, what)
            self._serving = serving

    def _open(self, name: str, version: int, what: Following) -> None:
        at = (name, version)
        try:
            if what.source is None:
                raise NotFound(f"view `{display_name(name)}` has no definition")
            layer = None if what.merging is None else self._layer(what.merging, version)
            follower = Follower(self._store, what, version, self._clock, layer)
            follower.verify(self._log, self._log.snapshot())
            self._followers = {**self._followers, at: follower}
            self._unopened.pop(at, None)
        except (HeadraceError, OSError) as error:
            # One view that cannot be opened must not keep the others from being served. It is tried again.
            if at not in self._unopened:
                logger.error("view `%s` v%d cannot be opened: %s", name, version, error)
            self._unopened[at] = Unopened(what, str(error))
            self._next_try = self._clock.monotonic() + OPEN_AGAIN_SECONDS

    def _layer(self, merging: Merging, version: int) -> Callable[[], ViewStore]:
        name = merging.batch.name
        return lambda: self._follower(name, version).view

    def _open_again(self) -> None:
        if self._unopened and self._clock.monotonic() >= self._next_try:
            with self._lock:
                for (name, version), waiting in list(self._unopened.items()):
                    self._open(name, version, waiting.what)

    def view(self, name: str) -> ViewStore:
        return self._follower(name).view

    def version(self, name: str, version: int) -> ViewStore:
        return self._follower(name, version).view

    def of_source(self, source: Source) -> ViewStore:
        """The version that a plan was made for, even if another has begun to serve since; else the one that serves."""
        serving = self._followers.get(self._address(source.name, None))
        if serving is not None and serving.source.topic == source.topic:
            return serving.view
        for follower in self._followers.values():
            if follower.source.topic == source.topic and follower.source.name == source.name:
                return follower.view
        return self.view(source.name)

    def names(self) -> list[str]:
        return sorted(name for name, version in self._serving.items() if (name, version) in self._followers)

    def lag(self, name: str, version: int | None = None) -> int:
        """Records of its topic that are not applied yet."""
        follower = self._follower(name, version)
        return behind(self._log.snapshot(), follower.source.topic, follower.view.position())

    def rate(self, name: str) -> float:
        return self._follower(name).rate

    def error(self, name: str, version: int | None = None) -> str | None:
        """Why a view is not getting on; None if it is."""
        unopened = self._unopened.get(self._address(name, version))
        return unopened.reason if unopened else self._follower(name, version).error

    def close(self) -> None:
        """Stops following and closes the views. The store is its owner's to close."""
        self._stop.set()
        self._thread.join()
        with self._lock:
            for follower in self._followers.values():
                follower.close()
            self._followers = {}

    def _address(self, name: str, version: int | None) -> Address:
        return (name, self._serving.get(name, 0) if version is None else version)

    def _follower(self, name: str, version: int | None = None) -> Follower:
        at = self._address(name, version)
        follower = self._followers.get(at)
        if follower is None:
            unopened = self._unopened.get(at)
            which = f"version {version} of table" if version is not None else "table"
            raise NotFound(
                f"{which} `{display_name(name)}` is not served",
                detail=unopened.reason if unopened else None,
                hint="SHOW TABLES lists what is",
            )
        return follower

    def _run(self) -> None:
        seen = -1
        while not self._stop.is_set():
            try:
                snapshot = self._log.wait(seen, WAIT_SECONDS)
                seen = snapshot.arrival
                self._open_again()
                while self._turn(snapshot) and not self._stop.is_set():
                    snapshot = self._log.snapshot()
            except Exception:
                logger.exception("followers cannot read the log")
                self._stop.wait(1.0)

    def _turn(self, snapshot: Snapshot) -> bool:
        more = [follower.advance(self._log, snapshot) for follower in list(self._followers.values())]
        return any(more)
