"""How much a collector takes: token buckets over all of it, for each tenant and for each key.

A bucket that has run empty refuses, and says when it will have what is asked; a request that is larger than a bucket is
taken when the bucket is full, and paid for by those after it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from headrace.clock import Clock
from headrace.collect.rules.fields import Path, Spellings, is_within
from headrace.config import Settings
from headrace.errors import ConfigError, Overloaded

KEPT = 100_000
"""Tenants, and keys, whose buckets are remembered; of more, those longest unheard of start with a full one again."""
LONG = 64
"""Longer names are remembered by their digest: whoever makes them up decides how long they are."""


class QuotaSettings(Settings, frozen=True):
    """0 is no limit. Where several processes take events (`[server] workers`), each has its share."""

    events_per_second: float = 0
    """Of all senders together."""
    bytes_per_second: float = 0
    """The same in bytes, decompressed."""
    tenant_events_per_second: float = 0
    """Of one tenant: whoever uses one write key or API key, or, where no keys are checked, one address."""
    tenant_bytes_per_second: float = 0
    """The same in bytes."""
    key_field: str = ""
    """A field of the events, such as `device`, each value of which has a limit of its own."""
    key_events_per_second: float = 0
    """Of events with the same value in it."""
    burst_seconds: float = 10.0
    """What was not used of so many seconds may come at once."""

    @property
    def any(self) -> bool:
        return self != QuotaSettings()

    def check(self) -> None:
        for name in ("events", "bytes", "tenant_events", "tenant_bytes", "key_events"):
            if getattr(self, f"{name}_per_second") < 0:
                raise ConfigError(f"`{name}_per_second` is below zero", path=("quota", f"{name}_per_second"))
        if not self.burst_seconds > 0:
            raise ConfigError("`burst_seconds` must be above zero", path=("quota", "burst_seconds"))
        if bool(self.key_field) != bool(self.key_events_per_second):
            raise ConfigError(
                "`key_field` and `key_events_per_second` belong together", path=("quota", "key_events_per_second")
            )


class Buckets:
    """One bucket for each name, of one rate. Not safe for several threads by itself."""

    def __init__(self, rate: float, burst_seconds: float) -> None:
        self.rate, self.size = rate, max(1.0, rate * burst_seconds)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What a bucket had, and when."""

    def missing(self, name: str, wanted: float, now: float) -> float:
        """Seconds until it has as much; 0 if it has."""
        if not self.rate:
            return 0.0
        short = min(wanted, self.size) - self.left(name, now)
        return short / self.rate if short > 1e-9 else 0.0

    def left(self, name: str, now: float) -> float:
        left, then = self._left.get(_short(name), (self.size, now))
        return min(self.size, left + (now - then) * self.rate)

    def take(self, name: str, wanted: float, now: float) -> None:
        if not self.rate:
            return
        name = _short(name)
        self._left[name] = (self.left(name, now) - wanted, now)
        self._left.move_to_end(name)
        if len(self._left) > KEPT:
            self._left.popitem(last=False)

    def names(self) -> Iterable[str]:
        """Those that are remembered."""
        return self._left.keys()


class Quota:
    """The limits of one collector. Safe to use from several threads."""

    def __init__(self, settings: QuotaSettings, clock: Clock, share: float = 1.0, hidden: Collection[str] = ()) -> None:
        """`share`: this process's part of them; `hidden`: fields whose values no message may show."""
        self._tells = not is_within(settings.key_field, hidden)
        self._clock, self._lock = clock, threading.Lock()
        self._field = Path(settings.key_field, Spellings()) if settings.key_field else None
        burst = settings.burst_seconds
        self._events = Buckets(settings.events_per_second * share, burst)
        self._bytes = Buckets(settings.bytes_per_second * share, burst)
        self._tenant_events = Buckets(settings.tenant_events_per_second * share, burst)
        self._tenant_bytes = Buckets(settings.tenant_bytes_per_second * share, burst)
        self._key_events = Buckets(settings.key_events_per_second * share, burst)

    def take(self, events: Sequence[Any], size: int, tenant: str) -> None:
        """`Overloaded` with when to come again, if any limit is reached: then nothing was used of the others."""
        with self._lock:
            now = self._clock.monotonic()
            wanted = list(self._wanted(events, size, tenant))
            waits = [(buckets.missing(name, amount, now), what) for buckets, name, amount, what in wanted]
            seconds, what = max(waits, default=(0.0, ""))
            if seconds > 0:
                raise Overloaded(f"over the quota of {what}", hint="wait as `Retry-After` says", retry_after=seconds)
            for buckets, name, amount, _ in wanted:
                buckets.take(name, amount, now)

    def _wanted(self, events: Sequence[Any], size: int, tenant: str) -> Iterable[tuple[Buckets, str, float, str]]:
        count = len(events)
        yield self._events, "", count, "events per second of this collector"
        yield self._bytes, "", size, "bytes per second of this collector"
        yield self._tenant_events, tenant, count, "events per second of one sender"
        yield self._tenant_bytes, tenant, size, "bytes per second of one sender"
        if self._field is not None:
            keys = Counter(key_text(value) for event in events for value in self._field.found(event)[:1])
            for key, of_key in keys.items():
                told = f"`{key[:40]}`" if self._tells else "of one value"
                yield self._key_events, key, of_key, f"events per second with `{self._field.name}` {told}"


def key_text(value: Any) -> str:
    """A field's value as a key. Numbers that Python will not print count as one."""
    try:
        return str(value)
    except (ValueError, RecursionError):
        return type(value).__name__


def _short(name: str) -> str:
    return name if len(name) <= LONG else hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
