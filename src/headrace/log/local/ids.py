"""Which event ids a topic has seen (contract 11).

A folder per topic: sorted runs of digests (`id_runs`) and a manifest that names them. It is a cache: a watermark per
partition says how much of the log it knows, and the rest is read from the log when it is opened. Ids that are committed
but not yet in a run wait in memory, and there are never more than `MOST_RECENT` of them.

With a window, an id is known for at least that long, and for a quarter longer at most: it goes with its run.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import google_crc32c
import msgspec
import numpy as np

from headrace.clock import Clock, SystemClock
from headrace.errors import LogError
from headrace.log.base import Topic
from headrace.log.local.files import make_folder, replace_file, sync_folder
from headrace.log.local.id_runs import (
    Place,
    Run,
    RunInfo,
    columns_of,
    ends_of,
    find_in,
    living_share,
    merge_runs,
    open_run,
    pack,
    run_path,
    unpack,
    write_run,
)
from headrace.structs import ready

logger = logging.getLogger(__name__)

FLUSH_AT = 20_000
MOST_RECENT = 200_000
FAN = 8
"""So many runs of about one size become one of the next."""
WINDOW_PARTS = 4
"""A run spans at most this part of the window, so that what has expired can go."""
MANIFEST = "manifest.json"


class Manifest(msgspec.Struct, frozen=True):
    runs: list[RunInfo] = []
    """In the order they were made."""
    watermarks: dict[int, int] = {}
    """How much of each partition they know."""
    version: int = 1


class IdIndex:
    """`known` and `remember` are called by the commit thread, the rest by maintenance. A topic without ids has nothing
    but a manifest."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self._folder, self._clock = folder, clock or SystemClock()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._merging = threading.Lock()
        self._recent: dict[bytes, int] = {}
        """Digest → packed place."""
        self._flushing: dict[bytes, int] = {}
        self._ends: dict[int, int] = {}
        self._flushed: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._runs: tuple[Run, ...] = ()
        self._next = 0
        self.window_ms = 0
        """How long ids are known; 0 is as long as their records are kept."""
        self._closed = False

    # Opening

    def watermarks(self) -> dict[int, int]:
        """How much of each partition the files know. `LogError` if they are damaged."""
        found = self._manifest()
        if found is None:
            return {}
        self._runs = tuple(open_run(self._folder, info) for info in found.runs)
        self._next = max((info.number for info in found.runs), default=-1) + 1
        named = {run_path(self._folder, info.number).name for info in found.runs}
        for file in self._folder.iterdir():
            if file.name != MANIFEST and file.name not in named:
                file.unlink()
        return dict(found.watermarks)

    def check(self) -> None:
        """For whoever only looks: `LogError` if the files are damaged."""
        found = self._manifest()
        for info in found.runs if found is not None else ():
            open_run(self._folder, info)

    def _manifest(self) -> Manifest | None:
        try:
            return _decode((self._folder / MANIFEST).read_bytes())
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, OSError) as error:
            raise LogError(f"the index of event ids cannot be read: {error}") from None

    def catch_up(
        self, watermark: int, partition: int, start: int, end: int, read: Callable[[int], Iterable[tuple[int, bytes]]]
    ) -> None:
        """Learn what the log has and the files have not. `read(from)` gives (offset, digest) of records with an id."""
        if watermark > end:
            raise LogError(f"the index of event ids `{self._folder.name}` is ahead of the log")
        self._ends[partition] = max(watermark, start)
        self._starts[partition] = start
        for offset, digest in read(max(watermark, start)):
            self._recent[digest] = pack(partition, offset)
            self._ends[partition] = offset + 1
            if len(self._recent) >= MOST_RECENT:
                self.flush()
        self._ends[partition] = end

    # Asking

    def known(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those of the digests that a record of the topic has."""
        return set(self.places(digests))

    def places(self, digests: Sequence[bytes]) -> dict[bytes, Place]:
        """Where the records are that have these digests."""
        with self._lock:
            recent, flushing, runs = self._recent, self._flushing, self._runs
            found = {digest: unpack(flushing[digest]) for digest in flushing.keys() & digests}
            found |= {digest: unpack(recent[digest]) for digest in recent.keys() & digests}
        rest = [digest for digest in digests if digest not in found] if found else digests
        for digest, (partition, offset) in find_in(runs[::-1], rest):
            if offset >= self._starts.get(partition, 0):
                found.setdefault(digest, (partition, offset))
        return found

    # Learning

    def remember(self, places: dict[bytes, int], ends: dict[int, int]) -> bool:
        """After a commit: its ids, with their packed places, and how far the log goes now. Whether it is time to
        flush."""
        with self._lock:
            self._recent.update(places)
            self._ends.update(ends)
            waiting = len(self._recent)
        if waiting >= MOST_RECENT:
            self.flush()
        return waiting >= FLUSH_AT

    def flush_if_due(self) -> None:
        """From time to time: so that little has to be read from the log after a crash, and runs stay few."""
        if self._recent or self._ends != self._flushed:
            self.flush()
        with self._merging:
            self._expire()
            self._merge()

    def flush(self) -> None:
        """Write what waits in memory. Whoever looks ids up is not held up."""
        with self._writing:
            if self._closed:
                raise LogError("the index of event ids is closed")
            with self._lock:
                # What a flush that failed left behind goes with this one.
                self._flushing, self._recent = self._flushing | self._recent, {}
                ends = dict(self._ends)
            made = self._runs
            if self._flushing:
                make_folder(self._folder)
                info = self._info(self._flushing)
                crc = write_run(self._folder, info.number, columns_of(self._flushing))
                run = open_run(self._folder, msgspec.structs.replace(info, crc=crc), check=False)
                run.prepare()
                made = (*made, run)
            self._replace(made, ends)
            with self._lock:
                self._flushing = {}

    def _info(self, entries: dict[bytes, int]) -> RunInfo:
        ends = ends_of(np.fromiter(entries.values(), np.uint64, len(entries)))
        now = self._clock.now_ms()
        return RunInfo(self._number(), len(entries), now, now, ends)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _replace(self, runs: tuple[Run, ...], ends: dict[int, int]) -> None:
        """Other runs and watermarks: in the manifest first, then for whoever asks, then the old files go."""
        self._folder.mkdir(parents=True, exist_ok=True)
        before = {run.info.number for run in self._runs} - {run.info.number for run in runs}
        content = _encode(Manifest([run.info for run in runs], ends))
        if runs != self._runs:
            sync_folder(self._folder)
        replace_file(self._folder / MANIFEST, content)
        with self._lock:
            self._runs, self._flushed = runs, ends
        for number in before:
            run_path(self._folder, number).unlink(missing_ok=True)

    # Forgetting

    def started(self, partition: int, start: int) -> None:
        """Retention moved a partition's start: ids before it may be used again."""
        self._starts[partition] = start

    def purge(self, stopped: Callable[[], bool]) -> None:
        """Let go of runs whose records are gone, and write those anew that are mostly gone."""
        with self._merging:
            starts = dict(self._starts)
            for run in self._runs:
                if stopped():
                    return
                if living_share(run, starts) < 0.5:
                    self._swap([run], starts)

    def _expire(self) -> None:
        if not self.window_ms:
            return
        before = self._clock.now_ms() - self.window_ms
        if any(run.info.last_ms < before for run in self._runs):
            with self._writing:
                self._replace(tuple(run for run in self._runs if run.info.last_ms >= before), self._flushed)

    def _merge(self) -> None:
        while (group := self._mergeable()) and not self._closed:
            self._swap(group, dict(self._starts))

    def _mergeable(self) -> list[Run]:
        """Neighbours of about one size, and of one part of the window."""
        group: list[Run] = []
        for run in self._runs:
            if group and (_level(run) != _level(group[0]) or not self._fits(group[0], run)):
                group = []
            group.append(run)
            if len(group) == FAN:
                return group
        return []

    def _fits(self, first: Run, last: Run) -> bool:
        return not self.window_ms or last.info.last_ms - first.info.first_ms <= self.window_ms // WINDOW_PARTS

    def _swap(self, group: list[Run], starts: dict[int, int]) -> None:
        """One run in place of several. Written aside, so that others may flush meanwhile."""
        with self._writing:
            number = self._number()
        info = merge_runs(self._folder, group, number, starts)
        run = None if info is None else open_run(self._folder, info, check=False)
        if run is not None:
            run.prepare()
        with self._writing:
            if self._closed:
                return
            merged = [] if run is None else [run]
            at = self._runs.index(group[0])
            self._replace((*self._runs[:at], *merged, *self._runs[at + len(group) :]), self._flushed)

    def close(self, *, flush: bool = True) -> None:
        try:
            if flush and (self._recent or self._flushing or self._ends != self._flushed):
                self.flush()
        except (OSError, LogError) as error:
            logger.warning("cannot write the index of event ids `%s`: %s", self._folder, error)
        with self._writing, self._lock:
            # Its files are mapped as long as somebody has a run.
            self._closed, self._runs = True, ()


def _encode(manifest: Manifest) -> bytes:
    """A line of JSON, and one with its checksum: a watermark that is a little too high would lose ids."""
    content = msgspec.json.encode(manifest)
    return content + b"\n%08x\n" % google_crc32c.value(content)


def _decode(data: bytes) -> Manifest:
    """Older versions wrote no checksum."""
    content, *rest = data.split(b"\n")
    if rest and rest != [b"%08x" % google_crc32c.value(content), b""]:
        raise LogError("the index of event ids is damaged: its manifest does not match its checksum")
    return msgspec.json.decode(content, type=ready(Manifest))


def _level(run: Run) -> int:
    level, size = 0, FLUSH_AT * FAN // 2
    while run.info.count >= size:
        level, size = level + 1, size * FAN
    return level


def ids_folder(log: Path, topic: Topic) -> Path:
    return log / "ids" / str(topic.id)


def delete_index(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    # As it was before there were runs.
    for suffix in ("", "-wal", "-shm"):
        folder.with_name(f"{folder.name}.sqlite{suffix}").unlink(missing_ok=True)
