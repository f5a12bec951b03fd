"""The consumer over librdkafka's, in one of Kafka's groups or in none.

Patterns are looked up here and topics subscribed to by name, so that they mean the same on every log.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as At

from headrace.errors import Fenced, NotFound, OffsetOutOfRange, UsageError
from headrace.log.base import Consumer, PartitionEnds, Records, Start, Subscription, Topic, TopicPartition
from headrace.log.kafka.buffer import Buffer
from headrace.log.kafka.client import Connection
from headrace.log.kafka.commits import Commits
from headrace.log.kafka.decode import Decoder
from headrace.log.kafka.errors import translate
from headrace.log.subscription import wanted

OutOfRange = Literal["error", "earliest", "latest"]
Listed = Callable[[], list[Topic]]
Ends = Callable[[TopicPartition], PartitionEnds]
TimeOffset = Callable[[str, int, int], int]
Decoding = Callable[[str], Decoder]

_LOOK_EVERY_S = 0.5
_BUFFERED = 10_000
_OVERTAKEN = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_PASSING = (
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
)
"""What librdkafka gets over by itself."""


class KafkaConsumer(Consumer):
    def __init__(
        self,
        connection: Connection,
        listed: Listed,
        ends: Ends,
        at_time: TimeOffset,
        decoding: Decoding,
        topics: Subscription,
        group: str | None,
        start: Start,
        client: str,
        session_timeout_s: float,
        out_of_range: OutOfRange,
    ) -> None:
        if start not in get_args(Start):
            raise UsageError(f"a consumer starts at `earliest` or `latest`, not `{start}`", hint="then `seek`")
        if out_of_range not in get_args(OutOfRange):
            raise UsageError(f"out_of_range is `error`, `earliest` or `latest`, not `{out_of_range}`")
        self._connection, self._listed, self._ends = connection, listed, ends
        self._at_time, self._decoding = at_time, decoding
        self._wanted = wanted(topics)
        self._group, self._start, self._out_of_range = group, start, out_of_range
        self._prefix = connection.settings.prefix
        found = {topic.name: topic for topic in listed()}
        for name in self._wanted.names:
            if name not in found:
                raise NotFound(f"topic `{name}` does not exist", hint="`headrace topic list` lists what there is")
        self._old = {topic.id for topic in found.values()}
        """Topics that were there before us; later ones are read from their beginning."""
        self._topics: dict[str, Topic] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._buffer = Buffer()
        self._gains: dict[TopicPartition, int] = {}
        """In a group: when a partition became ours. One that was lost and came back is another."""
        self._numbers = itertools.count()
        self._overtaken: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._next_look = 0.0
        self._closed = False
        self._commits = Commits(connection, group or "", session_timeout_s)
        self._client = Client(self._conf(group, client, session_timeout_s) | {"on_commit": self._commits.answered})
        self._look_around()

    def _conf(self, group: str | None, client: str, session_timeout_s: float) -> dict[str, Any]:
        session_ms = int(session_timeout_s * 1000)
        named = {"client_id": client} if client else {}
        return self._connection.conf(
            group_id=self._prefix + (group or "headrace-reader"),
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            isolation_level="read_committed",
            partition_assignment_strategy="cooperative-sticky",
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=max(1, min(session_ms // 4, 1000)),
            # A member that does not poll is gone, as everywhere, though librdkafka's own thread would go on.
            max_poll_interval_ms=session_ms,
            fetch_wait_max_ms=100,
            queued_max_messages_kbytes=32 * 1024,
            **named,
        )

    # Which partitions are ours

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions)

    def _look_around(self) -> None:
        """Topics come and go."""
        if time.monotonic() < self._next_look:
            return
        listed = {topic.name: topic for topic in self._listed()}
        now = {name: listed[name] for name in self._wanted.among(listed)}
        before, self._topics = self._topics, now
        same = {name: (topic.id, topic.spec.partitions) for name, topic in now.items()} == {
            name: (topic.id, topic.spec.partitions) for name, topic in before.items()
        }
        if not same:
            replaced = {name for name, topic in before.items() if name not in now or now[name].id != topic.id}
            self._subscribe(now, replaced) if self._group is not None else self._assign(now, replaced)
        self._next_look = time.monotonic() + _LOOK_EVERY_S

    def _subscribe(self, now: Mapping[str, Topic], replaced: set[str]) -> None:
        for name in replaced:
            self._forget([at for at in self._positions if at.topic == name])
        if not now:
            self._client.unsubscribe()
            return
        names = [self._prefix + name for name in now]
        self._client.subscribe(names, on_assign=self._gained, on_revoke=self._revoked, on_lost=self._lost)

    def _assign(self, now: Mapping[str, Topic], replaced: set[str]) -> None:
        ours = {TopicPartition(name, n) for name, topic in now.items() for n in range(topic.spec.partitions)}
        gone = [at for at in self._positions if at not in ours or at.topic in replaced]
        self._forget(gone)
        for at in sorted(ours - set(self._positions)):
            self._positions[at] = self._first(at)
        for name in now:
            self._client.list_topics(self._prefix + name, timeout=self._connection.settings.request_seconds)
        self._client.assign([self._kafka(at, offset) for at, offset in sorted(self._positions.items())])
        self._buffer.clear()
        if self._paused:
            self._client.pause([self._kafka(at) for at in self._paused])

    def _first(self, at: TopicPartition) -> int:
        """Where to begin without a committed offset."""
        ends = self._ends(at)
        topic = self._topics.get(at.topic)
        old = topic is not None and topic.id in self._old
        return ends.end if self._start == "latest" and old else ends.start

    def _gained(self, client: Client, partitions: list[At]) -> None:
        if self._closed:
            # They came while we were leaving; asking where to begin would only make everybody wait.
            client.incremental_assign(partitions)
            return
        committed = client.committed(partitions, timeout=self._connection.settings.request_seconds)
        starting = []
        for place in committed:
            at = self._ours(place)
            try:
                self._positions[at] = place.offset if place.offset >= 0 else self._first(at)
            except NotFound:
                continue
            self._gains[at] = next(self._numbers)
            starting.append(self._kafka(at, self._positions[at]))
        client.incremental_assign(starting)

    def _revoked(self, client: Client, partitions: list[At]) -> None:
        """We are still a member and they are still ours: the last moment to commit them."""
        self._commits.settle(client, map(self._ours, partitions))
        self._lost(client, partitions)

    def _lost(self, client: Client, partitions: list[At]) -> None:
        self._forget([self._ours(at) for at in partitions])
        client.incremental_unassign(partitions)

    def _forget(self, gone: Sequence[TopicPartition]) -> None:
        for at in gone:
            self._positions.pop(at, None)
            self._gains.pop(at, None)
            self._buffer.drop(at)
            self._overtaken.discard(at)
            self._paused.discard(at)

    def _kafka(self, at: TopicPartition, offset: int | None = None) -> At:
        name = self._prefix + at.topic
        return At(name, at.partition) if offset is None else At(name, at.partition, offset)

    def _ours(self, at: At) -> TopicPartition:
        return TopicPartition(at.topic.removeprefix(self._prefix), at.partition)

    # Reading

    def poll(self, timeout: float = 1.0, max_records: int = 10_000) -> list[Records]:
        if self._closed:
            raise UsageError("the consumer is closed")
        if max_records < 1:
            raise UsageError(f"cannot poll {max_records} records")
        deadline = time.monotonic() + timeout
        while True:
            self._look_around()
            ready = self._buffer.ready(self._paused)
            left = deadline - time.monotonic()
            self._fill(0 if ready else max(0.0, min(left, _LOOK_EVERY_S)))
            found = self._gather(max_records)
            if found:
                return found
            self._raise_overtaken()
            if time.monotonic() >= deadline:
                return []

    def _fill(self, timeout: float) -> None:
        room = _BUFFERED - len(self._buffer)
        first = self._client.poll(timeout)
        if first is None:
            return
        for message in [first, *(self._client.consume(room, 0) if room > 0 else ())]:
            self._keep(message)

    def _keep(self, message: Message) -> None:
        error = message.error()
        topic = message.topic()
        at = None if topic is None else TopicPartition(topic.removeprefix(self._prefix), message.partition())
        if error is None:
            if at in self._positions:
                self._buffer.add(at, message)
        elif error.code() == KafkaError._PARTITION_EOF:
            # Past marks of transactions, which nobody is given: they must not count as lag.
            if at in self._positions and not self._buffer.has(at):
                self._positions[at] = max(self._positions[at], message.offset())
        elif error.code() in _OVERTAKEN:
            if at in self._positions:
                self._overtake(at)
        elif error.code() not in _PASSING:
            raise translate(error, "read", self._connection)

    def _overtake(self, at: TopicPartition) -> None:
        ends = self._ends(at)
        if ends.start <= self._positions[at] <= ends.end:
            # The news is old: about a topic of that name that is no more.
            self.seek(at, self._positions[at])
        elif self._out_of_range == "error":
            self._overtaken.add(at)
        else:
            self.seek(at, self._out_of_range)

    def _raise_overtaken(self) -> None:
        if self._overtaken:
            # Or is it another topic by now?
            self._next_look = 0.0
            self._look_around()
        for at in sorted(self._overtaken):
            ends = self._ends(at)
            raise OffsetOutOfRange(
                f"topic `{at.topic}`, partition {at.partition}: offset {self._positions[at]} is not in the log",
                detail=f"it goes from {ends.start} to {ends.end}",
                hint="seek, or open the consumer with out_of_range `earliest` or `latest`",
                start=ends.start,
                end=ends.end,
            )

    def _gather(self, most: int) -> list[Records]:
        found = []
        for at, messages in self._buffer.take(most, self._paused).items():
            records = self._decoding(at.topic).records(messages)
            self._positions[at] = records.next_offset
            found.append(records)
        return found

    def heartbeat(self) -> None:
        """librdkafka beats by itself, but only for somebody who asks for messages."""
        if self._group is None:
            return
        had = self.assignment()
        self._fill(0)
        if had - self.assignment():
            raise Fenced(f"group `{self._group}` has taken partitions away", hint="poll, and go on with what is ours")

    # Moving

    def position(self, at: TopicPartition) -> int:
        self._check(at)
        return self._positions[at]

    def seek(self, at: TopicPartition, to: int | Start) -> None:
        self._check(at)
        offset = to if isinstance(to, int) else getattr(self._ends(at), "start" if to == "earliest" else "end")
        self._buffer.drop(at)
        self._overtaken.discard(at)
        self._positions[at] = offset
        try:
            self._client.seek(self._kafka(at, offset))
        except KafkaException:
            # Not fetching: not begun yet, or stopped because it was overtaken.
            self._client.incremental_unassign([self._kafka(at)])
            self._client.incremental_assign([self._kafka(at, offset)])

    def seek_to_time(self, time_ms: int) -> None:
        for at in sorted(self._positions):
            self.seek(at, self._at_time(at.topic, at.partition, time_ms))

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        for at in partitions:
            self._check(at)
        self._paused |= set(partitions)
        self._client.pause([self._kafka(at) for at in partitions])

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        for at in partitions:
            self._check(at)
        self._paused -= set(partitions)
        self._client.resume([self._kafka(at) for at in partitions])

    def _check(self, at: TopicPartition) -> None:
        if at not in self._positions:
            raise UsageError(f"topic `{at.topic}`, partition {at.partition} is not assigned to this consumer")

    # Committing

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        if self._group is None:
            raise UsageError("a consumer without a group commits nothing", hint="open it with a group")
        self._commits.commit(self._client, self._positions if offsets is None else offsets, self._gains, self._fill)

    def membership(self) -> Any:
        """What a transactional producer needs to commit offsets in our name."""
        return self._client.consumer_group_metadata()

    def __del__(self) -> None:
        """One that nobody closed: librdkafka would wait for ever to leave the group, and all threads with it."""
        if hasattr(self, "_client"):
            with suppress(Exception):
                self.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._client.close()
