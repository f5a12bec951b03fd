"""Care for the views, in the background of the server: repairs on a schedule, and checking that stream equals batch."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from headrace.clock import Clock
from headrace.config import ViewsSettings
from headrace.coordinate.base import ViewDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.layers import is_layered
from headrace.coordinate.subjects import view_subject
from headrace.errors import HeadraceError, UsageError
from headrace.log.base import Log
from headrace.store.base import ViewStore
from headrace.store.revisions import Revisions
from headrace.store.snapshots import take_snapshot
from headrace.types import display_name
from headrace.views.check import Checked, check_round
from headrace.views.drift import DRIFT_SPEC, Drift, append_drift, read_drift
from headrace.views.repair import Repaired, repair
from headrace.views.subject import Subject, is_ordered
from headrace.views.traced import Bounds

logger = logging.getLogger("headrace.views")

LOOK_S = 0.5
SNAPSHOT_S = 10.0
"""How often views are looked at for whether a snapshot is due."""
ROUND_ROWS, ROUND_SECONDS = 200, 60.0
"""Of one round of a check that was asked for."""
MOST_EFFORT = 3
"""One row, and eight times as long."""


class ViewCare:
    """One thread. What it knows of a view is by name and version. A check begins anew with the server, but for what
    differed when the last one ended; a repair goes by what the log says."""

    def __init__(
        self,
        log: Log,
        catalog: Catalog,
        store_of: Callable[[str, int], ViewStore],
        clock: Clock,
        settings: ViewsSettings,
    ) -> None:
        """`store_of` gives the rows of a version: which one serves may change while it is looked at."""
        self._log, self._catalog, self._store_of = log, catalog, store_of
        self._clock, self._settings = clock, settings
        self.revisions = Revisions(log)
        self.checked = {version: Checked(drift=drift) for version, drift in read_drift(log).items() if drift}
        self._repairing = threading.Lock()
        self._checking = threading.Lock()
        self._repaired: dict[tuple[str, int, str | None], int] = {}
        """How far each version's ledger was dealt with. A new server looks at all of it once."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-care", daemon=True)
        self._thread.start()

    def repair(
        self,
        view: ViewDefinition,
        only: Bounds | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], bool] = lambda done, all_: True,
        found: Repaired | None = None,
    ) -> Repaired:
        """Repair a view. One repair at a time: two at once would write the same rows twice. See `views.repair.repair`
        for `progress` and `found`."""
        subject = view_subject(self._catalog, view)
        if is_layered(self._catalog, subject.source):
            raise UsageError(
                f"`{display_name(view.name)}` is a Lambda view: its topic has parts of rows, which cannot be revised",
                hint=_instead(view, subject),
            )
        at = (view.name, subject.version, subject.query_id)
        with self._repairing:
            done = repair(
                self._log,
                subject,
                self._store_of(view.name, subject.version),
                self._clock,
                self.revisions,
                only,
                dry_run,
                self._repaired.get(at, 0),
                lambda done, all_: progress(done, all_) and not self._stop.is_set(),
                found,
            )
            self._repaired[at] = done.through
            return done

    def check_many(self, view: ViewDefinition, rows: int, progress: Callable[[int, int], bool]) -> None:
        """Check so many rows, in rounds, or all if there are fewer. `progress` is told how many, and says whether to
        go on."""
        known = self.checked.setdefault((view.name, view.version), Checked())
        begun, passes, given_up = known.rows, known.passes, known.skipped
        while progress(min(rows, known.rows - begun), rows) and not self._stop.is_set():
            before = known.rows
            self.check(view, min(ROUND_ROWS, rows - (known.rows - begun)), ROUND_SECONDS)
            nothing = known.rows == before
            if known.rows - begun >= rows or known.passes > passes or (nothing and known.skipped > given_up + 2):
                break
        progress(min(rows, known.rows - begun), rows)

    def check(self, view: ViewDefinition, rows: int | None = None, seconds: float | None = None) -> list[Drift]:
        """One round over a view. Returns what is new."""
        subject = view_subject(self._catalog, view)
        known = self.checked.setdefault((view.name, view.version), Checked())
        # One round at a time: two would both say what is new of the same rows.
        with self._checking:
            news = check_round(
                self._log,
                subject,
                self._store_of(view.name, subject.version),
                self.revisions,
                known,
                self._clock.now_ms(),
                rows or self._settings.check_rows,
                time.monotonic() + (seconds or self._settings.check_seconds),
            )
            if news:
                self._log.create_topic(DRIFT_SPEC)
                self._log.append([append_drift(news)]).result()
        for one in news:
            _say(one)
        return news

    def _check_within_reach(self, view: ViewDefinition) -> None:
        """A round that is given up says nothing, so the next takes fewer rows and more time, and one that succeeds
        takes that back: a view whose rows are made of much is looked at slowly rather than never."""
        known = self.checked.setdefault((view.name, view.version), Checked())
        skipped = known.skipped
        self.check(view, *reach(self._settings, known.effort))
        known.effort = min(MOST_EFFORT, known.effort + 1) if known.skipped > skipped else max(0, known.effort - 1)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        """Nothing is due at the start: a server that comes up has other things to do."""
        next_check = self._clock.monotonic() + self._settings.check_every_seconds
        next_repair = self._clock.monotonic() + self._settings.repair_every_seconds
        turn, next_snapshot = 0, self._clock.monotonic() + SNAPSHOT_S
        while not self._stop.wait(LOOK_S):
            now = self._clock.monotonic()
            if now >= next_snapshot:
                self._take_snapshots()
                next_snapshot = self._clock.monotonic() + SNAPSHOT_S
            if self._settings.check_every_seconds > 0 and now >= next_check:
                turn += 1
                self._check_next(turn)
                next_check = self._clock.monotonic() + self._settings.check_every_seconds
            if self._settings.repair_every_seconds > 0 and now >= next_repair:
                self._repair_all()
                next_repair = self._clock.monotonic() + self._settings.repair_every_seconds

    def _take_snapshots(self) -> None:
        """Of the views that have changed often enough since the last."""
        for view in self._catalog.views():
            if self._stop.is_set():
                return
            self._guarded("copied to a snapshot", self._take_snapshot, view)

    def _take_snapshot(self, view: ViewDefinition) -> None:
        store = self._store_of(view.name, view.version)
        if take_snapshot(store, self._settings.snapshot_changes, self._settings.snapshots):
            logger.info("a snapshot of view `%s` was taken", display_name(view.name))

    def _check_next(self, turn: int) -> None:
        """A round over one view, the views in turns."""
        views = [view for view in self._catalog.views() if view.query_id is not None]
        if views:
            self._guarded("checked", self._check_if_possible, views[turn % len(views)])

    def _check_if_possible(self, view: ViewDefinition) -> None:
        """What a log cannot compute again is no news every minute."""
        if is_ordered(self._log, view_subject(self._catalog, view)):
            self._check_within_reach(view)

    def _repair_all(self) -> None:
        for view in self._catalog.views():
            if self._stop.is_set():
                return
            if view.query_id is not None:
                self._guarded("repaired", self._repair_and_say, view)

    def _repair_and_say(self, view: ViewDefinition) -> None:
        try:
            done = self.repair(view)
        except UsageError:
            return  # nothing comes too late for it
        if done.revised:
            logger.info("`%s`: %d rows revised, %d late records", view.name, len(done.revised), done.late)

    def _guarded(self, what: str, work: Callable[[ViewDefinition], object], view: ViewDefinition) -> None:
        try:
            work(view)
        except (HeadraceError, OSError) as error:
            logger.warning("view `%s` could not be %s: %s", display_name(view.name), what, error)
        except Exception:
            logger.exception("view `%s` could not be %s", display_name(view.name), what)


def reach(settings: ViewsSettings, effort: int) -> tuple[int, float]:
    """Rows of a round, and its seconds.

    >>> [reach(ViewsSettings(), effort) for effort in range(MOST_EFFORT + 1)]
    [(50, 1.0), (12, 2.0), (3, 4.0), (1, 8.0)]
    """
    return max(1, settings.check_rows >> (2 * effort)), settings.check_seconds * 2**effort


def _say(drift: Drift) -> None:
    if drift.right:
        logger.info("view `%s` %s %s is right again", drift.view, drift.key, drift.window or "")
    else:
        logger.error(
            "view `%s` %s %s is served as %s, but the log says %s",
            drift.view,
            drift.key,
            drift.window or "",
            drift.served,
            drift.recomputed,
        )


def _instead(view: ViewDefinition, subject: Subject) -> str:
    """What to do about what came too late for a Lambda view."""
    if subject.late_topic is None:
        return "it has no windows that close, so nothing comes too late for it"
    if subject.query.counts_late:
        return f"its next batch layer counts what came too late:  headrace view refresh {display_name(view.name)}"
    return (
        "let its batch layers count what came too late: add WITH (BATCH_COUNTS_LATE=TRUE) to its statement, then "
        "headrace deploy --strategy lambda"
    )
