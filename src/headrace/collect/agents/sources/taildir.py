"""`TAILDIR`: follows growing files, through rotation, truncation and restarts, each line once.

A line's id is the *generation* of its file, its offset, and a checksum of it. A generation is a random name for the
contents of one inode, until they are truncated or replaced; it is in the position file, synced, before the first of its
lines goes anywhere. So a line that is read again after a crash has the id it had. The checksum is for a file that
was rewritten after the crash, up to where nobody had yet noted down having read it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from headrace.collect.agents.base import AgentError, Counters, Event, Headers, PollingSource
from headrace.collect.agents.options import ComponentKind, Context, Option, Options
from headrace.collect.agents.sources.file_groups import FileGroup, make_groups
from headrace.collect.agents.sources.positions import (
    Key,
    TailedFile,
    key_of,
    load_positions,
    new_generation,
    open_tailed,
    save_positions,
)
from headrace.collect.agents.texts import readable
from headrace.errors import ConfigError

logger = logging.getLogger("headrace.agent.taildir")

SCAN_S = 0.25
MAX_LINE = 8 * 1024 * 1024
"""A line longer than this comes in pieces: memory is bounded."""
_PATIENT_BATCHES = 1000


@dataclass(slots=True, kw_only=True)
class TailSettings:
    batch_size: int = 100
    max_batches: int = _PATIENT_BATCHES
    skip_to_end: bool = False
    idle_s: float = 120.0
    save_s: float = 3.0
    file_header: str | None = None
    offset_header: bool = False


class TaildirSource(PollingSource):
    """A file that cannot be read is left out, counted and said, and tried again with every look: the others go on."""

    def __init__(
        self, groups: Sequence[FileGroup], position_file: Path, settings: TailSettings, counters: Counters
    ) -> None:
        self._groups, self._position_file, self._settings = groups, position_file, settings
        self._counters = counters
        self._unreadable: dict[Path, str] = {}
        """Path → why, as of the last look."""
        self._told: dict[Path, str] = {}
        counters.gauge("FilesUnreadable", lambda: len(self._told))
        self._known = load_positions(position_file)
        """By device and inode: what was read before and is not open."""
        self._files: dict[Key, TailedFile] = {}
        self._turn: list[TailedFile] = []
        self._batches = 0
        self._given: tuple[TailedFile, bytes] | None = None
        self._scanned = self._saved = 0.0
        self._changed = self._unsaved = False
        self._average = 200.0

    def poll(self) -> list[Event]:
        """A batch of one file; the files take turns."""
        now = time.monotonic()
        if now - self._scanned > SCAN_S:
            self._scan()
            self._scanned = now
        if self._unsaved or (self._changed and now - self._saved > self._settings.save_s):
            self._save()
        if not self._turn:
            self._turn = [file for file in reversed(self._files.values()) if file.has_more()]
        while self._turn:
            file = self._turn[-1]
            try:
                events = self._read(file)
            except OSError as error:
                # Of this file alone: the others have their turn.
                self._cannot_read(file.path, error)
                self._tell()
                events = []
            self._batches += 1
            if not events or self._batches >= self._settings.max_batches:
                self._turn.pop()
                self._batches = 0
            if events:
                return events
        return []

    def taken(self) -> None:
        if self._given is not None:
            file, read = self._given
            file.advance(read)
            self._given, self._changed = None, True

    def close(self) -> None:
        self._save()
        for file in self._files.values():
            os.close(file.descriptor)

    # Reading

    def _read(self, file: TailedFile) -> list[Event]:
        if file.was_rewritten():
            logger.info("`%s` was truncated or replaced: it is read from its beginning", file.path)
            self._renew(file)
        most = self._settings.batch_size
        want = max(64 * 1024, min(MAX_LINE, int(most * self._average * 1.2)))
        data = os.pread(file.descriptor, want, file.offset)
        end = data.rfind(b"\n") + 1
        if not end:
            return self._read_long(file, data, want)
        lines = data[:end].split(b"\n", most)
        rest = lines.pop()
        used = end - len(rest)
        self._average = 0.9 * self._average + 0.1 * (used / len(lines))
        self._given = (file, data[:used])
        return self._events(file, lines)

    def _read_long(self, file: TailedFile, data: bytes, want: int) -> list[Event]:
        """No end of a line yet: wait for it, unless it is too long, or nobody will write it any more."""
        if len(data) == want and want < MAX_LINE:
            data = os.pread(file.descriptor, MAX_LINE, file.offset)
            end = data.rfind(b"\n") + 1
            if end:
                line = data[: data.index(b"\n")]
                self._given = (file, data[: len(line) + 1])
                return self._events(file, [line])
        abandoned = bool(data) and file.rotated and file.idle_s() > self._settings.idle_s
        if len(data) < MAX_LINE and not abandoned:
            return []
        self._given = (file, data)
        return self._events(file, [data])

    def _events(self, file: TailedFile, lines: Sequence[bytes]) -> list[Event]:
        prefix, at, headers = f"{file.generation}:", file.offset, file.headers
        telling, origin = self._settings.offset_header, f"{readable(str(file.path))}:"
        events = []
        for line in lines:
            if telling:
                headers = file.headers | {"byteoffset": str(at)}
            # Windows' line ends, as Flume does.
            body = line[:-1] if line[-1:] == b"\r" else line
            events.append(Event(body, headers, f"{prefix}{at}:{crc32(line):x}", origin))
            at += len(line) + 1
        return events

    # Finding files

    def _scan(self) -> None:
        seen: set[Key] = set()
        new = False
        self._unreadable = {}
        for group in self._groups:
            for path, status in group.files(self._cannot_read):
                if key_of(status) not in seen:
                    seen.add(key_of(status))
                    new |= self._follow(path, status, group.headers)
        new |= self._find_renamed(seen)
        self._tell()
        for key, file in list(self._files.items()):
            file.rotated = key not in seen
            if not file.has_more() and file.idle_s() > self._settings.idle_s:
                self._let_go(key, file)
        self._unsaved |= new

    def _follow(self, path: Path, status: os.stat_result, headers: Headers) -> bool:
        """Open it if it may have lines to read. Whether it is new: then it goes into the position file first."""
        key = key_of(status)
        if key in self._files:
            self._files[key].path = path
            return False
        known = self._known.get(key)
        lately = time.time() - status.st_mtime < self._settings.idle_s
        if known is not None and known.generation and known.offset == status.st_size and not lately:
            return False
        try:
            file = open_tailed(path, key)
        except OSError as error:
            self._cannot_read(path, error)
            return False
        if file is None:
            return False
        if self._settings.file_header:
            headers = headers | {self._settings.file_header: str(path)}
        file.headers = headers
        self._files[key] = file
        if known is not None:
            file.go_on(known)
        elif self._settings.skip_to_end:
            file.skip(status.st_size)
        if known is None or not known.generation:
            file.generation = new_generation()
            return True
        return False

    def _find_renamed(self, seen: set[Key]) -> bool:
        """A file that was rotated to a name nobody asked for while we were away may have lines that were not read."""
        new = False
        folders: dict[Path, dict[int, str] | None] = {}
        for key, known in list(self._known.items()):
            if key in seen or key in self._files:
                continue
            group = next((one for one in self._groups if one.folder == Path(known.path).parent), None)
            if group is not None and group.folder not in folders:
                folders[group.folder] = _inodes(group.folder)
            names = folders[group.folder] if group is not None else {}
            if names is None:
                # Nobody knows whether it is there: what was read of it is not forgotten.
                continue
            name = names.get(key[1])
            if group is None or name is None:
                del self._known[key]
                continue
            try:
                status = os.stat(name)
            except OSError:
                continue
            if key_of(status) == key:
                new |= self._follow(Path(name), status, group.headers)
        return new

    def _cannot_read(self, path: Path, error: OSError) -> None:
        self._unreadable[path] = (error.strerror or str(error)).lower()

    def _tell(self) -> None:
        """Once of each, until it can be read or something else is wrong with it."""
        for path, why in self._unreadable.items():
            if self._told.get(path) != why:
                problem = AgentError(f"`{readable(str(path))}` is left out: {why}", hint="it is tried again")
                self._counters.failed("FileUnreadableCount", problem)
                logger.warning("%s", problem.message)
        self._told = dict(self._unreadable)

    def _let_go(self, key: Key, file: TailedFile) -> None:
        self._known[key] = file.position()
        os.close(file.descriptor)
        del self._files[key]
        if file in self._turn:
            self._turn.remove(file)

    def _renew(self, file: TailedFile) -> None:
        file.start_again(new_generation())
        self._unsaved = True
        self._save()

    def _save(self) -> None:
        open_now = {key: file.position() for key, file in self._files.items()}
        try:
            save_positions(self._position_file, self._known | open_now)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise AgentError(f"position file `{self._position_file}` cannot be written: {reason}") from error
        self._saved, self._changed, self._unsaved = time.monotonic(), False, False


def _inodes(folder: Path) -> dict[int, str] | None:
    """None if it cannot be looked at."""
    try:
        return {entry.inode(): entry.path for entry in os.scandir(folder)}
    except FileNotFoundError:
        return {}
    except OSError:
        return None


def _check(options: Options) -> Iterator[tuple[str, str, str | None]]:
    try:
        make_groups(options)
    except ConfigError as error:
        yield "filegroups", error.message, error.hint


def _make(context: Context) -> TaildirSource:
    options = context.options
    positions = (
        options.path("positionFile")
        if options.text("positionFile")
        else context.ports.home(context.agent) / "taildir_position.json"
    )
    settings = TailSettings(
        batch_size=options.integer("batchSize"),
        max_batches=min(options.integer("maxBatchCount"), _PATIENT_BATCHES),
        skip_to_end=options.flag("skipToEnd"),
        idle_s=options.integer("idleTimeout") / 1000,
        save_s=options.integer("writePosInterval") / 1000,
        file_header=options.text("fileHeaderKey") if options.flag("fileHeader") else None,
        offset_header=options.flag("byteOffsetHeader"),
    )
    return TaildirSource(make_groups(options), positions, settings, context.counters)


KIND = ComponentKind(
    "source",
    ("TAILDIR", "org.apache.flume.source.taildir.TaildirSource"),
    "Follows growing files, a line an event, through rotation and restarts.",
    _make,
    (
        Option("filegroups", "words", None, "Names of groups of files.", required=True),
        Option("filegroups.*", "text", None, "A folder, and a regular expression for the names in it."),
        Option("headers.*", "text", None, "`GROUP.HEADER = value`, for all lines of a group."),
        Option("positionFile", "text", "", "Where it is kept how far each file was read."),
        Option("batchSize", "integer", 100, "Most lines at once.", least=1),
        Option("maxBatchCount", "integer", 2**63 - 1, "Batches of one file before the next has its turn.", least=1),
        Option("skipToEnd", "flag", False, "Begin a file that is not known at its end."),
        Option(
            "idleTimeout", "integer", 120_000, "Milliseconds after which a file that does not grow is closed.", least=0
        ),
        Option("writePosInterval", "integer", 3000, "Milliseconds between writes of the position file.", least=0),
        Option("fileHeader", "flag", False, "A header with the file's path."),
        Option("fileHeaderKey", "text", "file", "Its name."),
        Option("byteOffsetHeader", "flag", False, "A header `byteoffset` with the line's offset."),
        Option("cachePatternMatching", "flag", True, "Accepted; folders are looked at four times a second."),
        Option("backoffSleepIncrement", "integer", 1000, "Accepted; new lines are looked for all the time."),
        Option("maxBackoffSleep", "integer", 5000, "Accepted."),
    ),
    _check,
)
