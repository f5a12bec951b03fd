"""A folder of backups: contents of files, each stored once, and points that a log can be restored to.

    objects/ab/abcd…        the content with this SHA-256
    points/20261118T031500.123Z-41.json      a point: which content is which file of the log

A point is written last, and refers only to contents that are synced, so a backup that was cut short leaves at most
contents that the next one uses or removes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec

from headrace.errors import Conflict, LogError, NotFound, UsageError
from headrace.log.local.files import make_folder, replace_file, sync_folder, write_all
from headrace.structs import ready

FORMAT = "headrace-backup 1\n"
CHUNK_BYTES = 4 * 1024 * 1024


class Stored(msgspec.Struct, frozen=True):
    """One file of the log."""

    path: str
    """In the log's folder; of the archive as its manifest has it."""
    bytes: int
    sha256: str
    modified_ns: int = 0
    inode: int = 0
    sealed: bool = False
    """Whether the file never changes under this inode: then it need not be read again."""


class Point(msgspec.Struct, frozen=True):
    time_ms: int
    arrival: int
    """Everything below it is in the backup."""
    group: int
    epoch: str
    epoch_number: int
    journal: Stored
    files: list[Stored]
    archived: list[Stored] = []
    records: int = 0

    @property
    def stored(self) -> list[Stored]:
        return [self.journal, *self.files, *self.archived]

    @property
    def moment(self) -> str:
        return datetime.fromtimestamp(self.time_ms / 1000, UTC).isoformat(timespec="milliseconds")


class BackupStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder, or check that it is one of backups."""
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / "format").exists():
            raise UsageError(f"`{self.folder}` is not empty, and holds no backups", hint="name another folder")
        if not self.folder.exists():
            make_folder(self.folder.parent)
            self.folder.mkdir(mode=0o700)
        for name in ("objects", "points"):
            make_folder(self.folder / name)
        if not (self.folder / "format").exists():
            replace_file(self.folder / "format", FORMAT.encode())
        self.check()

    def check(self) -> None:
        try:
            found = (self.folder / "format").read_text()
        except OSError:
            raise NotFound(f"`{self.folder}` holds no backups", hint="headrace backup FOLDER makes one") from None
        if found != FORMAT:
            raise LogError(f"`{self.folder}` is of another version: `{found.strip()[:40]}`", hint="update Headrace")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """`Conflict` while another backup is made there."""
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise Conflict(f"another backup to `{self.folder}` is being made", hint="wait for it") from None
        finally:
            os.close(descriptor)

    # Contents

    def path(self, digest: str) -> Path:
        return self.folder / "objects" / digest[:2] / digest

    def has(self, one: Stored) -> bool:
        try:
            return self.path(one.sha256).stat().st_size == one.bytes
        except OSError:
            return False

    def put(self, descriptor: int, length: int) -> str:
        """Store the first `length` bytes of an open file; returns their digest. `LogError` if it has fewer."""
        temporary = self.folder / "objects" / f"tmp-{os.getpid()}"
        digest, position = sha256(), 0
        target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            while position < length:
                chunk = os.pread(descriptor, min(CHUNK_BYTES, length - position), position)
                if not chunk:
                    raise LogError(f"a file of the log has {position} bytes, not {length}")
                digest.update(chunk)
                position = write_all(target, [chunk], position)
            os.fsync(target)
        finally:
            os.close(target)
        return self._keep(temporary, digest.hexdigest())

    def put_bytes(self, content: bytes) -> str:
        temporary = self.folder / "objects" / f"tmp-{os.getpid()}"
        replace_file(temporary, content)
        return self._keep(temporary, sha256(content).hexdigest())

    def _keep(self, temporary: Path, digest: str) -> str:
        final = self.path(digest)
        make_folder(final.parent)
        os.replace(temporary, final)
        sync_folder(final.parent)
        return digest

    def read(self, one: Stored) -> Iterator[bytes]:
        """The content, checked. `LogError` if it is not what was stored."""
        digest = sha256()
        try:
            with self.path(one.sha256).open("rb") as source:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    yield chunk
        except FileNotFoundError:
            raise self._damaged(one, "is missing") from None
        if digest.hexdigest() != one.sha256:
            raise self._damaged(one, "is damaged")

    def extract(self, one: Stored, target: Path) -> None:
        """Write a content to a file, checked and synced, with the time it was changed last."""
        make_folder(target.parent)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            position = 0
            for chunk in self.read(one):
                position = write_all(descriptor, [chunk], position)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if one.modified_ns:
            # Retention goes by when a segment's last record came.
            os.utime(target, ns=(one.modified_ns, one.modified_ns))
        sync_folder(target.parent)

    def _damaged(self, one: Stored, how: str) -> LogError:
        return LogError(
            f"the backup's content of `{one.path}` {how}",
            detail=f"file `{self.path(one.sha256)}`",
            hint="restore another moment (--to TIME), or another backup",
        )

    # Points

    def points(self) -> list[Point]:
        """All, the oldest first."""
        found = []
        for file in sorted((self.folder / "points").glob("*.json")):
            try:
                found.append(msgspec.json.decode(file.read_bytes(), type=ready(Point)))
            except msgspec.MsgspecError as error:
                raise LogError(f"`{file}` cannot be read: {error}", hint="restore another backup") from error
        return sorted(found, key=lambda point: (point.time_ms, point.group))

    def add(self, point: Point) -> None:
        moment = datetime.fromtimestamp(point.time_ms / 1000, UTC)
        name = f"{moment:%Y%m%dT%H%M%S}.{point.time_ms % 1000:03}Z-{point.group}.json"
        replace_file(self.folder / "points" / name, msgspec.json.encode(point))

    def prune(self, keep: int) -> int:
        """Remove all points but the newest `keep`, and contents that no point has; returns how many points went."""
        names = sorted((self.folder / "points").glob("*.json"))
        gone = names[:-keep] if keep > 0 else []
        for file in gone:
            file.unlink()
        used = {one.sha256 for point in self.points() for one in point.stored}
        for file in (self.folder / "objects").rglob("*"):
            if file.is_file() and file.name not in used:
                file.unlink()
        return len(gone)
