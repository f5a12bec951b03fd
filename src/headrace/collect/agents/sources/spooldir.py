"""`spooldir`: whole files that appear in a folder, each line once, then renamed or deleted."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.collect.agents.base import AgentError, Counters, Event, Headers, PollingSource
from headrace.collect.agents.interceptors import java_regex
from headrace.collect.agents.options import ComponentKind, Context, Option, Options
from headrace.collect.agents.texts import readable
from headrace.errors import ConfigError
from headrace.patterns import Regex, compile_pattern

logger = logging.getLogger("headrace.agent.spooldir")

CHUNK = 1024 * 1024
BLOB_BYTES = 100_000_000
EVERYTHING, NOTHING = compile_pattern("^.*$"), compile_pattern("^$")
"""Of file names."""


@dataclass(slots=True)
class SpooledFile:
    path: Path
    descriptor: int
    size: int
    identity: str
    """The same for the same file after a restart."""
    headers: Headers
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings:
    suffix: str = ".COMPLETED"
    delete: bool = False
    include: Regex = EVERYTHING
    ignore: Regex = NOTHING
    order: str = "oldest"
    recursive: bool = False
    tracker: Path = Path(".flumespool")
    track_only: bool = False
    batch_size: int = 100
    longest: int = 2048
    blob: bool = False
    file_header: str | None = None
    base_header: str | None = None


class SpoolDirectorySource(PollingSource):
    """A file that cannot be read, or not be put away, is left out for as long as it stays as it is, and said: the
    others go on."""

    def __init__(self, folder: Path, settings: SpoolSettings, counters: Counters) -> None:
        self._folder, self._settings, self._counters = folder, settings, counters
        self._left_out: dict[Path, tuple[int, ...] | None] = {}
        """By its state then; None: whatever becomes of it."""
        self._tracker = settings.tracker if settings.tracker.is_absolute() else folder / settings.tracker
        self._file: SpooledFile | None = None
        self._given = 0

    def poll(self) -> list[Event]:
        while True:
            if self._file is None:
                self._file = self._next_file()
            file = self._file
            if file is None:
                return []
            if os.fstat(file.descriptor).st_size != file.size:
                self._leave_out(file.path, None, "it has changed while it was read")
                os.close(file.descriptor)
                self._file = None
            elif file.offset >= file.size:
                self._finish(file)
            else:
                return self._read_blob(file) if self._settings.blob else self._read_lines(file)

    def _leave_out(self, path: Path, state: tuple[int, ...] | None, why: str) -> None:
        self._left_out[path] = state
        problem = AgentError(
            f"`{readable(str(path))}` is left out: {why}",
            hint="move files here when they are complete, under a name once; for growing files there is `TAILDIR`",
        )
        self._counters.failed("FileLeftOutCount", problem)
        logger.warning("%s", problem)

    def taken(self) -> None:
        assert self._file is not None
        self._file.offset += self._given
        self._remember(self._file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file.descriptor)

    def _read_lines(self, file: SpooledFile) -> list[Event]:
        data = os.pread(file.descriptor, CHUNK, file.offset)
        end = data.rfind(b"\n") + 1
        if not end or file.offset + len(data) >= file.size:
            # The last line may have no end; one longer than a chunk comes in pieces anyway.
            end = len(data)
        events: list[Event] = []
        origin = f"{readable(str(file.path))}:"
        at = 0
        while at < end and len(events) < self._settings.batch_size:
            stop = data.find(b"\n", at, end)
            line = data[at : stop if stop >= 0 else end]
            piece = line[: self._settings.longest]
            id_ = f"{file.identity}:{file.offset + at}"
            events.append(Event(piece.removesuffix(b"\r"), file.headers, id_, origin))
            at += len(piece) + (1 if len(piece) == len(line) and stop >= 0 else 0)
        self._given = at
        return events

    def _read_blob(self, file: SpooledFile) -> list[Event]:
        data = os.pread(file.descriptor, BLOB_BYTES, file.offset)
        self._given = len(data)
        return [Event(data, file.headers, f"{file.identity}:{file.offset}", f"{readable(str(file.path))}:")]

    # Files

    def _next_file(self) -> SpooledFile | None:
        paths = list(self._candidates())
        if not paths:
            return None
        match self._settings.order:
            case "random":
                path = random.choice(paths)
            case "youngest":
                path = max(paths, key=lambda one: (one.stat().st_mtime_ns, one.name))
            case _:
                path = min(paths, key=lambda one: (one.stat().st_mtime_ns, one.name))
        try:
            return self._open(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._leave_out(path, _state(path), (error.strerror or str(error)).lower())
            return self._next_file()

    def _candidates(self) -> Iterator[Path]:
        if not self._folder.is_dir():
            raise AgentError(f"`{self._folder}` is no folder", hint="make it, or correct `spoolDir`")
        done = self._done() if self._settings.track_only else set()
        for path in self._folder.rglob("*") if self._settings.recursive else self._folder.iterdir():
            name = path.name
            if name.startswith(".") or name.endswith(self._settings.suffix) or not path.is_file():
                continue
            if self._tracker in path.parents or str(path.relative_to(self._folder)) in done:
                continue
            if self._settings.include.search(name) and not self._settings.ignore.search(name):
                if path in self._left_out and self._left_out[path] in (None, _state(path)):
                    continue
                yield path

    def _open(self, path: Path) -> SpooledFile:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        named = f"{path.relative_to(self._folder)}:{status.st_size}:{status.st_mtime_ns}:{status.st_ino}"
        identity = hashlib.blake2b(os.fsencode(named), digest_size=10).hexdigest()
        headers: Headers = {}
        if self._settings.file_header:
            headers[self._settings.file_header] = str(path)
        if self._settings.base_header:
            headers[self._settings.base_header] = path.name
        file = SpooledFile(path, descriptor, status.st_size, identity, headers)
        known = self._progress()
        if known.get("identity") == identity:
            file.offset = int(known.get("offset", 0))
        return file

    def _finish(self, file: SpooledFile) -> None:
        os.close(file.descriptor)
        self._file = None
        if self._settings.track_only:
            done = self._done() | {str(file.path.relative_to(self._folder))}
            _write(self._tracker / "done.json", json.dumps(sorted(done)))
        elif self._settings.delete:
            file.path.unlink(missing_ok=True)
        else:
            target = file.path.with_name(file.path.name + self._settings.suffix)
            if target.exists():
                self._leave_out(file.path, None, f"it was read, but `{readable(target.name)}` is there already")
            else:
                file.path.rename(target)

    def _remember(self, file: SpooledFile) -> None:
        _write(self._tracker / "reading.json", json.dumps({"identity": file.identity, "offset": file.offset}))

    def _progress(self) -> dict[str, Any]:
        return dict(_read(self._tracker / "reading.json", dict))

    def _done(self) -> set[str]:
        return set(_read(self._tracker / "done.json", list))


def _state(path: Path) -> tuple[int, ...] | None:
    """Another one when it was written to, or may be read by others than before."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(file: Path, empty: Callable[[], Any]) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return empty()


