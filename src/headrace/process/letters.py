"""Dead letters from Spark's Python workers: what a Python function could not do.

A worker writes them itself, at once, and not with the query's results: they may come from anywhere in a plan. A batch
that is run again writes the same letters again, under the same ids, and the log knows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.functions.compiled import Failure
from headrace.functions.direct import take_failures
from headrace.functions.letters import letter_of, payload_of
from headrace.functions.memory import MEMORY
from headrace.log.base import Log
from headrace.log.dead_letters import DeadLetter, bury
from headrace.log.local.client import LocalClient

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace

WRITE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LetterBox:
    """Where a query's letters go, and what they say of it."""

    query: str
    topic: str
    """The query's first input: where the row came from, as far as that can be said."""
    folder: Path | None = None
    kafka: LogSettings | None = None
    batch: str | None = None
    """Which of its batches, where Spark does not know it."""


_box: ContextVar[LetterBox | None] = ContextVar("letter_box", default=None)


def box_for(log: Path | KafkaPlace, query: str, topic: str, batch: str | None = None) -> LetterBox:
    if isinstance(log, Path):
        return LetterBox(query, topic, folder=log, batch=batch)
    return LetterBox(query, topic, kafka=log.log.settings, batch=batch)


@contextmanager
def writing_letters(box: LetterBox) -> Iterator[None]:
    """What is lowered here tells its failures there."""
    token = _box.set(box)
    try:
        yield
    finally:
        _box.reset(token)


def letter_box() -> LetterBox | None:
    """Of the query that is being lowered; None for one that only looks, whose failures nobody is told."""
    return _box.get()


# From here on: in the workers.


def tell_failures(box: LetterBox | None) -> None:
    """Write down what failed since the last time. The task fails if it cannot be: nothing is dropped silently."""
    # A worker is there for functions only: it, and nobody else, is to feel it when one takes all memory.
    MEMORY.expendable = True
    failures = take_failures()
    if box is not None and failures:
        _log(box).append([bury(_letters(box, failures))]).result(WRITE_SECONDS)


def _letters(box: LetterBox, failures: Sequence[Failure]) -> list[DeadLetter]:
    context = TaskContext.get()
    batch = box.batch or (context.getLocalProperty("streaming.sql.batchId") if context else None)
    task = f"{batch}/{context.partitionId()}" if context else ""
    seen = _seen(context.taskAttemptId() if context else -1)
    letters = []
    for failure in failures:
        payload = payload_of(failure, box.query)
        seen[payload] += 1
        letters.append(letter_of(failure, box.topic, box.query, f"{box.query}/{task}/{seen[payload]}"))
    return letters


@lru_cache(maxsize=1)
def _seen(task: int) -> Counter[bytes]:
    """How often a task has had the same failure."""
    return Counter()


def _log(box: LetterBox) -> Log:
    """A worker lives for many tasks: it stays connected."""
    where = str(box.folder or box.kafka)
    if where not in _LOGS:
        if box.folder is not None:
            _LOGS[where] = LocalClient(box.folder)
        else:
            # Only those who use Kafka have its packages.
            from headrace.log.kafka import KafkaLog

            assert box.kafka is not None
            _LOGS[where] = KafkaLog(box.kafka, SystemClock())
    return _LOGS[where]


_LOGS: dict[str, Log] = {}
