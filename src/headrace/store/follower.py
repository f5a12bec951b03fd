"""One view that follows the log: its rows, how far they are, and how it is doing.

Its declaration may change while it serves. What its rows do not depend on is only noted; otherwise rows of the new
definition are filled beside those that serve, and take over when they have caught up.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headrace.clock import Clock
from headrace.errors import HeadraceError, NotFound, StoreDamaged
from headrace.log.base import Log, Snapshot
from headrace.sql.source import Source
from headrace.store.arrivals import behind, read_stretch
from headrace.store.base import Decoder, Store, ViewStore
from headrace.store.layers import Merging, changelog_decoder, merging_decoder
from headrace.store.positions import belongs, bounded, from_start, is_same_log, moved_position

ROWS_PER_TURN = 10_000
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
RATE_SECONDS = 5.0
FORMER_SECONDS = 60.0
"""How long rows that others took over from can still be read, by who had asked for them before."""

logger = logging.getLogger("headrace.store")


@dataclass(frozen=True, slots=True)
class Following:
    """What is to be followed: a version of a view, or the batch layer of one, which ends somewhere in its topic."""

    source: Source | None
    merging: Merging | None = None
    until: Mapping[int, int] | None = None

    def same_rows(self, other: Following) -> bool:
        """Whether only words differ: who reads cannot tell the one from the other."""
        return (_of_rows(self.source), self.merging, self.until) == (_of_rows(other.source), other.merging, other.until)

    def extended_by(self, other: Following) -> bool:
        """Whether the other has the same columns, and perhaps further ones: what asks for it can be answered from
        these rows for a while."""
        if self.source is None or other.source is None or (self.merging, self.until) != (other.merging, other.until):
            return False
        old, new = self.source, other.source
        same = (old.topic, old.key, old.headers, old.window) == (new.topic, new.key, new.headers, new.window)
        return same and new.value[: len(old.value)] == old.value


def _of_rows(source: Source | None) -> Source | None:
    """Without what a table's rows do not depend on."""
    if source is None:
        return None
    # A version keeps its records for good, though their topic may be forked: that has the same at the same places.
    plain = replace(source, statement="", query=None, partitions=1, per_batch=False, topic="")
    return replace(plain, classic=False, read_only=False, retention_ms=None)