def _write(file: Path, text: str) -> None:
    """Whole or not at all. Not synced: what is read again has the same ids."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)


def _check(options: Options) -> Iterator[tuple[str, str, str | None]]:
    for name in ("includePattern", "ignorePattern"):
        try:
            java_regex(options.text(name))
        except ConfigError as error:
            yield name, error.message, error.hint


def _make(context: Context) -> SpoolDirectorySource:
    options = context.options
    settings = SpoolSettings(
        suffix=options.text("fileSuffix"),
        delete=options.text("deletePolicy") == "immediate",
        include=java_regex(options.text("includePattern")),
        ignore=java_regex(options.text("ignorePattern")),
        order=options.text("consumeOrder").lower(),
        recursive=options.flag("recursiveDirectorySearch"),
        tracker=Path(options.text("trackerDir")),
        track_only=options.text("trackingPolicy").lower() == "tracker_dir",
        batch_size=options.integer("batchSize"),
        longest=options.integer("deserializer.maxLineLength"),
        blob="blob" in options.text("deserializer").lower(),
        file_header=options.text("fileHeaderKey") if options.flag("fileHeader") else None,
        base_header=options.text("basenameHeaderKey") if options.flag("basenameHeader") else None,
    )
    return SpoolDirectorySource(options.path("spoolDir"), settings, context.counters)


KIND = ComponentKind(
    "source",
    ("spooldir", "org.apache.flume.source.SpoolDirectorySource"),
    "Files that appear in a folder, a line an event, each once.",
    _make,
    (
        Option("spoolDir", "text", None, "The folder.", required=True),
        Option("fileSuffix", "text", ".COMPLETED", "Put behind the name of a file that was read."),
        Option("deletePolicy", "text", "never", "Delete it instead.", choices=("never", "immediate")),
        Option("includePattern", "text", "^.*$", "Names to read: a regular expression."),
        Option("ignorePattern", "text", "^$", "Names to leave out."),
        Option("consumeOrder", "text", "oldest", "Which file is next.", choices=("oldest", "youngest", "random")),
        Option("recursiveDirectorySearch", "flag", False, "Folders in it, too."),
        Option("trackerDir", "text", ".flumespool", "Where it is kept how far a file was read."),
        Option(
            "trackingPolicy",
            "text",
            "rename",
            "`tracker_dir` leaves files as they are.",
            choices=("rename", "tracker_dir"),
        ),
        Option("batchSize", "integer", 100, "Most lines at once.", least=1),
        Option("deserializer", "text", "LINE", "`LINE`, or a blob deserializer for whole files."),
        Option("deserializer.maxLineLength", "integer", 2048, "A longer line becomes several events.", least=1),
        Option("fileHeader", "flag", False, "A header with the file's path."),
        Option("fileHeaderKey", "text", "file", "Its name."),
        Option("basenameHeader", "flag", False, "A header with the file's name."),
        Option("basenameHeaderKey", "text", "basename", "Its name."),
        Option("pollDelay", "integer", 500, "Accepted; the folder is looked at ten times a second."),
        Option("inputCharset", "text", "UTF-8", "Accepted; bytes are taken as they are."),
        Option("decodeErrorPolicy", "text", "FAIL", "Accepted; there is nothing to decode."),
    ),
    _check,
)
