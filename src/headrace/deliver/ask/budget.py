"""What a question may cost: time, and memory for the rows it must hold at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from headrace.errors import DeadlineExceeded, QueryFailed, UsageError
from headrace.store.readers import ON_SPARK

Row: TypeAlias = tuple[Any, ...]
Chunks: TypeAlias = Iterator[list[Row]]

ROWS_PER_CHUNK = 1_024
SAMPLE = 8
"""Rows of a chunk that are measured; the others are taken to be like them."""
DEEPEST = 4


HINT = f"narrow it with WHERE or a range, let it run on (CREATE TABLE … AS SELECT), or {ON_SPARK}"


class Budget:
    """Shared by all operators of one question. Sizes are estimates: a bound on the order of magnitude.

    `stopped` tells whether nobody waits for the answer any more. `read` counts the rows looked at, for progress."""

    def __init__(
        self, seconds: float, most_bytes: int, stopped: Callable[[], bool] | None = None, hint: str = HINT
    ) -> None:
        self.seconds, self.most_bytes = seconds, most_bytes
        self.held = self.read = 0
        self._end = time.monotonic() + seconds
        self._stopped, self._hint = stopped, hint

    def look(self) -> None:
        """Raise `DeadlineExceeded` once time is up. Called between chunks."""
        if self._stopped is not None and self._stopped():
            raise QueryFailed("nobody waits for the answer any more")
        if time.monotonic() > self._end:
            raise DeadlineExceeded(f"the query took longer than `{self.seconds:g}` s", hint=self._hint)

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def hold(self, rows: Sequence[Any]) -> None:
        """Count rows, or other values, that are kept until the end."""
        self.look()
        if rows:
            sample = rows[:: max(1, len(rows) // SAMPLE)]
            self.hold_bytes(sum(map(size_of, sample)) * len(rows) // len(sample))

    def hold_bytes(self, count: int) -> None:
        self.held += count
        if self.held > self.most_bytes:
            raise UsageError(
                f"the query would hold more than {self.most_bytes >> 20:,} MiB at once",
                hint="narrow it with WHERE or a range, select fewer columns, or raise [server] query_bytes",
            )


def size_of(value: Any, depth: int = 0) -> int:
    """
    >>> size_of((1, "a")) > size_of(1)
    True
    """
    size = sys.getsizeof(value)
    if depth < DEEPEST:
        if isinstance(value, Mapping):
            size += sum(size_of(key, depth + 1) + size_of(item, depth + 1) for key, item in value.items())
        elif isinstance(value, tuple | list):
            size += sum(size_of(item, depth + 1) for item in value)
    return size


def chunked(rows: Iterator[Row], budget: Budget) -> Chunks:
    """Rows that come one by one, in chunks."""
    while chunk := list(islice(rows, ROWS_PER_CHUNK)):
        budget.look()
        yield chunk
