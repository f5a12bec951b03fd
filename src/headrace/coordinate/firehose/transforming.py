"""The function of the project's that changes a delivery stream's records on their way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec

from headrace.functions.attach import Attached
from headrace.functions.batches import Caller, Counts, Rejected, Sent, Stopped, Worked, Works
from headrace.functions.compiled import Limits
from headrace.functions.files import FunctionFile

AT_A_TIME = 500
"""Records of one call."""

Find = Callable[[str], tuple[FunctionFile, Attached]]


class Transforming:
    """Calls the project's function of a name, as it is now; without one, records stay as they are."""

    def __init__(
        self, name: str, find: Find, limits: Limits, raw: Callable[[], bool], retries: int | None = None
    ) -> None:
        """`raw`: whether the records are, asked when the first is there. Their topic may be gone before. `retries`: not
        as often as the function says."""
        self.name, self._find, self._limits, self._raw, self._retries = name, find, limits, raw, retries
        self._caller: Caller | None = None
        self._loaded: tuple[FunctionFile, Attached] | None = None
        self.counts = Counts()

    def work(self, records: Sequence[Sent], stop: threading.Event) -> Worked:
        if not self.name:
            return Worked([(sent[4], sent[5], False) for sent in records])
        found = self._find(self.name)
        if self._caller is None or found != self._loaded:
            self.close()
            # A transform has as many results as records, whatever its decorator says of topics.
            retries = found[1].retries if self._retries is None else self._retries
            attached = msgspec.structs.replace(found[1], topic="", retries=retries)
            self._caller = Caller(found[0], attached, self._raw(), self._limits, lambda: None)
            self._caller.counts, self._loaded = self.counts, found
        return self._caller.work(records, stop)

    def close(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.close()


def transformed(
    works: Works, records: Sequence[Sent], stop: threading.Event
) -> tuple[list[tuple[Sent, bytes]], list[Rejected]]:
    """What each became, without those that it drops; and those that it fails for. `Stopped` if there is no time."""
    kept: list[tuple[Sent, bytes]] = []
    rejected: list[Rejected] = []
    for first in range(0, len(records), AT_A_TIME):
        if stop.is_set():
            raise Stopped  # whoever follows must not begin before this has ended
        part = records[first : first + AT_A_TIME]
        worked = works.work(part, stop)
        failed = {one.sent[:2] for one in worked.rejected}
        survivors = [sent for sent in part if sent[:2] not in failed]
        rejected += worked.rejected
        kept += [(sent, made[1]) for sent, made in zip(survivors, worked.made, strict=True) if made[1] is not None]
    return kept, rejected
