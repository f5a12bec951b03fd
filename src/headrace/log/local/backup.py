"""Backing up the log's files, also while it is written to.

The journal says what is committed. It is read first; then of each partition its sealed segments are stored, which never
change, and of the active one what the journal knows of. If a segment was rewritten, archived or removed meanwhile, what
was stored might not fit the journal, and all is looked at once more; what is stored already is not copied again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headrace.clock import Clock
from headrace.errors import Conflict, NotFound
from headrace.log.epochs import encode_epochs
from headrace.log.local import journal as journals
from headrace.log.local.archive import MANIFEST, ArchivedFile, Manifest, archived_path, read_manifest
from headrace.log.local.backup_store import BackupStore, Point, Stored
from headrace.log.local.epoch_file import FILE as EPOCHS
from headrace.log.local.epoch_file import read_epochs
from headrace.log.local.marks import EVERY_S as TIERS
from headrace.log.local.marks import FOLDER as MARKS
from headrace.log.local.marks import list_files as list_marks
from headrace.log.local.segment import decode_generation, index_path, list_segments, segment_path
from headrace.log.local.state import LogState, PartitionState, fold
from headrace.log.local.topics import topic_folder

TRIES = 20
QUARANTINED = "quarantined.json"

Progress = Callable[[int, int], None]
"""Bytes looked at, and of how many."""


class _Changed(Exception):
    """A file is not what it was when the journal was read."""


@dataclass(frozen=True, slots=True)
class Backup:
    point: Point
    copied: int
    """Bytes that were not in the backup before."""
    pruned: int


def back_up(log: Path, to: Path, clock: Clock, keep: int = 0, progress: Progress = lambda done, total: None) -> Backup:
    """Add a point to the backups in `to`, of everything that is committed now. With `keep`, only the newest so many
    points stay. `NotFound` if there is no log."""
    if not (log / "journal").exists():
        raise NotFound(f"there is no log in `{log}`", hint="headrace up makes one")
    if to.resolve().is_relative_to(log.resolve()):
        raise Conflict(f"`{to}` is in the log's own folder", hint="name a folder elsewhere, on another disk")
    store = BackupStore(to)
    store.prepare()
    with store.locked():
        known = {one.path: one for point in store.points()[-1:] for one in point.files + point.archived}
        for _ in range(TRIES):
            copying = _Copying(log, store, clock, known, progress)
            try:
                point = copying.run()
            except (_Changed, FileNotFoundError):
                known |= copying.done
                continue
            store.add(point)
            return Backup(point, copying.copied, store.prune(keep) if keep else 0)
    raise Conflict("the log's files changed faster than they could be copied", hint="try again in a while")


@dataclass(slots=True)
class _Copying:
    """One try."""

    log: Path
    store: BackupStore
    clock: Clock
    known: dict[str, Stored]
    progress: Progress
    copied: int = 0
    looked: int = 0
    total: int = 0
    done: dict[str, Stored] = field(default_factory=dict)

    def run(self) -> Point:
        now, epochs = self.clock.now_ms(), read_epochs(self.log)
        state, frames = read_state(self.log)
        files = list(self._files(state))
        self.total = sum(length for _, length, _ in files)
        stored = [self._store(path, length, sealed) for path, length, sealed in files]
        archived: list[Stored] = []
        for home, partition in _homes(self.log, state):
            manifest = _below(read_manifest(home), partition)
            archived += [self._archived(home, one) for one in manifest.files]
            if manifest.files:
                stored.append(self._bytes(home / MANIFEST, msgspec.json.encode(manifest)))
            if (home / QUARANTINED).exists():
                stored.append(self._bytes(home / QUARANTINED, (home / QUARANTINED).read_bytes()))
        for tier in TIERS:
            marks = list_marks(self.log / MARKS, tier)
            stored += [self._store(path, 0, True) for path in marks[:-1]]
            stored += [self._bytes(path, path.read_bytes()) for path in marks[-1:]]
        if epochs is not None:
            stored.append(self._bytes(self.log / EPOCHS, encode_epochs(epochs)))
        payload = state.to_payload() | {"salt": journals.new_salt(), "frames": frames}
        journal = self._bytes(self.log / "journal", journals.encode_record(journals.SNAPSHOT, payload))
        self._check_unchanged(stored)
        current = epochs.current if epochs is not None else None
        return Point(
            now,
            state.next_arrival,
            state.group,
            current.id if current else "",
            current.number if current else 0,
            journal,
            stored,
            archived,
            sum(partition.end - partition.start for topic in state.topics.values() for partition in topic.partitions),
        )

    def _files(self, state: LogState) -> Iterator[tuple[Path, int, bool]]:
        for home, partition in _homes(self.log, state):
            bases = [base for base in list_segments(home) if partition.position and base <= partition.segment]
            for base in bases:
                path, active = segment_path(home, base), base == partition.segment
                yield path, partition.position if active else path.stat().st_size, not active
                if not active and index_path(home, base).exists():
                    yield index_path(home, base), index_path(home, base).stat().st_size, True

    def _store(self, path: Path, length: int, sealed: bool) -> Stored:
        name = str(path.relative_to(self.log))
        descriptor = os.open(path, os.O_RDONLY)
        try:
            found = os.fstat(descriptor)
            length = found.st_size if sealed else length
            if path.suffix == ".seg" and not sealed:
                header = os.pread(descriptor, 64, 0)
                if decode_generation(header, int(path.stem)) != 0 or found.st_size < length:
                    raise _Changed  # it was sealed and rewritten since
            known = self.known.get(name)
            same = known is not None and known.sealed and (known.inode, known.bytes) == (found.st_ino, length)
            if not (known is not None and same and known.modified_ns == found.st_mtime_ns and self.store.has(known)):
                digest = self.store.put(descriptor, length)
                self.copied += length
                known = Stored(name, length, digest, found.st_mtime_ns, found.st_ino, sealed)
        finally:
            os.close(descriptor)
        self.done[name] = known
        self.looked += length
        self.progress(self.looked, self.total)
        return known

    def _archived(self, home: Path, file: ArchivedFile) -> Stored:
        known = self.known.get(file.file)
        path = archived_path(home, file)
        found = path.stat()
        if known is not None and self.store.has(known) and (known.bytes, known.inode) == (found.st_size, found.st_ino):
            return known
        descriptor = os.open(path, os.O_RDONLY)
        try:
            digest = self.store.put(descriptor, found.st_size)
        finally:
            os.close(descriptor)
        self.copied += found.st_size
        stored = Stored(file.file, found.st_size, digest, found.st_mtime_ns, found.st_ino, sealed=True)
        self.done[file.file] = stored
        return stored

    def _bytes(self, path: Path, content: bytes) -> Stored:
        return Stored(str(path.relative_to(self.log)), len(content), self.store.put_bytes(content))

    def _check_unchanged(self, stored: list[Stored]) -> None:
        """Compaction may have removed a record for one that came after the journal was read."""
        for one in stored:
            if one.sealed and os.stat(self.log / one.path).st_ino != one.inode:
                raise _Changed


def read_state(log: Path) -> tuple[LogState, list[journals.Frame]]:
    """What the journal says, and the frames it holds. Its last record may be torn: then it is not committed."""
    path = log / "journal"
    return decode_state(path, path.read_bytes())


def decode_state(path: Path, data: bytes) -> tuple[LogState, list[journals.Frame]]:
    records, length = [], 0
    for kind, payload, after in journals.decode_records(data):
        records.append((kind, payload))
        length = after
    journals.check_records(path, data, records, length)
    return fold(records), list(journals.frames_of(records))


def _homes(log: Path, state: LogState) -> Iterator[tuple[Path, PartitionState]]:
    for topic in state.topics.values():
        for number, partition in enumerate(topic.partitions):
            yield topic_folder(log, topic.topic.name) / str(number), partition


def _below(manifest: Manifest, partition: PartitionState) -> Manifest:
    """Without what was sealed and archived after the journal was read."""
    end = partition.segment if partition.position else partition.end
    return Manifest([file for file in manifest.files if file.next <= end])
