"""Members of groups that live behind HTTP: each has a consumer here, and loses it when it is silent for too long.

An answer can be lost on its way. So a client may number its polls: asked for the same number again, the consumer goes
back to where it was before the answer that did not arrive."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.clock import Clock
from headrace.deliver.browse import decode_rows
from headrace.errors import HeadraceError, NotFound, Overloaded, UsageError
from headrace.log.base import Consumer, Log, Records, Subscription, TopicPartition
from headrace.log.codecs.event_json import event_maker
from headrace.log.codecs.json_encode import to_json
from headrace.patterns import Regex, compile_pattern

MAX_CONSUMERS = 1000


@dataclass(slots=True)
class Member:
    id: str
    group: str
    topics: Subscription
    session_timeout_s: float
    consumer: Consumer
    heard: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A consumer is for one at a time."""
    poll: int | None = None
    before: dict[TopicPartition, int] = field(default_factory=dict)
    """Where it was before the newest answer, which had the number `poll`."""


@dataclass(frozen=True, slots=True)
class Polled:
    records: list[bytes]
    offsets: dict[TopicPartition, int]
    """Where the consumer is now."""
    cut: bool


class Members:
    """Belongs to one event loop; what blocks is called in threads by the routes."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self._members: dict[str, Member] = {}

    def join(
        self,
        group: str,
        topics: Subscription,
        start: str,
        client: str,
        session_timeout_s: float,
        id_: str | None = None,
    ) -> Member:
        """Blocks until the group has taken it in. With the id of a member that is in already, that is the one."""
        id_ = id_ or uuid.uuid4().hex
        if id_ in self._members:
            return self.member(group, id_)
        if len(self._members) >= MAX_CONSUMERS:
            raise Overloaded(f"{MAX_CONSUMERS} consumers are there already", retry_after=5.0)
        consumer = self._log.consumer(
            topics,
            group=group,
            start="latest" if start == "latest" else "earliest",
            client=client or "http",
            session_timeout_s=session_timeout_s,
        )
        member = Member(id_, group, topics, session_timeout_s, consumer, self._clock.monotonic())
        if self._members.setdefault(id_, member) is not member:
            consumer.close()  # the same call came again while this one was waiting
        return self.member(group, id_)

    def member(self, group: str, id_: str) -> Member:
        """`NotFound` if it never was, or was silent for too long."""
        found = self._members.get(id_)
        if found is None or found.group != group:
            raise NotFound(
                f"group `{group[:100]}` has no consumer `{id_[:40]}` here",
                hint="it may have been silent for longer than its session timeout: join again",
            )
        found.heard = self._clock.monotonic()
        return found

    def leave(self, member: Member) -> None:
        self._members.pop(member.id, None)
        member.consumer.close()

    def silent(self) -> list[Member]:
        """Those to be sent away."""
        now = self._clock.monotonic()
        return [
            member
            for member in list(self._members.values())  # others join and leave in threads
            if now - member.heard > member.session_timeout_s and not member.lock.locked()
        ]

    def close(self) -> None:
        for member in list(self._members.values()):
            try:
                self.leave(member)
            except HeadraceError:
                continue  # the log is closing too; the session timeout does the rest

    def poll(self, member: Member, number: int | None, limit: int, max_bytes: int) -> Polled:
        """What is there for it now, without waiting."""
        consumer = member.consumer
        if number is not None and number == member.poll:
            for at in consumer.assignment() & set(member.before):
                consumer.seek(at, member.before[at])
        found = consumer.poll(0.0, limit)
        before = {TopicPartition(one.topic, one.partition): one.first_offset for one in reversed(found)}
        texts, cut = self._encode(member, found, limit, max_bytes)
        if texts:
            member.poll, member.before = number, before
        positions = {at: consumer.position(at) for at in sorted(before)}
        return Polled(texts, positions, cut)

    def _encode(self, member: Member, found: Sequence[Records], limit: int, max_bytes: int) -> tuple[list[bytes], bool]:
        """Records as JSON up to the limits. What does not fit is left: the consumer goes back to it."""
        texts: list[bytes] = []
        size = 0
        left: dict[TopicPartition, int] = {}
        for records in found:
            at = TopicPartition(records.topic, records.partition)
            make = event_maker(self._log.topic(records.topic))
            for row in decode_rows(records):
                if at in left or len(texts) >= limit or (texts and size > max_bytes):
                    left.setdefault(at, row.offset)
                    break
                event = {"topic": records.topic} | make(row.columns, row.partition, row.offset)
                texts.append(to_json(event))
                size += len(texts[-1])
        for at, offset in left.items():
            member.consumer.seek(at, offset)
        return texts, bool(left)


def subscription(topics: str | Sequence[str]) -> Subscription:
    """Names, wildcards, or one regular expression between slashes.

    >>> subscription("/eu-.*/").pattern, subscription(["a", "b"]), subscription("orders.*")
    ('eu-.*', ['a', 'b'], 'orders.*')
    """
    if isinstance(topics, str) and len(topics) > 2 and topics.startswith("/") and topics.endswith("/"):
        return compile_pattern(topics[1:-1])
    if not topics or not all(isinstance(topic, str) and topic for topic in topics):
        raise UsageError("a consumer needs a topic", hint='{"topics": ["orders"]}')
    return topics if isinstance(topics, str) else list(topics)


def shown(topics: Subscription) -> list[str]:
    """The inverse of `subscription`, for answers."""
    if isinstance(topics, re.Pattern | Regex):
        return [f"/{topics.pattern}/"]
    return [topics] if isinstance(topics, str) else list(topics)


def offsets_by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for at, offset in offsets.items():
        found.setdefault(at.topic, {})[at.partition] = offset
    return found
