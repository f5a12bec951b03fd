"""What was imported into a project's topics, and how far: in its data folder, so that nothing is sent twice only to be
told that it is there. Losing it loses nothing: ids find out."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import msgspec

from headrace.structs import ready

RECORD = "imports.json"
SAVE_S = 1.0


class Imported(msgspec.Struct):
    """How far a file is in a topic. One with other content begins anew; ids keep it harmless."""

    size: int
    modified_ns: int
    rows: int = 0
    complete: bool = False
    digest: str = ""
    name: str = ""
    """What the ids of its rows call it: the name that this content had first, or the file before it changed."""
    copy_of: str = ""
    """Another file of the same content, which is still there: these rows count as that one's."""


class Records:
    def __init__(self, data: Path | None, topic: str) -> None:
        """`data` is the project's data folder; None remembers nothing."""
        self._file = None if data is None else data / RECORD
        self._saved = 0.0
        self._all: dict[str, dict[str, Imported]] = {}
        if self._file is not None and self._file.exists():
            try:
                self._all = msgspec.json.decode(self._file.read_bytes(), type=ready(dict[str, dict[str, Imported]]))
            except msgspec.DecodeError:
                self._all = {}
        self._ours = self._all.setdefault(topic, {})

    def of(self, file: Path, copies: bool = False) -> Imported:
        """A file that was moved, renamed or touched is what it was. So is a copy, unless `copies` are files of their
        own."""
        status = file.stat()
        place = str(file.resolve())
        known = self._ours.get(place)
        if known is not None and known.copy_of and not Path(known.copy_of).exists():
            known.copy_of = ""
        changed = known is None or (known.size, known.modified_ns) != (status.st_size, status.st_mtime_ns)
        if known is None or changed or (copies and known.copy_of):
            known = self._ours[place] = self._by_content(file, place, status, copies)
        return known

    def _by_content(self, file: Path, place: str, status: os.stat_result, copies: bool) -> Imported:
        before = self._ours.get(place)
        # A file that has grown keeps the name of its rows, whatever it is called by now.
        name = file.name if before is None or (copies and before.copy_of) else before.name
        found = Imported(status.st_size, status.st_mtime_ns, name=name)
        if self._file is None or not status.st_size:
            return found
        with file.open("rb") as stream:
            found.digest = hashlib.file_digest(stream, "blake2b").hexdigest()[:48]
        if before is not None and _content(before) == _content(found) and not (copies and before.copy_of):
            return msgspec.structs.replace(before, modified_ns=status.st_mtime_ns)
        same = [where for where, one in self._ours.items() if where != place and _content(one) == _content(found)]
        there = [where for where in same if Path(where).exists()]
        moved = [where for where in same if where not in there]
        if moved:
            # One file can only be in one place: another of this content is a copy.
            one = self._ours.pop(max(moved, key=self._how_far))
            found.rows, found.complete, found.name = one.rows, one.complete, one.name
        elif there and copies:
            found.name = place if any(self._ours[where].name == file.name for where in there) else file.name
        elif there:
            found.copy_of = max(there, key=self._how_far)
            one = self._ours[found.copy_of]
            found.rows, found.complete, found.name = one.rows, one.complete, one.name
        return found

    def _how_far(self, place: str) -> tuple[bool, int]:
        return self._ours[place].complete, self._ours[place].rows

    def save(self, now: bool = True) -> None:
        """Otherwise at most once a second: many small files make a record that takes its time to write."""
        if self._file is None or (not now and time.monotonic() - self._saved < SAVE_S):
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        with new.open("wb") as stream:
            stream.write(msgspec.json.encode(self._all))
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(self._file)
        self._saved = time.monotonic()


def _content(one: Imported) -> tuple[int, str]:
    return one.size, one.digest
