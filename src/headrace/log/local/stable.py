"""`stable`: what may be read, published by the owner and mapped by every reader (docs/log-format.md).

The sequence lock needs stores of eight bytes that are seen in the order they were made: numpy stores a uint64 in one
piece (`struct` would write byte by byte), and `_fence` keeps the processor from reordering them.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headrace.errors import LogError

MAGIC = int.from_bytes(b"HRSTABLE", "little")
VERSION = 1
SLOT_SIZE = HEADER_SIZE = 64
FIRST_SLOTS = 256

_TRIES = 20
_WORDS = SLOT_SIZE // 8
# Words of the header, and of a slot.
_MAGIC, _VERSION_SLOTS, _SEQUENCE, _ARRIVAL, _GROUP, _USED_PID, _STARTED = range(7)
_TOPIC_PARTITION, _START, _END, _STREAM_TIME = range(4)

_fence_lock = threading.Lock()


def _fence() -> None:
    """A full fence: nothing before it moves below the first release, nothing after it above the second acquire."""
    with _fence_lock:
        pass
    with _fence_lock:
        pass


class Slot(NamedTuple):
    topic_id: int
    partition: int
    start: int
    end: int
    stream_time: int


@dataclass(frozen=True, slots=True)
class StableView:
    """A consistent copy."""

    sequence: int
    arrival: int
    group: int
    pid: int
    started_ms: int
    slots: np.ndarray[Any, np.dtype[np.uint64]]
    """One row of eight words per slot in use."""

    def rows(self, numbers: Any = slice(None)) -> list[Slot]:
        columns = np.ascontiguousarray(self.slots[numbers, :4])
        signed = columns.view(np.int64)
        return [
            Slot(int(first) & 0xFFFFFFFF, int(first) >> 32, int(start), int(end), int(stream_time))
            for (first, start, end, _), stream_time in zip(columns.tolist(), signed[:, 3].tolist(), strict=True)
            if first & 0xFFFFFFFF
        ]


def changed_slots(before: StableView, now: StableView) -> list[Slot] | None:
    """What is new since `before`; None if slots have other owners, or there are more of them."""
    if before.slots.shape != now.slots.shape or not (before.slots[:, 0] == now.slots[:, 0]).all():
        return None
    return now.rows(np.flatnonzero((before.slots != now.slots).any(axis=1)))


def _map(path: Path, *, write: bool) -> Any:
    descriptor = os.open(path, os.O_RDWR if write else os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size // SLOT_SIZE * SLOT_SIZE
        if size < HEADER_SIZE:
            return None
        access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
        return np.frombuffer(mmap.mmap(descriptor, size, access=access), dtype=np.uint64).reshape(-1, _WORDS)
    finally:
        os.close(descriptor)


class StablePublisher:
    """The owner's side. The file keeps its identity and its slots over restarts, so readers' mappings stay good, and
    what a former owner published stays readable while the next one recovers: it was committed."""

    def __init__(self, path: Path, started_ms: int) -> None:
        self._path = path
        self._started_ms = started_ms
        self._grow(FIRST_SLOTS)
        self._slots: dict[tuple[int, int], int] = {}
        self._free: list[int] = []
        self._used = 0
        self._sequence = int(self._words[0, _SEQUENCE])

    def _grow(self, slots: int) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            size = HEADER_SIZE + slots * SLOT_SIZE
            if os.fstat(descriptor).st_size < size:
                # Real blocks, not a hole: a store into a mapped hole on a full disk would be a SIGBUS.
                os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
        self._words = _map(self._path, write=True)

    def publish_all(self, arrival: int, group: int, slots: Sequence[Slot]) -> None:
        """After opening or recovery: exactly these slots, in their old places where they had one."""
        keys = {(slot.topic_id, slot.partition) for slot in slots}
        self._slots, self._free, self._used = {}, [], 0
        header = self._words[0]
        known = int(header[_USED_PID]) & 0xFFFFFFFF if int(header[_MAGIC]) == MAGIC else 0
        self._used = min(known, len(self._words) - 1)
        for number in range(1, self._used + 1):
            word = int(self._words[number, _TOPIC_PARTITION])
            key = (word & 0xFFFFFFFF, word >> 32)
            if key in keys and key not in self._slots:
                self._slots[key] = number
            else:
                self._free.append(number)
        self._begin()
        header[_MAGIC], header[_STARTED] = MAGIC, self._started_ms
        for number in self._free:
            self._words[number] = 0
        self._finish(arrival, group, slots)

    def publish(
        self, arrival: int, group: int, changed: Iterable[Slot], removed: Iterable[tuple[int, int]] = ()
    ) -> None:
        self._begin()
        for key in removed:
            number = self._slots.pop(key)
            self._free.append(number)
            self._words[number] = 0
        self._finish(arrival, group, changed)

    def close(self) -> None:
        """Let go of the file; what it says stays."""
        self._words = np.zeros((1, _WORDS), np.uint64)

    def _begin(self) -> None:
        self._sequence |= 1
        self._words[0, _SEQUENCE] = self._sequence
        _fence()

    def _finish(self, arrival: int, group: int, changed: Iterable[Slot]) -> None:
        for slot in changed:
            number = self._slot(slot.topic_id, slot.partition)  # may map the file anew
            row = self._words[number]
            row[_START], row[_END] = slot.start, slot.end
            row[_STREAM_TIME] = slot.stream_time & 0xFFFFFFFFFFFFFFFF
        header = self._words[0]
        header[_VERSION_SLOTS] = VERSION | (len(self._words) - 1) << 32
        header[_ARRIVAL], header[_GROUP] = arrival, group
        header[_USED_PID] = self._used | os.getpid() << 32
        _fence()
        self._sequence += 1
        header[_SEQUENCE] = self._sequence

    def _slot(self, topic_id: int, partition: int) -> int:
        number = self._slots.get((topic_id, partition))
        if number is None:
            if self._free:
                number = self._free.pop()
            else:
                self._used += 1
                number = self._used
                if number >= len(self._words):
                    self._grow(2 * (len(self._words) - 1))
            self._slots[topic_id, partition] = number
            self._words[number, _TOPIC_PARTITION] = topic_id | partition << 32
        return number


class StableReader:
    """Any other process's side. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._words = _map(path, write=False)
        if self._words is None:
            raise LogError("the log's `stable` file is empty", detail=f"file `{path}`", hint="start the server again")
        status = os.stat(path)
        self._inode = status.st_ino
        if int(self._words[0, _MAGIC]) not in (0, MAGIC) or int(self._words[0, _VERSION_SLOTS]) & 0xFFFFFFFF > VERSION:
            raise LogError("the log's `stable` file is of another version", detail=f"file `{path}`")

    def arrival(self) -> int:
        """The next arrival number and nothing else, for waiting. May be of a moment that is being published."""
        return int(self._words[0, _ARRIVAL])

    def is_replaced(self) -> bool:
        try:
            return os.stat(self._path).st_ino != self._inode
        except FileNotFoundError:
            return False

    def sequence(self) -> int:
        return int(self._words[0, _SEQUENCE])

    def view(self, timeout: float = 30.0) -> StableView:
        """A consistent copy; waits while the owner recovers. `LogError` if it does not come back."""
        deadline = time.monotonic() + timeout
        while True:
            # Publishing takes microseconds: try again at once before giving way.
            for _ in range(_TRIES):
                if (view := self._try()) is not None:
                    return view
            if time.monotonic() > deadline:
                raise LogError(
                    "the log's owner is not publishing",
                    hint="it may be recovering, or it died while publishing: start it",
                )
            time.sleep(0.0005)

    def _try(self) -> StableView | None:
        words = self._words
        sequence = int(words[0, _SEQUENCE])
        if sequence & 1 or int(words[0, _MAGIC]) != MAGIC:
            return None
        _fence()
        header = words[0].copy()
        used = int(header[_USED_PID]) & 0xFFFFFFFF
        if used >= len(words):
            self._words = _map(self._path, write=False)
            return None
        slots = words[1 : used + 1].copy()
        _fence()
        if int(words[0, _SEQUENCE]) != sequence:
            return None
        return StableView(
            sequence,
            int(header[_ARRIVAL]),
            int(header[_GROUP]),
            int(header[_USED_PID]) >> 32,
            int(header[_STARTED]),
            slots,
        )


def published_group(path: Path) -> int:
    """The newest group a former owner published, 0 if unknown. A journal that ends before it has lost something."""
    try:
        words = _map(path, write=False)
    except (FileNotFoundError, ValueError):
        return 0
    return int(words[0, _GROUP]) if words is not None and int(words[0, _MAGIC]) == MAGIC else 0
