"""Marks record the log's state over time, so that a backup can be restored to a moment before it was made.

A record does not say when it was acknowledged. While something is committed, the owner writes a mark every second: the
time, the next arrival number, and whatever of the journal's state has changed since the mark before. It is never
synced: after a power cut the last marks may be missing, and the moments with them, but no record.

Marks are kept in two tiers, of seconds and of minutes, each a series of files that are only appended to. A file begins
with the whole state, so the oldest can be removed when there are too many. What was committed between `first_ms` and
`last_ms` is what a mark has more than the one before it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.log.local import journal as journals
from headrace.log.local.files import write_all
from headrace.log.local.mark_changes import Changes, apply_changes, find_changes
from headrace.log.local.state import LogState

logger = logging.getLogger(__name__)

FOLDER = "marks"
MARK = 7
"""The kind of a record that has changes only; a file's first record is a snapshot of the state."""
EVERY_S = {"seconds": 1.0, "minutes": 60.0}
"""The tiers, and how far apart their marks are."""
FILE_BYTES, FILES = 256 * 1024, 128
"""A longer file is followed by another one, and only so many of a tier are kept."""
_STEP_BACK_MS = 60_000
"""A clock that is set back by less is taken to stand still meanwhile, so that moments are not there twice."""


class Mark(NamedTuple):
    """The log's state at one time."""

    first_ms: int
    """When the first change was committed that the mark before does not have."""
    last_ms: int
    group: int
    arrival: int
    file: str
    length: int
    """Of the file, up to this mark."""


def list_files(folder: Path, tier: str) -> list[Path]:
    """The files of a tier, the oldest first."""
    return sorted(folder.glob(f"{tier}-*"))


def decode_marks(data: bytes, file: str) -> Iterator[tuple[Mark, int, dict[str, Any]]]:
    """Return the marks of a file with their kinds and payloads, up to its first damaged byte."""
    for kind, payload, after in journals.decode_records(data):
        if kind not in (journals.SNAPSHOT, MARK):
            return
        yield (
            Mark(payload["first_ms"], payload["last_ms"], payload["group"], payload["next_arrival"], file, after),
            kind,
            payload,
        )


def state_at(data: bytes, length: int) -> LogState:
    """Return the state at the mark that ends at `length` in a file."""
    state = LogState()
    for _, kind, payload in decode_marks(data[:length], ""):
        state = apply_changes(state, kind, payload)
    return state


class Tier:
    """The marks of one resolution, as their writer sees them. An `OSError` of its leaves it to begin a new file."""

    def __init__(self, folder: Path, name: str, opened: tuple[int, int]) -> None:
        self.name, self.changes = name, Changes()
        self._folder = folder
        self._opened: tuple[int, int] | None = opened
        """Group and arrival number at which the log was opened; None once they were compared with the last mark."""
        self._span: tuple[int, int] | None = None
        self._written = -1e9
        self._file: Path | None = None
        """None: it is not known yet what is there."""
        self._anew = False
        self._size = self._limit = self._last_ms = 0

    def add(self, changes: Changes, first_ms: int, last_ms: int) -> None:
        self.changes.add(changes)
        self._span = (first_ms if self._span is None else self._span[0], last_ms)

    def is_due(self, now: float) -> bool:
        return self._span is not None and now - self._written >= EVERY_S[self.name]

    def forget_file(self) -> None:
        """Look at the files again before the next mark: the state may not be what it was."""
        self._file = None

    def begin_anew(self) -> None:
        """Begin a new file with the next mark, whatever is there."""
        self._file, self._anew = None, True

    def write(self, state: LogState, now: float) -> None:
        if self._span is None:
            return
        file = self._resume(state) if self._file is None and not self._anew else self._file
        first_ms, last_ms = (
            max(time_ms, self._last_ms) if self._last_ms - time_ms < _STEP_BACK_MS else time_ms
            for time_ms in self._span
        )
        times = {"first_ms": min(first_ms, last_ms), "last_ms": last_ms}
        if file is None or self._size >= self._limit:
            self._begin(journals.encode_record(journals.SNAPSHOT, state.to_payload() | times))
        else:
            record = journals.encode_record(MARK, self.changes.encode(state) | times)
            self._size = _append(file, record, self._size)
        self.changes, self._span, self._last_ms, self._written = Changes(), None, last_ms, now

    def _resume(self, state: LogState) -> Path | None:
        """Go on after the last mark that is of this log; marks of what the log no longer has are removed."""
        for file in reversed(list_files(self._folder, self.name)):
            found, known, first = None, LogState(), 0
            for mark, kind, payload in decode_marks(file.read_bytes(), file.name):
                if mark.group > state.group or mark.arrival > state.next_arrival:
                    break
                found, known, first = mark, apply_changes(known, kind, payload), first or mark.length
            if found is None:
                file.unlink()
                continue
            self.changes.add(find_changes(known, state))
            self._file, self._size, self._last_ms = file, found.length, found.last_ms
            self._limit = max(FILE_BYTES, 4 * first)
            if self._span is not None and self._opened not in (None, (known.group, known.next_arrival)):
                # The last marks before the log was opened are missing: what they had came at any time since.
                self._span = (min(found.last_ms, self._span[0]), self._span[1])
            self._opened = None
            return file
        self._opened = None
        return None

    def _begin(self, record: bytes) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        files = list_files(self._folder, self.name)
        number = int(files[-1].name.rpartition("-")[2]) + 1 if files else 1
        file = self._folder / f"{self.name}-{number:010}"
        try:
            self._size, self._limit = _append(file, record, 0), max(FILE_BYTES, 4 * len(record))
        except OSError:
            file.unlink(missing_ok=True)
            raise
        self._file, self._anew = file, False
        for old in [*files, file][:-FILES]:
            old.unlink(missing_ok=True)


