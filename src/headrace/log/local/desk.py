"""Where producers hand in what they write, in the owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import get_args

from headrace.errors import UsageError
from headrace.log.base import Acks, Appended
from headrace.log.local import journal as journals
from headrace.log.local.gather import Run
from headrace.log.local.owner import Committer
from headrace.log.local.producers import Stamp, check_epoch, check_name, overdue
from headrace.log.local.requests import Guard
from headrace.log.local.services import SentOffsets
from headrace.log.writing.prepare import Prepared, Preparer

OFFSETS_TASK = -1
_LONGEST_S = 24 * 3600


class OwnerDesk:
    """In the owner."""

    def __init__(
        self,
        committer: Committer,
        preparer: Callable[[str], Preparer],
        offsets: Callable[[Sequence[SentOffsets]], tuple[list[Prepared], Guard]],
    ) -> None:
        self._committer, self._preparer, self._offsets = committer, preparer, offsets

    def open(self, name: str | None) -> tuple[int, int]:
        check_name(name)
        opened = self._committer.control(lambda: self._open(name))
        self._committer.transactions.forget_all(_prefix(opened[0]))
        return opened

    def _open(self, name: str | None) -> tuple[int, int]:
        committer = self._committer
        committer.check_disk()
        known = [state for state in committer.state.producers.values() if name is not None and state.name == name]
        number = known[0].id if known else committer.state.next_producer_id
        epoch = known[0].epoch + 1 if known else 0
        committer.journal_append(journals.PRODUCER, {"op": "opened", "id": number, "name": name, "epoch": epoch})
        committer.producer_uses[number] = committer.clock.monotonic()
        return number, epoch

    def append(self, runs: Sequence[Run], acks: Acks, stamp: Stamp | None) -> Future[list[Appended]]:
        if acks not in get_args(Acks):
            raise UsageError(f"acks must be `0`, `1` or `all`, got `{acks}`")
        if stamp is not None and acks != "all":
            raise UsageError("a numbered write needs acks `all`")
        return self._committer.append(self._prepare(runs), acks, stamp)

    def stage(self, stamp: Stamp, task: int, runs: Sequence[Run], timeout_s: float) -> Future[list[Appended]]:
        if not 0 < timeout_s <= _LONGEST_S:
            raise UsageError(f"a transaction cannot take {timeout_s} s", hint="up to a day")
        self._committer.check_disk()
        check_epoch(self._committer.state.producers, stamp)
        parts = self._prepare(runs)
        self._committer.transactions.stage(_transaction(stamp), (task, 0), iter(parts), timeout_s)
        done: Future[list[Appended]] = Future()
        done.set_result([])
        return done

    def commit(self, stamp: Stamp, tasks: int, offsets: Sequence[SentOffsets]) -> Future[list[Appended]]:
        name, guard = _transaction(stamp), None
        named = [(task, 0) for task in range(tasks)]
        if offsets:
            parts, guard = self._offsets(offsets)
            self._committer.transactions.stage(name, (OFFSETS_TASK, 0), iter(parts), _LONGEST_S)
            named.append((OFFSETS_TASK, 0))
        return self._committer.commit(name, named, stamp=stamp, guard=guard)

    def abort(self, stamp: Stamp) -> None:
        check_epoch(self._committer.state.producers, stamp)
        self._committer.transactions.forget(_transaction(stamp))

    def _prepare(self, runs: Sequence[Run]) -> list[Prepared]:
        return [self._preparer(run.topic).prepare(run.batch, run.partition, run.cuts) for run in runs]

    def forget_old(self) -> None:
        """Producers nobody used for long; otherwise every short-lived client would stay in memory for good."""
        committer = self._committer
        now = committer.clock.monotonic()
        for number in list(committer.state.producers):
            committer.producer_uses.setdefault(number, now)
        if overdue(committer.state.producers, committer.producer_uses, now):
            committer.control(self._forget)

    def _forget(self) -> None:
        committer = self._committer
        ids = overdue(committer.state.producers, committer.producer_uses, committer.clock.monotonic())
        committer.journal_append(journals.PRODUCER, {"op": "forgotten", "ids": ids})
        for number in ids:
            committer.producer_uses.pop(number, None)
            committer.transactions.forget_all(_prefix(number))


def _prefix(producer: int) -> str:
    return f"producer/{producer}/"


def _transaction(stamp: Stamp) -> str:
    return f"{_prefix(stamp.producer)}{stamp.epoch}/{stamp.sequence}"
