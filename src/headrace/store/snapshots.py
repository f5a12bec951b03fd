"""Snapshots of a view's file: where AS OF begins, so that it need not replay all that the changelog ever had.

A snapshot is a whole view file, with the position and the epoch of the log that its rows belong to. Its name says how
many changes it includes and the newest event time in it. One of another definition, or of a log that was restored
since, is not used, and removed.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.log.base import Log, Snapshot
from headrace.store.base import ViewStore
from headrace.store.positions import belongs, is_same_log
from headrace.store.sqlite_view import SqliteView, remove

FOLDER = "snapshots"
ROOM = 4
"""A snapshot is taken if so many would fit on the disk."""

logger = logging.getLogger("headrace.store")


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    path: Path
    changes: int
    """Records of the changelog that it includes."""
    newest_ms: int
    """The newest event time in its rows."""


def snapshot_files(view: SqliteView) -> list[SnapshotFile]:
    """Return the snapshots of a version, the oldest first."""
    found = []
    for path in _folder(view).glob("*.sqlite"):
        changes, _, newest = path.stem.partition("_")
        if changes.isdecimal() and newest.lstrip("-").isdecimal():
            found.append(SnapshotFile(path, int(changes), int(newest)))
    return sorted(found, key=lambda one: one.changes)


def take_snapshot(view: ViewStore, every: int, most: int) -> bool:
    """Take one if the view has changed so often since the last; keep so many. Whether one was taken."""
    if not isinstance(view, SqliteView) or not can_have_snapshots(view) or not every or not most:
        return False
    known = snapshot_files(view)
    changes = sum(view.position().offsets.values())
    if changes - (known[-1].changes if known else 0) < every:
        return False
    if shutil.disk_usage(view.path.parent).free < ROOM * view.path.stat().st_size:
        logger.warning("view `%s`: no snapshot is taken, the disk is nearly full", view.source.name)
        return False
    _folder(view).mkdir(parents=True, exist_ok=True)
    new = _folder(view) / "new"
    remove(new)
    taken = _copy(view, new)
    new.replace(_folder(view) / f"{taken.changes}_{taken.newest_ms}.sqlite")
    for one in _superfluous(snapshot_files(view), most):
        remove(one.path)
    return True


def can_have_snapshots(view: ViewStore) -> bool:
    """Rows that expire, and parts of rows, are put together from the changelog alone."""
    return view.horizon() is None and view.layers is None


def _copy(view: SqliteView, new: Path) -> SnapshotFile:
    source = sqlite3.connect(f"{view.path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        source.execute("VACUUM INTO ?", (str(new),))
    finally:
        source.close()
    copied = SqliteView(new, view.source, view.version, 1)
    try:
        rows, _ = copied.select(["ROWTIME"], None, (("ROWTIME", True),), 1, 600.0)
        newest = rows.rows[0][0] if rows.rows else 0
        return SnapshotFile(new, sum(copied.position().offsets.values()), newest)
    finally:
        copied.close()


def _superfluous(files: list[SnapshotFile], most: int) -> list[SnapshotFile]:
    """Those to remove, so that the others lie as far apart as may be. The newest stays."""
    left, gone = list(files), []
    while len(left) > most:
        starts = [0, *(one.changes for one in left)]
        gaps = [starts[at + 2] - starts[at] for at in range(len(left) - 1)] or [0]
        gone.append(left.pop(gaps.index(min(gaps))))
    return gone


def open_snapshot(log: Log, view: ViewStore, until: Snapshot) -> tuple[SqliteView, int] | None:
    """Open the newest snapshot that has nothing beyond a moment, with the newest event time in it. Who opens it closes
    it."""
    if not isinstance(view, SqliteView) or not can_have_snapshots(view):
        return None
    topic = view.source.topic
    ends = until.ends.get(topic, ())
    for one in reversed(snapshot_files(view)):
        if one.changes > sum(end.end for end in ends):
            continue
        try:
            found = SqliteView(one.path, view.source, view.version, 1)
        except HeadraceError as error:
            logger.warning("a snapshot of `%s` is removed: %s", view.source.name, error.message)
            remove(one.path)
            continue
        position = found.position()
        if not is_same_log(log, found.epoch, position) or not belongs(log, log.snapshot(), topic, position):
            logger.warning("a snapshot of `%s` is removed: it is of another log", view.source.name)
            found.close()
            remove(one.path)
            continue
        if all(offset <= ends[number].end for number, offset in position.offsets.items() if number < len(ends)):
            return found, one.newest_ms
        found.close()
    return None


def remove_snapshots(view_file: Path, version: int) -> None:
    """Remove all snapshots of a version, by the path of its file."""
    folder = view_file.parent / FOLDER
    shutil.rmtree(folder / f"v{version}", ignore_errors=True)
    with contextlib.suppress(OSError):
        # Only if it is empty.
        folder.rmdir()


def _folder(view: SqliteView) -> Path:
    return view.path.parent / FOLDER / f"v{view.version}"
