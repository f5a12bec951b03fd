"""A restore goes to a moment: that of a backup, or of a mark in one. These functions choose it and list them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from headrace.errors import Conflict, NotFound
from headrace.log.epochs import Epochs, decode_epochs
from headrace.log.local.backup import decode_state
from headrace.log.local.backup_store import BackupStore, Point, Stored
from headrace.log.local.epoch_file import FILE as EPOCHS
from headrace.log.local.journal import Frame
from headrace.log.local.marks import EVERY_S as TIERS
from headrace.log.local.marks import FOLDER, Mark, decode_marks, state_at
from headrace.log.local.state import LogState


@dataclass(frozen=True, slots=True)
class Target:
    """A moment to restore to. Its records are those of `point` below the arrival number of `mark`; all, without one."""

    point: Point
    mark: Mark | None = None
    before: Point | None = None
    """The newest backup of the same log that is not after the moment. It may have what later ones lack."""
    asked_ms: int | None = None
    asked_arrival: int | None = None
    exact: bool = True
    """Whether nothing more was committed up to the moment, or the arrival number, that was asked for."""

    @property
    def time_ms(self) -> int:
        return self.point.time_ms if self.mark is None else self.mark.last_ms

    @property
    def moment(self) -> str:
        """The one that was asked for if the log was the same then, or else that of the last change there is."""
        return iso_moment(self.asked_ms if self.exact and self.asked_ms is not None else self.time_ms)

    @property
    def arrival(self) -> int:
        return self.point.arrival if self.mark is None else self.mark.arrival

    @property
    def later(self) -> int:
        """Records of the backup that come after the moment."""
        return self.point.arrival - self.arrival


@dataclass(frozen=True, slots=True)
class Span:
    """Moments between two backups, or before the first, that can be restored to."""

    point: Point
    first_ms: int | None
    """None if the backup has no marks: then it is its own moment only."""
    marks: int


def iso_moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def choose_point(store: BackupStore, to_ms: int | None) -> Point:
    """Return the newest point, or the newest that is not after a moment."""
    points = _points(store)
    before = [point for point in points if to_ms is None or point.time_ms <= to_ms]
    if not before:
        raise NotFound(
            "no backup is as old as that", hint=f"the oldest is of {points[0].moment}:  --to {points[0].moment}"
        )
    return before[-1]


def choose_moment(store: BackupStore, to_ms: int) -> Target:
    """Return the last moment that is known of and not after the one asked for: `NotFound` if there is none, `Conflict`
    if a clock that was set back makes it several."""
    points = _points(store)
    after = next((point for point in points if point.time_ms >= to_ms), None)
    before = [point for point in points if point.time_ms <= to_ms]
    if after is None or after.time_ms == to_ms:
        point = before[-1]
        return Target(point, asked_ms=to_ms, exact=point.time_ms == to_ms)
    epochs, found = _epochs(store, after), []
    before = [point for point in before if _precedes(point, after, epochs)]
    for marks in read_marks(store, after).values():
        until = [number for number, mark in enumerate(marks) if mark.last_ms <= to_ms]
        since = next((number for number, mark in enumerate(marks) if mark.last_ms > to_ms), len(marks))
        if not until:
            continue
        if until[-1] != since - 1:
            raise _ambiguous(to_ms, marks[max(0, since - 1)], marks[until[-1]])
        mark = marks[until[-1]]
        if since < len(marks):
            exact = marks[since].first_ms > to_ms
        else:
            exact = mark.last_ms == to_ms or (mark.group, mark.arrival) == (after.group, after.arrival)
        found.append((mark.group, exact, mark))
    best = max(found, key=lambda one: one[:2], default=None)
    if before and (best is None or best[0] < before[-1].group):
        return Target(before[-1], asked_ms=to_ms, exact=False)
    if best is None:
        oldest = min([mark.last_ms for marks in read_marks(store, points[0]).values() for mark in marks], default=None)
        moment = iso_moment(points[0].time_ms if oldest is None else oldest)
        raise NotFound("no backup is as old as that", hint=f"the oldest moment is  --to {moment}")
    mark = best[2]
    older = [point for point in before if point.group <= mark.group]
    return Target(after, mark, older[-1] if older else None, to_ms, exact=best[1])


def choose_arrival(store: BackupStore, arrival: int) -> Target:
    """Return the moment when the newest backup's log had the records below an arrival number. That of the mark before,
    if there is none for it: a mark never divides a transaction."""
    points = _points(store)
    newest = points[-1]
    epochs = _epochs(store, newest)
    same = [point for point in points if point is newest or _precedes(point, newest, epochs)]
    after = next((point for point in same if point.arrival >= arrival), None)
    if after is None:
        raise NotFound(
            f"no backup has records up to arrival number {arrival}", hint=f"the newest has them up to {newest.arrival}"
        )
    if after.arrival == arrival:
        return Target(after, asked_arrival=arrival)
    marks = [mark for marks in read_marks(store, after).values() for mark in marks if mark.arrival <= arrival]
    older = [point for point in same if point.arrival <= arrival]
    best = max(marks, key=lambda mark: mark.arrival, default=None)
    if older and (best is None or older[-1].arrival >= best.arrival):
        return Target(older[-1], asked_arrival=arrival, exact=older[-1].arrival == arrival)
    if best is None:
        raise NotFound("no backup is as old as that", hint="headrace restore FOLDER --list  shows the moments")
    older = [point for point in older if point.group <= best.group]
    return Target(after, best, older[-1] if older else None, asked_arrival=arrival, exact=best.arrival == arrival)


def list_spans(store: BackupStore) -> list[Span]:
    """Return the backups, each with the moments before it that no older one has."""
    spans, last_ms = [], 0
    known: dict[str, list[Mark]] = {}
    for point in _points(store):
        tiers = read_marks(store, point, known).values()
        times = [mark.last_ms for marks in tiers for mark in marks if last_ms < mark.last_ms <= point.time_ms]
        spans.append(Span(point, min(times, default=None), len(set(times))))
        last_ms = point.time_ms
    return spans


def read_marks(store: BackupStore, point: Point, known: dict[str, list[Mark]] | None = None) -> dict[str, list[Mark]]:
    """Return the marks that a backup has, by tier. Those of what was committed while it was made are left out. `known`
    are contents that were read before: most files are in many backups."""
    found: dict[str, list[Mark]] = {tier: [] for tier in TIERS}
    known = {} if known is None else known
    for one in sorted(point.files, key=lambda file: file.path):
        folder, _, name = one.path.partition("/")
        if folder == FOLDER and (marks := found.get(name.rpartition("-")[0])) is not None:
            if one.sha256 not in known:
                known[one.sha256] = [mark for mark, _, _ in decode_marks(_content(store, one), name)]
            marks += [mark for mark in known[one.sha256] if mark.group <= point.group and mark.arrival <= point.arrival]
    return found


def read_target(store: BackupStore, target: Target) -> LogState:
    """Return the log's state at a moment."""
    if target.mark is None:
        return read_point(store, target.point)[0]
    path = f"{FOLDER}/{target.mark.file}"
    one = next(file for file in target.point.files if file.path == path)
    return state_at(_content(store, one), target.mark.length)


