"""Load shedding: what is left out when more comes than a collector is to take, by the policy its file declares.

Nothing is left out silently: the answer, the status and the metrics say how much. What is not declared is never shed;
then a quota or the log's own limit tells the sender to come again.
"""

from __future__ import annotations

import math
import random
import threading
import zlib
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal, cast

from headrace.clock import Clock
from headrace.collect.base import Outcome, RawEvents, Sent
from headrace.collect.quota import Buckets, key_text
from headrace.collect.rules.fields import Path, Spellings
from headrace.config import Settings
from headrace.errors import ConfigError
from headrace.log.base import TIME

Policy = Literal["none", "oldest", "sample", "priority"]


class ShedSettings(Settings, frozen=True):
    policy: Policy = "none"
    """What goes first when more comes than `events_per_second`: the `oldest` by their time; all but a `sample`; or what
    has the least `priority`."""
    events_per_second: float = 0
    """How much is taken. Where several processes take events (`[server] workers`), each has its share."""
    burst_seconds: float = 10.0
    """What was not used of so many seconds may come at once: half of it whatever it is, the rest the less, the less it
    matters."""
    field: str = ""
    """`oldest`: the field with the time, instead of `$time`. `sample`: events of one value of it are kept or left out
    together, over all requests, so that what is kept of a user is all of that user, but for the few at the edge of what
    is taken. `priority`: the field that says how important an event is."""
    order: list[str | int | float | bool] = []
    """Of `priority`: values of the field, the most important first; others come after them. Without it, greater numbers
    are more important, compared with those that came last."""

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
    """Safe to use from several threads.

    Each event has a rank: 0 for what matters most, below 1 for what matters least. One bucket is filled at the rate
    that is taken. Its upper half is for anybody; of the lower one an event may not touch the part of its rank, which is
    kept for those that matter more. So the bucket stands, when too much comes, where those that may still draw from it
    are just as many as it is filled for, however few come in one request. What was taken stays taken.
    """

    def __init__(self, settings: ShedSettings, clock: Clock, share: float = 1.0) -> None:
        self._settings, self._clock, self._lock = settings, clock, threading.Lock()
        self._bucket = Buckets(settings.events_per_second * share, settings.burst_seconds)
        self._ranks = {value: rank / (len(settings.order) + 1) for rank, value in enumerate(settings.order)}
        self._last = len(settings.order) / (len(settings.order) + 1)
        self._field = Path(settings.field or TIME, Spellings())
        self._seen = Seen()

    def kept(self, events: Sequence[Any]) -> list[int] | None:
        """The numbers of those to take, in their order; None for all."""
        with self._lock:
            now, reserved = self._clock.monotonic(), self._bucket.size / 2
            left = self._bucket.left("", now)
            if left - len(events) >= reserved:
                self._bucket.take("", len(events), now)
                return None
            rows = []
            for rank, row in self._ranked(events):
                if left < 1 or left <= rank * reserved:
                    break
                rows.append(row)
                left -= 1
            self._bucket.take("", len(rows), now)
        return sorted(rows) if len(rows) < len(events) else None

    def _ranked(self, events: Sequence[Any]) -> list[tuple[float, int]]:
        """(rank, number) of each, what matters most first."""
        values = [next(iter(self._field.found(event)), None) for event in events]
        match self._settings.policy:
            case "oldest":
                return self._seen.ranked([_moment(value) for value in values])
            case "sample":
                return sorted((self._place(value), row) for row, value in enumerate(values))
            case _ if self._ranks:
                return sorted((self._declared(value), row) for row, value in enumerate(values))
            case _:
                return self._seen.ranked([_weight(value) for value in values])

    def _place(self, value: Any) -> float:
        """The same for the same value, today and tomorrow. What has none is a sample by itself."""
        if value is None or not self._settings.field:
            return random.random()
        return zlib.crc32(key_text(value).encode("utf-8", "surrogatepass")) / (1 << 32)

    def _declared(self, value: Any) -> float:
        known = isinstance(value, str | int | float | Decimal)
        return self._ranks.get(cast(Any, value), self._last) if known else self._last


Key = tuple[int, Any]
"""The greater, the more it matters."""


class Seen:
    """The values that were last seen, each once: how much one matters is known by those that others have. However rare
    one is, it counts as much as the others. Not safe for several threads by itself."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._recent: OrderedDict[Key, None] = OrderedDict()
        self._sorted: list[Key] = []

    def ranked(self, keys: Sequence[Key]) -> list[tuple[float, int]]:
        """(rank, number) of each, the greatest first."""
        for key in keys:
            self._note(key)
        rows = sorted(range(len(keys)), key=keys.__getitem__, reverse=True)
        return [(1 - bisect_right(self._sorted, keys[row]) / len(self._sorted), row) for row in rows]

    def _note(self, key: Key) -> None:
        if key not in self._recent:
            insort(self._sorted, key)
        self._recent[key] = None
        self._recent.move_to_end(key)
        if len(self._recent) > self._most:
            oldest, _ = self._recent.popitem(last=False)
            del self._sorted[bisect_left(self._sorted, oldest)]


MOST_TEXT = 64
"""Of a text that is to be compared: longer than any time."""


def _moment(value: Any) -> Key:
    """Numbers and ISO texts in their order; what has no time happened just now."""
    if _is_number(value):
        return (0, value)
    return (1, value[:MOST_TEXT]) if isinstance(value, str) else (2, 0)


def _weight(value: Any) -> Key:
    """What has no number matters least."""
    return (1, value) if _is_number(value) else (0, 0)


def _is_number(value: Any) -> bool:
    """That can be compared with any other, however large: which is why none is made a float."""
    return isinstance(value, int) or (isinstance(value, float | Decimal) and not math.isnan(value))


def only(raw: RawEvents, rows: Sequence[int]) -> RawEvents:
    """The same with these events alone. Their ids are those they would have had among all."""
    assert raw.sent is not None
    sent = raw.sent
    numbers = {row: number for number, row in enumerate(rows)}
    refused = {numbers[row]: reason for row, reason in sent.refused.items() if row in numbers}
    partitions = None if raw.partitions is None else [raw.partitions[row] for row in rows]
    position = raw.position
    kept = Sent([sent.events[row] for row in rows], lambda number: sent.slices(rows[number]), refused)
    at = None if position is None else lambda number: position(rows[number])
    return replace(raw, sent=kept, partitions=partitions, numbers=rows, position=at)


def numbered(outcome: Outcome, rows: Sequence[int], sent: int) -> Outcome:
    """The outcome by the numbers the events were sent with."""
    rejected = tuple(replace(one, index=rows[one.index]) for one in outcome.rejected)
    left_out = tuple(sorted(set(range(sent)).difference(rows)))
    return replace(outcome, rejected=rejected, shed=len(left_out), left_out=left_out)
