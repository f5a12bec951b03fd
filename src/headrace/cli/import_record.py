"""What was imported into a project's topics, and how far: in its data folder, so that nothing is sent twice only to be
told that it is there. Losing it loses nothing: ids find out."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import msgspec

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
    """What the ids of its rows call it: the name that this content had first."""


class Records:
    def __init__(self, data: Path | None, topic: str) -> None:
        """`data` is the project's data folder; None remembers nothing."""
        self._file = None if data is None else data / RECORD
        self._saved = 0.0
        self._all: dict[str, dict[str, Imported]] = {}
        if self._file is not None and self._file.exists():
            try:
                self._all = msgspec.json.decode(self._file.read_bytes(), type=dict[str, dict[str, Imported]])
            except msgspec.DecodeError:
                self._all = {}
        self._ours = self._all.setdefault(topic, {})

    def of(self, file: Path) -> Imported:
        """A file that was moved, renamed, copied or touched is what it was."""
        status = file.stat()
        place = str(file.resolve())
        known = self._ours.get(place)
        if known is None or (known.size, known.modified_ns) != (status.st_size, status.st_mtime_ns):
            known = self._ours[place] = self._by_content(file, status)
        return known

    def _by_content(self, file: Path, status: os.stat_result) -> Imported:
        found = Imported(status.st_size, status.st_mtime_ns, name=file.name)
        if self._file is None or not status.st_size:
            return found
        with file.open("rb") as stream:
            found.digest = hashlib.file_digest(stream, "blake2b").hexdigest()[:48]
        same = (one for one in self._ours.values() if (one.size, one.digest) == (found.size, found.digest))
        for one in sorted(same, key=lambda one: (one.complete, one.rows), reverse=True)[:1]:
            found.rows, found.complete, found.name = one.rows, one.complete, one.name
        return found

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
