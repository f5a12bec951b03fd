"""Files that hold each record once: what was written and how far it reached are remembered in one step.

A file is written under a name that nobody looks at, and synced. Then the position after it and the name it will have
are remembered, atomically. Then it is renamed. Killed before the second step, the file is forgotten and made again;
killed after it, the rename is what is left to do."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.errors import LogError
from headrace.log.local.files import make_folder, replace_file, sync_file, sync_folder
from headrace.structs import ready

TEMPORARY = ".headrace-"


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a delivery stream is, by partition; and the file that is to get its name."""

    made: int
    topic_id: int | None = None
    """Whose offsets they are. None: an older version did not say."""
    offsets: dict[int, int] = {}
    epoch: str | None = None
    """Of the log, when they were saved. None: an older version did not say."""
    temporary: str | None = None
    final: str | None = None
    files: int = 0
    records: int = 0
    rejected: int = 0
    """Dead letters."""
    last_file: str | None = None
    last_file_ms: int | None = None


class Positions:
    """One delivery stream's position, in a file."""

    def __init__(self, path: Path, made: int) -> None:
        self.path, self._made = path, made

    def read(self) -> Position:
        """As it was left. One of an earlier stream of that name says nothing."""
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=ready(Position))
        except FileNotFoundError:
            return Position(made=self._made)
        except msgspec.DecodeError as error:
            raise LogError(f"`{self.path}` cannot be read: {error}") from error
        return found if found.made == self._made else Position(made=self._made)

    def load(self) -> Position:
        """The same, with the last rename done."""
        found = self.read()
        if found.temporary is not None and found.final is not None:
            finish(Path(found.temporary), Path(found.final))
        return found

    def save(self, position: Position) -> None:
        make_folder(self.path.parent)
        replace_file(self.path, msgspec.json.encode(position))

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


def finish(temporary: Path, final: Path) -> None:
    """The rename, if it is not done yet. Somebody may have taken file and folder away since."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(temporary, final)
    with contextlib.suppress(FileNotFoundError):
        sync_folder(final.parent)


def write_temporary(final: Path, made: int, content: bytes) -> Path:
    """The content, synced, beside where it will be."""
    make_folder(final.parent)
    temporary = final.with_name(f"{TEMPORARY}{made}-{final.name}")
    temporary.write_bytes(content)
    sync_file(temporary)
    return temporary


def sweep(bucket: Path, made: int) -> None:
    """Files of this stream that were never remembered: what is in them is written again."""
    for path in bucket.rglob(f"{TEMPORARY}{made}-*"):
        path.unlink(missing_ok=True)


def join_records(values: Sequence[bytes], delimiter: bytes, compress: bool) -> bytes:
    """Records one after the other, as Firehose writes them."""
    whole = b"".join(value + delimiter for value in values) if delimiter else b"".join(values)
    return gzip.compress(whole, compresslevel=6, mtime=0) if compress else whole
