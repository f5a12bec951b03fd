"""Load shedding: what is left out when more comes than a collector is to take, by the policy its file declares.

Nothing is left out silently: the answer, the status and the metrics say how much. What is not declared is never shed;
then a quota or the log's own limit tells the sender to come again.
"""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from headrace.clock import Clock
from headrace.collect.base import Outcome, RawEvents, Sent
from headrace.collect.quota import Buckets
from headrace.collect.rules.fields import Path, Spellings
from headrace.config import Settings
from headrace.errors import ConfigError
from headrace.log.base import ID, TIME

Policy = Literal["none", "oldest", "sample", "priority"]


class ShedSettings(Settings, frozen=True):
    policy: Policy = "none"
    """What goes first when more comes than `events_per_second`: the `oldest` by their time; all but a `sample`; or what
    has the least `priority`."""
    events_per_second: float = 0
    """How much is taken. Where several processes take events (`[server] workers`), each has its share."""
    burst_seconds: float = 10.0
    """What was not used of so many seconds may come at once."""
    field: str = ""
    """`oldest`: the field with the time, instead of `$time`. `sample`: events of one value of it are kept or left out
    together, so that what is kept of a user is all of that user. `priority`: the field that says how important an event
    is."""
    order: list[str | int | float | bool] = []
    """Of `priority`: values of the field, the most important first; others come after them. Without it, greater numbers
    are more important."""

    def check(self) -> None:
        if self.policy == "none" and self != ShedSettings():
            raise ConfigError(
                "`[shed]` says how, but not what", hint='policy = "oldest", "sample" or "priority"', path=("shed",)
            )
        if self.policy != "none" and not self.events_per_second > 0:
            raise ConfigError(
                "`[shed]` needs to know when it is too much", hint="events_per_second = …", path=("shed", "policy")
            )
        if self.policy == "priority" and not self.field:
            raise ConfigError(
                "which field says how important an event is?", hint='field = "…"', path=("shed", "policy")
            )
        if self.order and self.policy != "priority":
            raise ConfigError("`order` is for the policy `priority`", path=("shed", "order"))
        if not self.burst_seconds > 0:
            raise ConfigError("`burst_seconds` must be above zero", path=("shed", "burst_seconds"))


class Shedding:
    """Safe to use from several threads."""

    def __init__(self, settings: ShedSettings, clock: Clock, share: float = 1.0) -> None:
        self._settings, self._clock, self._lock = settings, clock, threading.Lock()
        self._bucket = Buckets(settings.events_per_second * share, settings.burst_seconds)
        self._ranks = {value: rank for rank, value in enumerate(settings.order)}
        self._field = Path(settings.field or TIME, Spellings())

    def kept(self, events: Sequence[Any]) -> list[int] | None:
        """The numbers of those to take, in their order; None for all."""
        with self._lock:
            now = self._clock.monotonic()
            room = max(0, int(self._bucket.left("", now)))
            taken = min(room, len(events))
            self._bucket.take("", taken, now)
        if taken == len(events):
            return None
        return sorted(self._best(events, taken))

    def _best(self, events: Sequence[Any], count: int) -> list[int]:
        rows = range(len(events))
        if self._settings.policy == "sample" and not self._settings.field:
            return random.sample(rows, count)
        values = [next(iter(self._field.found(event)), None) for event in events]
        match self._settings.policy:
            case "oldest":
                return sorted(rows, key=lambda row: (_moment(values[row]), row))[len(events) - count :]
            case "sample":
                return sorted(rows, key=lambda row: (_place(values[row]), row))[:count]
            case _:
                return sorted(rows, key=lambda row: (self._rank(values[row]), row))[:count]

    def _rank(self, value: Any) -> tuple[int, float]:
        if self._ranks:
            known = isinstance(value, str | int | float | bool)
            return (self._ranks.get(value, len(self._ranks)) if known else len(self._ranks), 0.0)
        return (0, -float(value)) if isinstance(value, int | float) else (1, 0.0)


def _moment(value: Any) -> tuple[int, float, str]:
    """Numbers and ISO texts in their order; what has no time happened just now."""
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, value) if isinstance(value, str) else (2, 0.0, "")


def _place(value: Any) -> int:
    """The same for the same value, today and tomorrow."""
    return zlib.crc32(str(value).encode("utf-8", "surrogatepass"))


def only(raw: RawEvents, rows: Sequence[int]) -> RawEvents:
    """The same with these events alone. Their ids are those they would have had among all."""
    assert raw.sent is not None
    sent, key = raw.sent, raw.idempotency_key

    def with_id(row: int) -> Any:
        event = sent.events[row]
        return (
            {**event, ID: f"{key}/{row}"} if key is not None and isinstance(event, dict) and ID not in event else event
        )

    numbers = {row: number for number, row in enumerate(rows)}
    refused = {numbers[row]: reason for row, reason in sent.refused.items() if row in numbers}
    partitions = None if raw.partitions is None else [raw.partitions[row] for row in rows]
    slices, position = [*rows], raw.position
    kept = Sent([with_id(row) for row in rows], lambda number: sent.slices(slices[number]), refused)
    at = None if position is None else lambda number: position(slices[number])
    return replace(raw, sent=kept, partitions=partitions, position=at)


def numbered(outcome: Outcome, rows: Sequence[int], sent: int) -> Outcome:
    """The outcome by the numbers the events were sent with."""
    rejected = tuple(replace(one, index=rows[one.index]) for one in outcome.rejected)
    return replace(outcome, rejected=rejected, shed=outcome.shed + sent - len(rows))
