"""What the API answers and takes about queues, requests and groups."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from headrace.server.models.base import Count, Model
from headrace.server.models.events import Event, Place

Receipts = Annotated[list[str], msgspec.Meta(max_length=10_000)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


# Queues


class NewQueue(Model, frozen=True):
    name: str
    topic: str
    lease_s: Seconds = 30.0
    max_deliveries: Count = 5
    order: Literal["none", "key"] = "none"
    start: Literal["earliest", "latest"] = "earliest"
    max_unsettled: Count = 10_000


class QueueModel(Model, frozen=True):
    name: str
    topic: str
    lease_s: Seconds
    max_deliveries: Count
    order: Literal["none", "key"]
    start: Literal["earliest", "latest"]
    max_unsettled: Count
    ready: Count
    leased: Count
    delayed: Count
    dead: Count
    missing: Count
    error: str | None


class QueuesAnswer(Model, frozen=True):
    queues: list[QueueModel]


class MessageModel(Model, frozen=True):
    receipt: str
    deliveries: Count
    record: Event


class MessagesAnswer(Model, frozen=True):
    messages: list[MessageModel]


class AckRequest(Model, frozen=True):
    receipts: Receipts


class NackRequest(Model, frozen=True):
    receipts: Receipts
    delay_s: Seconds = 0.0
    reason: str | None = None


class ExtendRequest(Model, frozen=True):
    receipts: Receipts
    lease_s: Seconds | None = None


class SettledAnswer(Model, frozen=True):
    done: Count
    lost: list[str]


# Requests


class NewRequest(Model, frozen=True):
    key: Any = None
    value: Any = None
    headers: dict[str, Any] | None = None
    partition: Count | None = None
    reply_topic: str | None = None


class ReplyAnswer(Model, frozen=True):
    correlation_id: str
    reply_topic: str
    request: Place | None
    reply: Event


# Groups


class PartitionOf(Model, frozen=True):
    topic: str
    partition: Count


class MemberModel(Model, frozen=True):
    id: str
    client: str
    partitions: list[PartitionOf]


class GroupOffsetModel(Model, frozen=True):
    topic: str
    partition: Count
    committed: Count | None
    end: Count
    lag: Count
    member: str | None


class GroupModel(Model, frozen=True):
    name: str
    state: Literal["empty", "rebalancing", "stable"]
    lag: Count
    members: list[MemberModel]
    offsets: list[GroupOffsetModel]


class Groups(Model, frozen=True):
    groups: list[GroupModel]


class NewConsumer(Model, frozen=True):
    topics: str | list[str]
    """Names, wildcards (`orders.*`), or one regular expression between slashes."""
    start: Literal["earliest", "latest"] = "earliest"
    client: str = ""
    session_timeout_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 30.0
    id: Annotated[str, msgspec.Meta(pattern="^[0-9A-Za-z_-]{16,64}$")] | None = None
    """Chosen by the caller: a join whose answer was lost can be sent again, and does not become a second member."""


class ConsumerModel(Model, frozen=True):
    id: str
    group: str
    topics: list[str]
    session_timeout_s: float
    assignment: list[PartitionOf]


class OffsetModel(Model, frozen=True):
    topic: str
    partition: Count
    offset: Count


class ConsumedRecord(Event, frozen=True, kw_only=True):
    topic: str


class ConsumedAnswer(Model, frozen=True):
    records: list[ConsumedRecord]
    offsets: list[OffsetModel]
    """Where the consumer is after them: what to commit when they are processed."""
    cut: bool


class CommitRequest(Model, frozen=True):
    offsets: list[OffsetModel] | None = None


class ResetRequest(Model, frozen=True):
    """To `earliest`, `latest`, a time, or offsets; of all topics the group knows, or of `topics`."""

    to: Literal["earliest", "latest"] | None = None
    time: str | int | None = None
    offsets: list[OffsetModel] | None = None
    topics: list[str] | None = None
    force: bool = False
