"""The log as a collector sees it that nobody can ask to send again: each append once, and with it where it has got to.

A listener has taken what a device will not repeat; a puller must go on exactly where it was. So every append is one
transaction of a producer with the collector's name, and holds, besides the events and the dead letters, the collector's
*cursor*. A former process of that name is fenced. When an append's fate is not known, because the log went away before
it answered, the cursor in the log tells.
"""

from __future__ import annotations

import contextlib
import random
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import pyarrow as pa

from headrace.errors import Conflict, DiskFull, Fenced, HeadraceError, LogError, NotRunning, Overloaded
from headrace.log.base import Acks, Append, Appended, Log, Producer, Topic, TopicConfig, TopicSpec
from headrace.structs import ready

CURSORS_TOPIC = "_cursors"
CURSORS_SPEC = TopicSpec(CURSORS_TOPIC, kind="raw", config=TopicConfig(compacted=True))
LONGEST_PAUSE_S = 5.0
_PASSING = (Overloaded, NotRunning, LogError, DiskFull)
"""What gets better by itself."""
_LOOK_BACK = 1024


class Stopped(Exception):
    """The collector is to stop: what was not written was not taken."""


class _Mark(msgspec.Struct, frozen=True):
    """A record of `_cursors`; its key is the collector's name."""

    write: str
    """Which append this is, so that it is known again."""
    cursor: Any = None


class Outlet:
    """For one thread. `append` waits, for as long as the log is away or full, and `say` is told why."""

    def __init__(self, log: Log, name: str, stopping: threading.Event, say: Callable[[str | None], None]) -> None:
        self.name = name
        self.schemas = log.schemas
        self.written = 0
        """Appends, so far."""
        self._log, self._stopping, self._say = log, stopping, say
        self._producer: Producer | None = None
        self._cursor: Any = None
        self._pending = False
        self._last = ""
        """The append that the log knew of last."""

    def topic(self, name: str) -> Topic:
        return self._log.topic(name)

    def create_topic(self, spec: TopicSpec) -> Topic:
        return self._log.create_topic(spec)

    def open(self) -> Any:
        """From now on this is the only one of its name. Its cursor, None if it never had one."""
        while True:
            try:
                mark = self._take_over()
            except _PASSING as error:
                self._pause(0, error)
            else:
                self._say(None)
                self._last = "" if mark is None else mark.write
                return None if mark is None else mark.cursor

    def advance(self, cursor: Any) -> None:
        """The cursor that the next `append` carries, and every one after it."""
        self._cursor, self._pending = cursor, True

    def settle(self) -> None:
        """Write a cursor that no append has carried: all it stood for was nothing to keep."""
        if self._pending:
            self.append([])

    def append(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]:
        """Done when it returns. Whatever the `acks`, it is durable."""
        mark = _Mark(uuid.uuid4().hex, self._cursor)
        done: Future[list[Appended]] = Future()
        done.set_result(self._write_once(list(appends), mark))
        self._pending, self._last = False, mark.write
        self.written += 1
        return done

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            # Whatever it was in, the next one of this name finishes.
            with contextlib.suppress(HeadraceError):
                producer.close()

    def _write_once(self, appends: list[Append], mark: _Mark) -> list[Appended]:
        tries = 0
        while True:
            try:
                if self._producer is None:
                    known = self._take_over()
                    if known is not None and known.write == mark.write:
                        return [Appended(()) for _ in appends]
                    self._check_last(known)
                assert self._producer is not None
                results = self._write(self._producer, appends, mark)
            except Fenced as error:
                self.close()
                if error.data.get("forgotten"):
                    # Nobody took the name: the log was quiet for so long that it forgot us.
                    continue
                raise Conflict(
                    f"another process runs the collector `{self.name}`", hint="stop one of them", detail=str(error)
                ) from error
            except _PASSING as error:
                self.close()
                self._pause(tries, error)
                tries += 1
            except Exception:
                # It does not fit, and will not: nothing of it was taken.
                self.close()
                raise
            else:
                if tries:
                    self._say(None)
                return results

    def _check_last(self, known: _Mark | None) -> None:
        """While we were away, somebody else may have been us, and may have set the cursor: it is not set back."""
        if known is not None and known.write != self._last:
            self._last, self._cursor = known.write, known.cursor
            raise Conflict(f"the collector `{self.name}` was reset, or run by another process", hint="it starts again")

    def _write(self, producer: Producer, appends: list[Append], mark: _Mark) -> list[Appended]:
        producer.begin()
        sent = [producer.send(one.topic, one.batch, one.partition) for one in appends]
        producer.send(CURSORS_TOPIC, _record(self.name, mark))
        producer.commit()
        return [future.result() for future in sent]

    def _take_over(self) -> _Mark | None:
        self.close()
        self._log.create_topic(CURSORS_SPEC)
        self._producer = self._log.producer(f"collector {self.name}", linger_ms=0)
        # Whoever had the name before has written its last.
        mark = last_mark(self._log, self.name)
        if self._cursor is None and mark is not None:
            self._cursor = mark.cursor
        return mark

    def _pause(self, tries: int, error: HeadraceError) -> None:
        self._say(error.message)
        longest = min(LONGEST_PAUSE_S, 0.05 * 2 ** min(tries, 10))
        if self._stopping.wait(longest * (0.5 + random.random() / 2)):
            raise Stopped from error


def last_mark(log: Log, name: str) -> _Mark | None:
    """The newest cursor of a collector: near the end of the topic, unless it has been quiet for long."""
    key, step = name.encode(), _LOOK_BACK
    [ends] = log.snapshot().ends.get(CURSORS_TOPIC, (None,))
    if ends is None:
        return None
    upper = ends.end
    while upper > ends.start:
        lower = max(ends.start, upper - step)
        found = None
        for records in log.read(CURSORS_TOPIC, 0, lower, upper, ["KEY", "VALUE"]):
            for row in range(records.batch.num_rows):
                if records.batch["KEY"][row].as_py() == key:
                    found = records.batch["VALUE"][row].as_py()
        if found is not None:
            return msgspec.json.decode(found, type=ready(_Mark))
        upper, step = lower, step * 4
    return None


def _record(name: str, mark: _Mark) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "KEY": pa.array([name.encode()], pa.binary()),
            "VALUE": pa.array([msgspec.json.encode(mark)], pa.binary()),
        }
    )