def read_point(store: BackupStore, point: Point) -> tuple[LogState, list[Frame]]:
    """Return the log's state at a backup, and the frames that its journal has."""
    return decode_state(Path("journal"), _content(store, point.journal))


def _points(store: BackupStore) -> Sequence[Point]:
    store.check()
    points = store.points()
    if not points:
        raise NotFound(f"`{store.folder}` has no backup that is complete", hint="headrace backup FOLDER makes one")
    return points


def _content(store: BackupStore, one: Stored) -> bytes:
    return b"".join(store.read(one))


def _epochs(store: BackupStore, point: Point) -> Epochs | None:
    for one in point.files:
        if one.path == EPOCHS:
            return decode_epochs(_content(store, one))
    return None


def _precedes(point: Point, other: Point, epochs: Epochs | None) -> bool:
    """Whether a backup is one of the same log as another, made before it: that has everything the former has."""
    return point.group <= other.group and epochs is not None and epochs.include(point.epoch, point.arrival)


def _ambiguous(to_ms: int, first: Mark, last: Mark) -> Conflict:
    return Conflict(
        f"the clock was set back: {iso_moment(to_ms)} was more than once",
        detail=f"the first time the log was at arrival number {first.arrival}, the last time at {last.arrival}",
        hint=f"say which:  --to-arrival {first.arrival}  or  --to-arrival {last.arrival}",
    )