class Follower:
    """One view and how it is doing. Used by the follower's thread; `lock` keeps it from being closed under it. With
    `batch` it has two layers, and this gives the rows of the one that its changes are merged with."""

    def __init__(
        self,
        store: Store,
        what: Following,
        version: int,
        clock: Clock,
        batch: Callable[[], ViewStore] | None = None,
        beside: bool = False,
    ) -> None:
        assert what.source is not None
        self.what, self.source, self.version = what, what.source, version
        self.lock = threading.Lock()
        self._store, self._clock, self._batch, self._beside = store, clock, batch, beside
        self.view = self._opened()
        self._next: Follower | None = None
        """The same version by another definition, until it has caught up."""
        self._wanted: Following | None = None
        """That definition, before anything is filled."""
        self._former: list[tuple[float, ViewStore]] = []
        self.error: str | None = None
        self._decoder: Decoder | None = None
        self._trusted = self._gone = False
        self._failures, self._retry_at = 0, 0.0
        self._applied: deque[tuple[float, int]] = deque()

    def _opened(self) -> ViewStore:
        view = (self._store.open_beside if self._beside else self._store.open_view)(self.source, self.version)
        return self._layered(view)

    def _layered(self, view: ViewStore) -> ViewStore:
        if self.what.merging is not None and self._batch is not None:
            view.layers = merging_decoder(self.what.merging, self._batch)
        return view

    def goes_on(self, what: Following) -> bool:
        """Be what is wanted from now on, with the rows there are; False if they are of no use for it."""
        if self.what == what and self._wanted is None and self._next is None:
            return True  # nobody waits for it to write
        with self.lock:
            if self.what.same_rows(what):
                self._widened(what)
                self._give_up_next()
                self._be(what, self.view)
            elif not self.what.extended_by(what) or not self._widened(what):
                return False
            elif self._next is not None and self._next.what.same_rows(what):
                self._next._be(what, self._next.view)
            else:
                self._give_up_next()
                self._wanted = what
                logger.info("view `%s` v%d is filled by its new definition", self._shown, self.version)
        return True

    def _widened(self, what: Following) -> bool:
        """What cannot be written is a matter of the moment: further columns can then be asked for a little later."""
        assert what.source is not None
        try:
            self._decoder = None
            return self.view.widen(what.source)
        except HeadraceError as error:
            logger.warning("view `%s` does not have its further columns yet: %s", self._shown, error)
            return True

    def _be(self, what: Following, view: ViewStore) -> None:
        assert what.source is not None
        self.what, self.source, self._decoder = what, what.source, None
        view.source = what.source
        self.view = self._layered(view)

    def _give_up_next(self) -> None:
        self._wanted = None
        if self._next is not None:
            self._store.discard(self._next.view)
            self._next = None

    def _advance_next(self, log: Log, snapshot: Snapshot) -> bool:
        """True if there is more for it."""
        if self._wanted is not None:
            self._next = Follower(self._store, self._wanted, self.version, self._clock, self._batch, beside=True)
            self._wanted = None
        if self._next is None:
            return False
        more = self._next.advance(log, snapshot)
        if not more and self._next.error is None and not self._next.behind(snapshot):
            self._store.take_over(self._next.view)
            self._former.append((self._clock.monotonic() + FORMER_SECONDS, self.view))
            self._be(self._next.what, self._next.view)
            self._next = None
        return more

    def behind(self, snapshot: Snapshot) -> int:
        """Records that are there and not applied yet."""
        return behind(self._bounded(snapshot), self.source.topic, self.view.position())

    def _bounded(self, snapshot: Snapshot) -> Snapshot:
        return snapshot if self.what.until is None else bounded(snapshot, self.source.topic, self.what.until)

    def _let_go(self, now: float) -> None:
        for due, view in [(due, view) for due, view in self._former if due <= now]:
            self._store.discard(view)
            self._former.remove((due, view))

    @property
    def rate(self) -> float:
        """Changed rows per second, lately."""
        since = self._clock.monotonic() - RATE_SECONDS
        return sum(rows for moment, rows in list(self._applied) if moment >= since) / RATE_SECONDS

    def advance(self, log: Log, snapshot: Snapshot) -> bool:
        """Apply what is new, a turn's worth. True if there is more."""
        if self._clock.monotonic() < self._retry_at:
            return False
        with self.lock:
            try:
                more = not self._gone and self._advance(log, snapshot)
                more = (not self._gone and self._advance_next(log, snapshot)) or more
                self._let_go(self._clock.monotonic())
            except Exception as error:
                self._failed(error)
                return False
        self.error, self._failures = self._next.error if self._next is not None else None, 0
        return more

    def _advance(self, log: Log, snapshot: Snapshot) -> bool:
        topic = self.source.topic
        if topic not in snapshot.ends:
            raise NotFound(f"topic `{topic}` does not exist")
        self.verify(log, snapshot)
        if self._batch is not None and self.what.merging is not None and not self.what.merging.filled(self._batch()):
            return False
        snapshot = self._bounded(snapshot)
        position = from_start(self.view.position(), snapshot, topic)
        if not behind(snapshot, topic, position):
            return False
        decoder = self._decoder_for(log)
        stretch = read_stretch(log, topic, position, snapshot, decoder.columns, ROWS_PER_TURN)
        changed = self.view.apply([decoder.decode(records) for records in stretch.records], stretch.position)
        self._count(changed)
        return behind(snapshot, topic, stretch.position) > 0

    def _decoder_for(self, log: Log) -> Decoder:
        if self._decoder is None or self._decoder.topic != log.topic(self.source.topic):
            self._decoder = changelog_decoder(log, self.view)
        return self._decoder

    def verify(self, log: Log, snapshot: Snapshot) -> None:
        """Throw away rows that are damaged, or whose position is not one of this log. The position is looked at once,
        as soon as the topic is there; damage whenever a reader found it."""
        if self.view.damaged:
            self._refill("its file is damaged")
            self._stamp(log)
        elif not self._trusted and self.source.topic in snapshot.ends:
            position = self.view.position()
            same = is_same_log(log, self.view.epoch, position)
            if not same or not belongs(log, snapshot, self.source.topic, position):
                self._continue_elsewhere(log)
            self._stamp(log)
            self._trusted = True

    def _stamp(self, log: Log) -> None:
        epochs = log.epochs()
        if epochs is not None and self.view.epoch != epochs.current.id:
            self.view.stamp(epochs.current.id)

    def _continue_elsewhere(self, log: Log) -> None:
        """The log may be a copy of the one the rows were made from: then they are as good as before."""
        moved = moved_position(log, self.source.topic, self.view.position())
        if moved is None:
            self._refill("its position is not one of this log, which was restored or is another one")
        else:
            logger.info("view `%s` continues at %s: its log was moved", self._shown, dict(moved.offsets))
            self.view.rebase(moved)

    @property
    def _shown(self) -> str:
        """A part of a Lambda view has a name that no view can have."""
        return self.source.name.replace("\0", " ")

    def _refill(self, reason: str) -> None:
        logger.warning("view `%s` v%d is filled again from the log: %s", self._shown, self.version, reason)
        if self._beside:
            self._store.discard(self.view)
        else:
            wanted = self._wanted or (self._next.what if self._next is not None else self.what)
            self._give_up_next()
            self._store.drop_view(self.source.name, self.version)
            assert wanted.source is not None
            self.what, self.source, self._decoder = wanted, wanted.source, None
        self.view = self._opened()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StoreDamaged):
            self.view.damaged = True
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        self._failures += 1
        self._retry_at = self._clock.monotonic() + pause
        message = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
        if message != self.error:
            logger.warning("view `%s` cannot follow `%s`: %s", self.source.name, self.source.topic, error)
        self.error = message

    def _count(self, changed: int) -> None:
        now = self._clock.monotonic()
        self._applied.append((now, changed))
        while self._applied[0][0] < now - RATE_SECONDS:
            self._applied.popleft()

    def close(self, drop: bool = False) -> None:
        with self.lock:
            self._gone = True
            self.view.close()
            for view in (*(view for _, view in self._former), *([self._next.view] if self._next else [])):
                view.close()
            if drop:
                self._store.drop_view(self.source.name, self.version)
