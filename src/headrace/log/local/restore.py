"""Putting a log back as it was at a moment that a backup has.

Everything is written beside the log first, checked and synced. Then the log of now is renamed, never deleted, and the
restored one takes its name. A mark in the data folder says that this is under way: while it is there, nobody opens the
log, and restoring again begins anew. The next opening begins an epoch that no position of the former log knows.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headrace.clock import Clock
from headrace.errors import Conflict, LogError
from headrace.log.local.backup_store import BackupStore, Stored
from headrace.log.local.cutting import Cut, Loss
from headrace.log.local.files import make_folder, replace_file, sync_folder
from headrace.log.local.lock import OwnerLock
from headrace.log.local.marks import mark_restored
from headrace.log.local.moments import Target, read_target
from headrace.log.local.recovery import FORMAT

MARK = "restore.json"
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Restored:
    target: Target
    records: int
    aside: Path | None
    """Where the log of before is."""
    replaced: tuple[str, ...]
    """Files of the archive that were others, and were set aside."""
    losses: tuple[Loss, ...] = ()


def check_interrupted(log: Path) -> None:
    """`LogError` if a restore was begun and not finished: there may be no log, and nobody is to begin an empty one."""
    mark = log.parent / f"{log.name}.{MARK}"
    if mark.exists():
        raise LogError(
            f"the log in `{log}` was being restored, and that was cut short",
            detail=f"file `{mark}`",
            hint="restore it again:  headrace restore FOLDER",
        )


def restore_log(
    log: Path, store: BackupStore, target: Target | Cut, clock: Clock, progress: Progress = lambda done, total: None
) -> Restored:
    """Make the log what it was at a moment. `Conflict` while somebody owns it."""
    cut, target = (target, target.target) if isinstance(target, Cut) else (None, target)
    if cut is None and target.mark is not None:
        cut = Cut(store, target)
    point = target.point
    stored = [*point.stored, *(target.before.stored if target.before is not None else ())]
    missing = [one for one in stored if not store.has(one)]
    if missing:
        raise LogError(
            f"the backup lacks {len(missing)} of {len(stored)} files",
            detail=f"the first is `{missing[0].path}`",
            hint="restore another moment (--to TIME), or another backup",
        )
    make_folder(log.parent)
    with _owned(log):
        new, mark = log.with_name(f"{log.name}.restoring"), log.parent / f"{log.name}.{MARK}"
        shutil.rmtree(new, ignore_errors=True)
        total, done = sum(one.bytes for one in point.stored), 0
        if cut is None:
            for one in [*point.files, point.journal]:
                store.extract(one, _inside(new, one.path))
                progress(done := done + one.bytes, total)
        else:
            for one in point.files:
                _inside(new, one.path)
            done = cut.write(new, progress)
        state = cut.state if cut is not None else read_target(store, target)
        mark_restored(new, state, target.time_ms, clock)
        replace_file(new / "format", FORMAT.encode())
        replaced = []
        for one in cut.archived if cut is not None else point.archived:
            if _restore_archived(store, one, log):
                replaced.append(one.path)
            progress(done := done + one.bytes, max(done, total))
        replace_file(mark, msgspec.json.encode({"moment": target.moment, "arrival": target.arrival}))
        aside = _set_aside(log)
        os.rename(new, log)
        sync_folder(log.parent)
        mark.unlink()
        sync_folder(log.parent)
    records = cut.records if cut is not None else point.records
    return Restored(target, records, aside, tuple(replaced), tuple(cut.losses) if cut is not None else ())


@contextmanager
def _owned(log: Path) -> Iterator[None]:
    if not log.is_dir():
        yield
        return
    lock = OwnerLock(log)
    try:
        yield
    finally:
        lock.release()


def _inside(folder: Path, path: str) -> Path:
    """A backup may have been tampered with: nothing is written elsewhere."""
    target = folder / path
    if not target.resolve().is_relative_to(folder.resolve()):
        raise Conflict(f"the backup names a file outside of the log: `{path[:100]}`")
    return target


def _restore_archived(store: BackupStore, one: Stored, log: Path) -> bool:
    """Put a file of the archive back if it is not there; True if another one of that name was set aside for it."""
    target = log / one.path
    if target.is_file() and target.stat().st_size == one.bytes and _digest_is(target, one):
        return False
    replaced = target.exists()
    if replaced:
        os.rename(target, target.with_name(f".{target.name}.before-restore"))
    store.extract(one, target)
    return replaced


def _digest_is(path: Path, one: Stored) -> bool:
    from hashlib import file_digest

    with path.open("rb") as source:
        return file_digest(source, "sha256").hexdigest() == one.sha256


def _set_aside(log: Path) -> Path | None:
    if not log.exists():
        return None
    aside = aside_name(log)
    os.rename(log, aside)
    return aside


def aside_name(path: Path) -> Path:
    """A name beside it that is free."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    number, found = 1, path.with_name(f"{path.name}.before-restore-{stamp}")
    while found.exists():
        number, found = number + 1, path.with_name(f"{path.name}.before-restore-{stamp}-{number}")
    return found
