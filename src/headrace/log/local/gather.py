"""Sends gathered into runs: what goes to one place travels as one batch, in the order of the calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.log.base import Appended

GATHER_BYTES = 1024 * 1024
GATHER_SENDS = 10_000
"""With this much gathered, more is not waited for."""
WRITE_BYTES = 4 * 1024 * 1024
"""What is taken at once: the next write is made while the owner is busy with this one."""
_JOINED_BYTES = 256 * 1024
"""Larger runs gain nothing by being joined, and joining copies them."""
_SMALL = 4096


Chosen = int | tuple[int, ...] | None
"""The partition of all rows, that of each send, or None: by key or in turn."""


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of one topic, of several sends: `cuts` are the rows of each."""

    topic: str
    partition: Chosen
    batch: pa.RecordBatch
    cuts: tuple[int, ...]


@dataclass(slots=True)
class Send:
    topic: str
    partition: int | None
    batch: pa.RecordBatch
    future: Future[Appended]


@dataclass(slots=True)
class Sends:
    """Sends in the order in which their answers come."""

    runs: list[Run]
    sends: list[Send]
    bytes: int

    def settle(self, results: Sequence[Appended]) -> None:
        # A repeat whose answer is no longer known is told without positions.
        for number, send in enumerate(self.sends):
            if not send.future.done():
                send.future.set_result(results[number] if number < len(results) else Appended(()))

    def fail(self, error: BaseException) -> None:
        for send in self.sends:
            if not send.future.done():
                send.future.set_exception(error)

    def singly(self) -> list[Sends]:
        return [gathered([send]) for send in self.sends]


@dataclass(slots=True)
class Gathering:
    """What is being gathered. A send joins the last run of its topic if both name their partitions or neither does."""

    bytes: int = 0
    count: int = 0
    _runs: deque[list[Send]] = field(default_factory=deque)
    _open: dict[str, tuple[list[Send], int]] = field(default_factory=dict)
    """The last run of each topic, and how large it is."""

    def add(self, send: Send) -> None:
        size = _size(send.batch)
        self.bytes += size
        self.count += 1
        run, already = self._open.get(send.topic, ([], 0))
        if not run or already + size > _JOINED_BYTES or not _alike(run[0], send):
            run, already = [], 0
            self._runs.append(run)
        run.append(send)
        self._open[send.topic] = (run, already + size)

    def is_full(self) -> bool:
        return self.bytes >= GATHER_BYTES or self.count >= GATHER_SENDS

    def __bool__(self) -> bool:
        return bool(self._runs)

    def take(self) -> Sends:
        """The oldest runs, as many as one write should have."""
        runs: list[list[Send]] = []
        size = 0
        while self._runs and size < WRITE_BYTES:
            runs.append(self._runs.popleft())
            size += sum(_size(send.batch) for send in runs[-1])
        sends = [send for run in runs for send in run]
        self.bytes, self.count = self.bytes - size, self.count - len(sends)
        # A run that is gone cannot be joined any more.
        self._open = {topic: last for topic, last in self._open.items() if any(last[0] is run for run in self._runs)}
        return Sends([_run(run) for run in runs], sends, size)

    def take_all(self) -> Sends:
        taken = self.take()
        while self:
            more = self.take()
            taken = Sends(taken.runs + more.runs, taken.sends + more.sends, taken.bytes + more.bytes)
        return taken


def _size(batch: pa.RecordBatch) -> int:
    """Bytes of a batch. Counting exactly takes longer than everything else that is done for a small one."""
    most: int = batch.get_total_buffer_size()
    return most if most <= _SMALL else int(batch.nbytes)


def gathered(sends: Sequence[Send]) -> Sends:
    gathering = Gathering()
    for send in sends:
        gathering.add(send)
    return gathering.take_all()


def _alike(one: Send, other: Send) -> bool:
    by_hand = (one.partition is None) == (other.partition is None)
    return by_hand and bool(one.batch.schema.equals(other.batch.schema))


def _run(sends: Sequence[Send]) -> Run:
    first = sends[0]
    places = tuple(send.partition for send in sends if send.partition is not None)
    chosen: Chosen = first.partition if len(set(places)) <= 1 else places
    batch = first.batch if len(sends) == 1 else pa.concat_batches([send.batch for send in sends])
    return Run(first.topic, chosen, batch, tuple(send.batch.num_rows for send in sends))
