"""`logger`, `null` and `file_roll`: for looking at, for throwing away, for keeping."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from headrace.clock import Clock
from headrace.collect.agents.base import AgentError, Event, Sink
from headrace.collect.agents.options import ComponentKind, Context, Option

logger = logging.getLogger("headrace.agent.logger")


class LoggerSink(Sink):
    def __init__(self, most_bytes: int = 16, batch_size: int = 1) -> None:
        self._most_bytes, self.batch_size = most_bytes, batch_size

    def deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            shown = event.body[: self._most_bytes]
            text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in shown)
            logger.info("Event: { headers:%s body: %s %s }", dict(event.headers), shown.hex(" ").upper(), text)


class NullSink(Sink):
    def __init__(self, batch_size: int = 100) -> None:
        self.batch_size = batch_size

    def deliver(self, events: Sequence[Event]) -> None:
        return None


class FileRollSink(Sink):
    """Lines into files, a new one every so often. A batch is delivered when it is synced."""

    def __init__(self, folder: Path, interval_s: float, batch_size: int, clock: Clock, newline: bool = True) -> None:
        self._folder, self._interval_s, self.batch_size, self._clock = folder, interval_s, batch_size, clock
        self._newline = newline
        self._descriptor: int | None = None
        self._end = 0
        self._begun = 0.0
        self._number = 0
        self._stamp = clock.now_ms()

    def start(self) -> None:
        if not self._folder.is_dir():
            raise AgentError(f"`{self._folder}` is no folder", hint="make it, or correct `sink.directory`")

    def deliver(self, events: Sequence[Event]) -> None:
        self.idle()
        descriptor = self._descriptor if self._descriptor is not None else self._begin()
        after = b"\n" if self._newline else b""
        data = b"".join(event.body + after for event in events)
        try:
            view, offset = memoryview(data), self._end
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
            os.fdatasync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, self._end)
            raise AgentError(f"`{self._folder}` cannot be written: {(error.strerror or str(error)).lower()}") from error
        self._end += len(data)

    def idle(self) -> None:
        if self._descriptor is not None and self._interval_s and time.monotonic() - self._begun >= self._interval_s:
            self.close()

    def _begin(self) -> int:
        while True:
            # Flume's names: when the sink began, and a number.
            self._number += 1
            try:
                path = self._folder / f"{self._stamp}-{self._number}"
                self._descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
            except FileExistsError:
                continue
            except OSError as error:
                raise AgentError(f"`{path}` cannot be made: {(error.strerror or str(error)).lower()}") from error
            self._end, self._begun = 0, time.monotonic()
            return self._descriptor

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _file_roll(context: Context) -> FileRollSink:
    options = context.options
    return FileRollSink(
        options.path("sink.directory"),
        options.number("sink.rollInterval"),
        options.integer("sink.batchSize"),
        context.ports.clock,
        options.flag("sink.serializer.appendNewline"),
    )


LOGGER = ComponentKind(
    "sink",
    ("logger", "org.apache.flume.sink.LoggerSink"),
    "Writes each event into the agent's own log, to look at.",
    lambda context: LoggerSink(context.options.integer("maxBytesToLog")),
    (Option("maxBytesToLog", "integer", 16, "Bytes of the body that are shown.", least=0),),
)
NULL = ComponentKind(
    "sink",
    ("null", "org.apache.flume.sink.NullSink"),
    "Throws events away.",
    lambda context: NullSink(context.options.integer("batchSize")),
    (Option("batchSize", "integer", 100, "Events at once.", least=1),),
)
FILE_ROLL = ComponentKind(
    "sink",
    ("file_roll", "org.apache.flume.sink.RollingFileSink"),
    "Writes bodies into files, a new one every so often.",
    _file_roll,
    (
        Option("sink.directory", "text", None, "The folder.", required=True),
        Option("sink.rollInterval", "number", 30.0, "Seconds until the next file; 0 is one file for all.", least=0),
        Option("sink.batchSize", "integer", 100, "Events at once, synced together.", least=1),
        Option("sink.serializer", "text", "TEXT", "Bodies, a line each.", choices=("TEXT",)),
        Option("sink.serializer.appendNewline", "flag", True, "A newline behind each body."),
    ),
)
