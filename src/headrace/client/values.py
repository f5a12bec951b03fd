"""What goes in and comes out. Fields a newer server adds are ignored."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class NewRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record with all its parts. Without a value it is a tombstone."""

    key: Any = None
    value: Any = None
    headers: dict[str, Any] | None = None
    partition: int | None = None
    time: int | str | None = None
    id: str | None = None


class Rejected(msgspec.Struct, frozen=True):
    index: int
    reason: str
    dead_letter: int | None = None


class Produced(msgspec.Struct, frozen=True):
    accepted: int
    duplicates: int
    rejected: list[Rejected]
    positions: list[tuple[int, int, int]]
    """(partition, first offset, last offset)"""
    token: str | None = None
    """What `query` takes as `after`, so that its answer includes these events."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    topic: str = ""
    partition: int
    offset: int
    time_ms: int
    key: dict[str, Any]
    value: dict[str, Any] | None
    """None is a tombstone."""
    rest: dict[str, Any] | None = None
    """Fields that the topic has no column for."""
    headers: dict[str, Any] | None = None
    id: str | None = None
    arrival: int | None = None
    window: dict[str, int] | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Key, value and rest as one: the event as it was sent."""
        return self.key | (self.value or {}) | (self.rest or {})


class Page(msgspec.Struct, frozen=True):
    """Records, and where the page begins and ends: `at=page.next` reads on, `before=page.first` reads back."""

    records: list[Record]
    first: str = msgspec.field(name="from")
    next: str
    starts: str
    ends: str
    cut: bool
    epoch: str | None = None
    """Of the log. `at=page.place` is refused by a log that was restored to an earlier moment since."""

    @property
    def place(self) -> str:
        """Where to read on, and in which epoch of the log that is."""
        return self.next if self.epoch is None else f"{self.next}@{self.epoch}"


class Topic(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["typed", "raw"]
    role: str
    partitions: list[dict[str, int]]
    records: int
    bytes: int
    columns: list[dict[str, Any]]
    config: dict[str, Any]
    sources: list[str]
    rate: float
    dead_letters: int


class Offset(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int


class GroupOffset(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int
    member: str | None = None


class Group(msgspec.Struct, frozen=True):
    name: str
    state: str
    lag: int
    members: list[dict[str, Any]]
    offsets: list[GroupOffset]


class Consumed(msgspec.Struct, frozen=True):
    records: list[Record]
    offsets: list[Offset]
    cut: bool


class Queue(msgspec.Struct, frozen=True):
    name: str
    topic: str
    lease_s: float
    max_deliveries: int
    order: str
    ready: int
    leased: int
    delayed: int
    dead: int


class Message(msgspec.Struct, frozen=True):
    """A record that is this receiver's until its lease ends."""

    receipt: str
    deliveries: int
    record: Record


class Settled(msgspec.Struct, frozen=True):
    done: int
    lost: list[str]
    """Receipts of messages that are somebody else's by now."""


class Reply(msgspec.Struct, frozen=True):
    correlation_id: str
    reply_topic: str
    reply: Record


class Answer(msgspec.Struct, frozen=True):
    """A pull query's."""

    columns: list[dict[str, str]]
    rows: list[list[Any]]
    truncated: bool
    view: str | None = None
    version: int | None = None
    through: dict[str, Any] | None = None

    def dicts(self) -> list[dict[str, Any]]:
        names = [column["name"] for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


class Change(msgspec.Struct, frozen=True):
    """A row of a view that changed; without a value it was deleted. `id` is what to continue after."""

    key: dict[str, Any]
    value: dict[str, Any] | None
    time_ms: int | None = None
    window: dict[str, int] | None = None
    snapshot: bool = False
    id: str | None = None
