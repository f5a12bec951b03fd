"""The named points inside a batch job, as the log's owner sees them, whoever runs the job and in whatever process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from headrace.log.base import BatchIdentity, Log
from headrace.process.stretches import ACCOUNT, Account

SEEN = ("planned", "kept")
"""Only in the job's own folder: its first stretch is noted, and about to be computed; what it gave is kept."""
TOLD = ("chosen", "writing", "written", "publishing", "published")
"""The cut is chosen and the job asked for; the first of its rows have come; all have; the layer is about to be
published; it is, and nobody was told so yet."""
POINTS = (TOLD[0], *SEEN, *TOLD[1:])
LOOK_S = 0.002
BATCH_JOB, TRANSACTION = "BATCH_", "batch-"


class BatchPoints:
    """Strikes at one point of the n-th batch job that comes by, once."""

    def __init__(self, log: Log, point: str, number: int, strike: Callable[[], None]) -> None:
        assert point in POINTS
        self._point, self._number, self._strike = point, number, strike
        self._stage, self._commit, self._last_identity = log.stage, log.commit, log.last_identity
        self._jobs: list[str] = []
        self._struck = threading.Event()
        log.stage, log.commit = self.stage, self.commit  # type: ignore[method-assign]
        log.last_identity = self.last_identity  # type: ignore[method-assign]

    def last_identity(self, query: str, version: int) -> BatchIdentity | None:
        """Whoever runs a job, or waits for one, asks whether it is done."""
        if query.startswith(BATCH_JOB) and query not in self._jobs:
            self._jobs.append(query)
            self._at("chosen")
        return self._last_identity(query, version)

    def stage(self, transaction: str, task: int, attempt: int, routes: Any, batches: Iterator[pa.RecordBatch]) -> int:
        if not transaction.startswith(TRANSACTION):
            return self._stage(transaction, task, attempt, routes, batches)
        first = list(itertools.islice(batches, 1))
        if first:
            self._at("writing")
        rows = self._stage(transaction, task, attempt, routes, itertools.chain(first, batches))
        self._at("written")
        return rows

    def commit(self, transaction: str, tasks: Sequence[tuple[int, int]], identity: BatchIdentity | None = None) -> Any:
        ours = transaction.startswith(TRANSACTION)
        if ours:
            self._at("publishing")
        done = self._commit(transaction, tasks, identity)
        if ours:
            self._at("published")
        return done

    def watch(self, checkpoints: Path) -> None:
        """The jobs' folders, in a thread of its own, for what is only seen there."""
        if self._point in SEEN:
            threading.Thread(target=self._watch, args=(checkpoints,), daemon=True).start()

    def _watch(self, checkpoints: Path) -> None:
        while not self._struck.wait(LOOK_S):
            for job in self._jobs[self._number - 1 : self._number]:
                account = _account(checkpoints / f"{job}-v1" / ACCOUNT)
                if account is not None and (account.kept or (self._point == "planned" and account.planned)):
                    self._at(self._point)

    def _at(self, point: str) -> None:
        if self._number and (point, len(self._jobs)) == (self._point, self._number):
            self._number = 0
            self._struck.set()
            self._strike()


def _account(file: Path) -> Account | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Account)
    except OSError:
        return None