def _append(file: Path, record: bytes, size: int) -> int:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.ftruncate(descriptor, size)
        return write_all(descriptor, [record], size)
    finally:
        os.close(descriptor)


class Marks:
    """The owner's marks. All but `is_due` is for the commit thread."""

    def __init__(self, folder: Path, clock: Clock, opened: LogState) -> None:
        self._clock = clock
        at = (opened.group, opened.next_arrival)
        self._tiers = [Tier(folder / FOLDER, name, at) for name in EVERY_S]
        self._changes = Changes()
        self._first_ms: int | None = None
        self._last_ms = 0

    def note(self, kind: int, payload: Any) -> None:
        """Take in what was committed just now, before its writers know."""
        self._last_ms = self._clock.now_ms()
        if self._first_ms is None:
            self._first_ms = self._last_ms
        self._changes.note(kind, payload)

    def is_due(self) -> bool:
        now = time.monotonic()
        return self._first_ms is not None or any(tier.is_due(now) for tier in self._tiers)

    def write(self, state: LogState, *, all_tiers: bool = False) -> None:
        """Write the marks that are due. A failure costs moments to restore to, nothing else."""
        if self._first_ms is not None:
            for tier in self._tiers:
                tier.add(self._changes, self._first_ms, self._last_ms)
            self._changes, self._first_ms = Changes(), None
        now = time.monotonic()
        for tier in self._tiers:
            try:
                if all_tiers or tier.name == "seconds" or tier.is_due(now):
                    tier.write(state, now)
            except OSError as error:
                logger.warning("a mark to restore to could not be written: %s", error)
                tier.forget_file()
            except Exception:
                # Whoever writes to the log is not concerned, whatever it is.
                logger.exception("the marks of %s cannot be continued; they begin anew", tier.name)
                tier.begin_anew()

    def forget_files(self) -> None:
        for tier in self._tiers:
            tier.forget_file()


def mark_restored(log: Path, state: LogState, moment_ms: int, clock: Clock) -> None:
    """Note that a log was put back to a moment just now: what was committed in between is not in it."""
    for name in EVERY_S:
        tier = Tier(log / FOLDER, name, (state.group, state.next_arrival))
        tier.add(Changes(), moment_ms, clock.now_ms())
        tier.write(state, time.monotonic())


class Marker:
    """The thread that has marks written while something is committed, and once after."""

    def __init__(self, is_due: Callable[[], bool], write: Callable[[], None]) -> None:
        self._is_due, self._write = is_due, write
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-marks", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S["seconds"]):
            if self._is_due():
                try:
                    self._write()
                except HeadraceError as error:
                    logger.debug("no mark was written: %s", error)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
