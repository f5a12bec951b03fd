"""Events as they are sent, and records as they are read."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.server.models.base import Count, Model, Optional
from headrace.server.models.sql import ViewAnswer


class Rejected(Model, frozen=True):
    index: Count
    reason: str
    dead_letter: Count | None


class Place(Model, frozen=True):
    partition: Count
    offset: Count


class EventsAnswer(Model, frozen=True):
    accepted: Count
    duplicates: Count
    rejected: list[Rejected]
    position: Place | None
    positions: list[tuple[int, int, int]]
    shed: Count | msgspec.UnsetType = msgspec.UNSET
    """How many the collector left out, by its `[shed]`."""
    buffered: bool | msgspec.UnsetType = msgspec.UNSET
    """The log is away: they are durable where they were sent to, and will be in it."""
    token: str | None = None
    """What a read takes as `after`, to include these events. None if they are not in the log yet."""
    view: ViewAnswer | msgspec.UnsetType = msgspec.UNSET
    """What the view that was asked says."""


class WindowBounds(Model, frozen=True):
    start: int
    end: int


class Event(Optional, frozen=True, kw_only=True):
    partition: Count
    offset: Count
    arrival: Count | None
    time_ms: Count
    id: str | None
    key: dict[str, Any]
    value: dict[str, Any] | None
    rest: dict[str, Any] | None
    headers: dict[str, Any] | None
    window: WindowBounds | None = None


class Events(Model, frozen=True):
    events: list[Event]
    cut: bool
    """Whether there was more, but the limit or the size of an answer was reached."""


class NewRecord(Model, frozen=True):
    """A raw topic's key and value are text, `{"base64": …}`, or any other JSON as its text."""

    key: Any = None
    value: Any = None
    headers: dict[str, Any] | None = None
    partition: Count | None = None
    time: int | str | None = None
    id: str | None = None


class NewRecords(Model, frozen=True):
    records: list[NewRecord]


class RecordsPage(Model, frozen=True):
    records: list[Event]
    from_: str = msgspec.field(name="from")
    next: str
    starts: str
    ends: str
    cut: bool
    epoch: str | None = None
    """Of the log: `at=NEXT@EPOCH` is refused by a log that was restored to an earlier moment since."""
    damage: dict[str, Any] | None = None
    """What cannot be read behind the records of this page, as the error `corrupt_frame`."""
