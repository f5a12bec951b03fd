"""Transactions: rows that tasks hand over, kept until the driver's commit names the tasks that count.

Nothing of it is durable or visible. Beyond a bound of memory, rows wait in temporary files that are never synced.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.errors import LogError
from headrace.log.writing.merging import merge
from headrace.log.writing.prepare import Prepared

FORGET_AFTER_S = 3600
"""A transaction nobody touched for so long belongs to a driver that is gone."""

Task = tuple[int, int]
"""Task and attempt."""
_IN_ORDER: Task = (-2, 0)
"""No task of anybody: what all of them handed over, put in order."""


@dataclass(frozen=True, slots=True)
class _Spilled:
    """Rows in the spill file: the batch's message, then the rows' partitions, then their order."""

    outline: Prepared
    """Everything but the rows."""
    position: int
    batch_size: int
    partitions_size: int
    order_size: int


class Staged:
    """What one attempt of one task handed over, in order."""

    def __init__(self) -> None:
        self.rows = 0
        self.memory_bytes = 0
        self._parts: list[Prepared | _Spilled] = []
        self._file: IO[bytes] | None = None

    def keep(self, prepared: Prepared) -> None:
        self.rows += prepared.batch.num_rows
        self.memory_bytes += prepared.bytes
        self._parts.append(prepared)

    def spill(self, prepared: Prepared, folder: Path) -> None:
        self.rows += prepared.batch.num_rows
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed with the transaction
        position = self._file.seek(0, 2)
        body = prepared.batch.serialize()
        chosen = b"" if isinstance(prepared.partitions, int) else prepared.partitions.tobytes()
        order = b"" if prepared.order is None else prepared.order.tobytes()
        self._file.write(body)
        self._file.write(chosen)
        self._file.write(order)
        outline = replace(
            prepared,
            batch=prepared.batch.slice(0, 0),
            partitions=prepared.partitions if not chosen else 0,
            order=None if prepared.order is None else prepared.order[:0],
        )
        self._parts.append(_Spilled(outline, position, body.size, len(chosen), len(order)))

    def outlines(self) -> Iterator[Prepared]:
        """For which topics the parts are; their rows may be missing."""
        return (part.outline if isinstance(part, _Spilled) else part for part in self._parts)

    def __iter__(self) -> Iterator[Prepared]:
        """The rows again, one batch in memory at a time."""
        return self.parts(lambda outline: True)

    def parts(self, wanted: Callable[[Prepared], bool]) -> Iterator[Prepared]:
        """The rows of those parts whose outline is wanted."""
        for part in self._parts:
            if isinstance(part, Prepared):
                if wanted(part):
                    yield part
            elif wanted(part.outline):
                yield self._read(part)

    def _read(self, part: _Spilled) -> Prepared:
        assert self._file is not None
        self._file.seek(part.position)
        body = pa.py_buffer(self._file.read(part.batch_size))
        batch = pa.ipc.read_record_batch(body, part.outline.batch.schema)
        chosen = np.frombuffer(self._file.read(part.partitions_size), np.int64)
        order = np.frombuffer(self._file.read(part.order_size), np.int64)
        return replace(
            part.outline,
            batch=batch,
            partitions=chosen if len(chosen) else part.outline.partitions,
            order=order if len(order) else None,
        )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def has_order(tasks: Sequence[Staged]) -> bool:
    return any(part.order is not None for staged in tasks for part in staged.outlines())


def in_order(tasks: Sequence[Staged]) -> Iterator[Prepared]:
    """All their rows; those of a topic that have an order are in it."""
    yield from (part for staged in tasks for part in staged.parts(lambda outline: outline.order is None))
    ordered = [part for staged in tasks for part in staged.outlines() if part.order is not None]
    shapes = dict.fromkeys((part.topic, part.version, part.layout) for part in ordered)
    if len({topic for topic, _, _ in shapes}) < len(shapes):
        raise LogError("a topic was changed while rows for it were handed over", hint="run the batch again")
    for name, _, _ in shapes:
        yield from merge([staged.parts(partial(_is_ordered, name)) for staged in tasks])


def _is_ordered(topic: str, outline: Prepared) -> bool:
    return outline.topic == topic and outline.order is not None


@dataclass(slots=True)
class _Transaction:
    tasks: dict[Task, Staged] = field(default_factory=dict)
    expires: float = 0.0
    """On the monotonic clock."""


class Transactions:
    """Safe to use from several threads."""

    def __init__(self, folder: Path, clock: Clock, memory_bytes: int) -> None:
        self._folder = folder
        self._clock = clock
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._open: dict[str, _Transaction] = {}
        self._bytes = 0

    def stage(self, name: str, task: Task, parts: Iterator[Prepared], timeout_s: float | None = None) -> int:
        """Keep one task's rows; the same attempt again replaces what it handed over before. With `timeout_s` the
        transaction ends that long after it began; without, when nobody has touched it for long."""
        staged = Staged()
        try:
            for prepared in parts:
                if self._has_room(prepared.bytes):
                    staged.keep(prepared)
                else:
                    staged.spill(prepared, self._folder)
        except BaseException:
            self._release(staged)
            raise
        with self._lock:
            now = self._clock.monotonic()
            transaction = self._open.setdefault(name, _Transaction())
            if timeout_s is None:
                transaction.expires = now + FORGET_AFTER_S
            elif not transaction.tasks:
                transaction.expires = now + timeout_s
            old = transaction.tasks.pop(task, None)
            transaction.tasks[task] = staged
        if old is not None:
            self._release(old)
        return staged.rows

    def _has_room(self, size: int) -> bool:
        with self._lock:
            if self._bytes + size > self._memory_bytes:
                return False
            self._bytes += size
            return True

    def _release(self, staged: Staged) -> None:
        staged.close()
        with self._lock:
            self._bytes -= staged.memory_bytes

    def put_in_order(self, name: str, tasks: Sequence[Task]) -> Sequence[Task]:
        """The tasks to commit once what these handed over, if it has an order over all of them, is put in that order.
        It takes the caller's time, not that of the thread which commits for everybody."""
        with self._lock:
            transaction = self._open.get(name)
            found = [transaction.tasks.get(task) for task in tasks] if transaction is not None else []
        staged = [one for one in found if one is not None]
        if len(staged) < 2 or len(staged) < len(tasks) or not has_order(staged):
            return tasks
        self.stage(name, _IN_ORDER, in_order(staged))
        with self._lock:
            going = [transaction.tasks.pop(task, None) for task in tasks] if transaction is not None else []
        self.release([one for one in going if one is not None])
        return [_IN_ORDER]

    def take(self, name: str, tasks: Sequence[Task]) -> list[Staged]:
        """What the named tasks handed over, out of our hands; everything else of the transaction is forgotten. Whoever
        takes it gives it back with `release`."""
        with self._lock:
            transaction = self._open.pop(name, None) or _Transaction()
        if transaction.tasks and transaction.expires < self._clock.monotonic():
            self.release(list(transaction.tasks.values()))
            raise LogError(
                "the transaction took too long and was given up",
                hint="abort it and run it again; `transaction_timeout_s` says how long one may take",
            )
        taken = [transaction.tasks.pop(task) for task in dict.fromkeys(tasks) if task in transaction.tasks]
        for staged in transaction.tasks.values():
            self._release(staged)
        if len(taken) < len(set(tasks)):
            self.release(taken)
            raise LogError(
                f"transaction `{name}` has not been handed over completely",
                detail="the log's owner was started again since, or the transaction was given up",
                hint="run the batch again",
            )
        return taken

    def release(self, taken: Sequence[Staged]) -> None:
        for staged in taken:
            self._release(staged)

    def forget(self, name: str) -> None:
        with self._lock:
            transaction = self._open.pop(name, None)
        if transaction is not None:
            self.release(list(transaction.tasks.values()))

    def forget_all(self, prefix: str) -> None:
        with self._lock:
            names = [name for name in self._open if name.startswith(prefix)]
        for name in names:
            self.forget(name)

    def forget_old(self) -> list[str]:
        """Give up what nobody touched for long."""
        now = self._clock.monotonic()
        with self._lock:
            old = [name for name, transaction in self._open.items() if transaction.expires < now]
        for name in old:
            self.forget(name)
        return old

    def close(self) -> None:
        for name in list(self._open):
            self.forget(name)
