"""`KafkaLog`: the contract of `log/base.py` over a Kafka cluster. Each part is a file; this one puts them together.

What Kafka does not have, such as one order over all partitions (`arrival`), is missing from the capabilities;
docs/reference/logs.md says what that means.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient

from headrace.clock import Clock
from headrace.config import LogSettings
from headrace.errors import NotFound, OffsetOutOfRange, TooLarge, UsageError
from headrace.log.base import (
    NO_STREAM_TIME,
    Acks,
    Append,
    Appended,
    BatchIdentity,
    Capability,
    Committed,
    Consumer,
    Group,
    Log,
    PartitionEnds,
    Producer,
    Records,
    Route,
    Snapshot,
    Start,
    Subscription,
    Topic,
    TopicPartition,
    TopicSpec,
    TopicStats,
)
from headrace.log.codecs.base import Schemas
from headrace.log.kafka.append import Appender
from headrace.log.kafka.batches import Batches
from headrace.log.kafka.client import Connection
from headrace.log.kafka.consumer import KafkaConsumer, OutOfRange
from headrace.log.kafka.decode import Decoder
from headrace.log.kafka.encode import Encoder, Outgoing, with_stream_times
from headrace.log.kafka.errors import translate
from headrace.log.kafka.fetch import Fetcher
from headrace.log.kafka.forks import rename_inputs
from headrace.log.kafka.formats import topic_codecs
from headrace.log.kafka.groups import Groups
from headrace.log.kafka.identified import IdentifiedWriter
from headrace.log.kafka.ids import KafkaIds
from headrace.log.kafka.named_producer import NamedProducer
from headrace.log.kafka.offsets import Offsets
from headrace.log.kafka.producer import PlainProducer
from headrace.log.kafka.snapshots import Snapshots
from headrace.log.kafka.staging import Staging
from headrace.log.kafka.table import Table
from headrace.log.kafka.topics import Topics, check_partition
from headrace.log.kafka.turns import TURNS_TOPIC
from headrace.log.schema import normalize_spec

_OVERHEAD = 512
"""What a record may need beside its key and value."""
_SMALLEST_LIMIT = 1000


class KafkaLog(Log):
    capabilities: frozenset[Capability] = frozenset({"stage", "servers", "fork"})

    def __init__(
        self, settings: LogSettings, clock: Clock, schemas: Schemas | None = None, ids: Path | None = None
    ) -> None:
        """`ids`: where an index of event ids can be kept; without it ids are stored, but not looked up."""
        self.settings = settings
        self.connection = Connection(settings.kafka)
        self._clock = clock
        self.schemas = schemas
        prefix = settings.kafka.prefix
        self.admin = AdminClient(self.connection.conf())
        self.connection.listen(self.admin)
        self.fetcher = Fetcher(self.connection)
        self.offsets = Offsets(self.admin, self.connection)
        self._definitions = Table(f"{prefix}_headrace_topics", self.admin, self.fetcher, self.offsets)
        self._identities = Table(f"{prefix}_headrace_batches", self.admin, self.fetcher, self.offsets)
        retention = (int(settings.retention_hours * 3_600_000), settings.retention_bytes)
        self._topics = Topics(self.admin, self.connection, self._definitions, self._put_definition, retention)
        self._ids: KafkaIds | None = None
        identified: IdentifiedWriter | None = None
        if ids is not None:
            self._ids = KafkaIds(ids, settings, self._topics, self.fetcher, self.offsets, clock)
            turns = Table(f"{prefix}{TURNS_TOPIC}", self.admin, self.fetcher, self.offsets)
            identified = IdentifiedWriter(self.connection, self.offsets, self._ids, turns)
            self.capabilities = self.capabilities | {"event-ids"}
        self._appender = Appender(
            self.connection,
            self.offsets,
            settings.linger_ms,
            settings.max_pending_bytes,
            identified,
            None if self._ids is None else self._ids.wrote,
        )
        self._snapshots = Snapshots(self._topics, self.offsets)
        self._batches = Batches(self.connection, self.offsets, self._identities, clock, self._topics.all)
        self._groups = Groups(self.admin, self.connection, self._own_ends, self.fetcher.left)
        self._staging = Staging(
            self._batches,
            self._encoder,
            self._check_sizes,
            self._write,
            clock,
            settings.max_pending_bytes,
            self._topics.forks,
        )
        self._encoders: dict[str, Encoder] = {}
        self._lock = threading.Lock()
        self._alive = (0.0, False)
        try:
            self._definitions.make(self.connection)
            self._identities.make(self.connection)
            self._topics.all()
        except BaseException:
            self.close()
            raise

    def _put_definition(self, name: str, value: bytes | None) -> None:
        row = self._definitions.row(name, value, self._clock.now_ms())
        self._write([row])

    # Topics

    def create_topic(self, spec: TopicSpec) -> Topic:
        # A format nobody can write must be noticed before the topic is there.
        topic_codecs(normalize_spec(spec), self.schemas)
        return self._topics.create(spec)

    def alter_topic(self, spec: TopicSpec) -> Topic:
        return self._topics.alter(spec)

    def fork_topic(self, name: str, fork: str, writers: Sequence[tuple[str, int]] = ()) -> Topic:
        def shut_out() -> None:
            for query, version in writers:
                self._batches.shut_out(query, version)

        def ends(topic: Topic) -> list[int]:
            places = [TopicPartition(self.kafka_name(name), number) for number in range(topic.spec.partitions)]
            found = self.offsets.written(places)
            return [found[at] for at in places]

        return self._topics.fork(name, fork, shut_out, ends)

    def delete_topic(self, name: str) -> None:
        topic = self._topics.get(name, fresh=True)
        self._topics.delete(name, sum(partition.end for partition in self._snapshots.all_ends(topic)))
        self._encoders.pop(name, None)
        if self._ids is not None:
            self._ids.forget(name)

    def topic(self, name: str) -> Topic:
        return self._topics.get(name)

    def topics(self) -> list[Topic]:
        return self._topics.all()

    def kafka_name(self, topic: str) -> str:
        """What a topic is called in Kafka."""
        return self._topics.kafka_name(topic)

    def kafka_names(self, topic: str) -> tuple[str, ...]:
        """Return what a topic is called in Kafka, and what its records were called before it was forked."""
        names = topic, self._topics.get(topic).fork_of
        return tuple(self.kafka_name(name) for name in names if name)

    def stats(self, name: str) -> TopicStats:
        """Kafka's clients can ask neither for sizes nor for how many records there are, only for offsets."""
        topic = self._topics.get(name)
        ends = self._snapshots.all_ends(topic)
        extra: dict[str, Any] = {"kafka": self.kafka_name(name), "config": self._topics.live_config(name)}
        records = sum(partition.end - partition.start for partition in ends)
        return TopicStats(records, 0, 0, ends, NO_STREAM_TIME, extra)

    # Writing

    def append(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]:
        if acks not in ("0", "1", "all"):
            raise UsageError(f"acks must be 0, 1 or all, got `{acks}`")
        batches = [self._encode(append) for append in appends]
        future = self._appender.append(batches, acks)
        future.add_done_callback(lambda done: self._forget_missing(appends, done))
        return future

    def _encode(self, append: Append) -> Outgoing:
        try:
            batch = self._encoder(append.topic).encode(append.batch, append.partition)
        except UsageError:
            # Another process may have added columns or partitions.
            known = self._topics.get(append.topic)
            if self._topics.get(append.topic, fresh=True) == known:
                raise
            batch = self._encoder(append.topic).encode(append.batch, append.partition)
        self._check_sizes(batch)
        return batch

    def _encoder(self, name: str) -> Encoder:
        topic = self._topics.get(name)
        encoder = self._encoders.get(name)
        if encoder is None or encoder.topic != topic:
            encoder = self._encoders[name] = Encoder(
                topic, self.kafka_name(name), self._clock, self.schemas, look_up=self._ids is not None
            )
        return encoder

    def _check_sizes(self, batch: Outgoing) -> None:
        """Before anything is sent: a batch must not be stored up to the record that is too large."""
        if batch.largest <= _SMALLEST_LIMIT:
            return
        limit = self._topics.largest_record(batch.topic) - _OVERHEAD
        if batch.largest > limit:
            raise TooLarge(
                f"a record of {batch.largest} bytes is larger than topic `{batch.topic}` takes, {limit}",
                hint="raise the topic's `max.message.bytes` in Kafka",
            )

    def _write(self, batches: list[Outgoing]) -> None:
        self._appender.append(batches, "all").result()

    def _forget_missing(self, appends: Sequence[Append], done: Future[list[Appended]]) -> None:
        if isinstance(done.exception(), NotFound):
            for append in appends:
                self._topics.forget(append.topic)

    # A query's batches

    def stage(
        self,
        transaction: str,
        task: int,
        attempt: int,
        routes: Sequence[Route],
        batches: Iterator[pa.RecordBatch],
    ) -> int:
        return self._staging.stage(transaction, task, attempt, routes, batches)

    def commit(
        self, transaction: str, tasks: Sequence[tuple[int, int]], identity: BatchIdentity | None = None
    ) -> Committed:
        fresh = self._staging.commit(transaction, tasks, identity)
        return Committed(self._snapshots.now(fresh=False).arrival, duplicate=not fresh)

    def take_copy(
        self, identity: BatchIdentity, appends: Sequence[Append], stream_times: Sequence[Sequence[int] | None]
    ) -> bool:
        """Records of another log, with the stream times they had there, in one transaction with the copy's identity.
        False if this very batch was taken before."""

        def outgoing() -> Iterator[Outgoing]:
            for append, stamps in zip(appends, stream_times, strict=True):
                encoded = self._encode(append)
                yield encoded if stamps is None else with_stream_times(encoded, stamps)

        return self._batches.commit(identity, outgoing)

    def abort(self, transaction: str) -> None:
        self._staging.abort(transaction)

    def last_identity(self, query: str, version: int) -> BatchIdentity | None:
        return rename_inputs(self._batches.last(query, version), self._topics.forks())

    def settled_identity(self, query: str, version: int) -> BatchIdentity | None:
        """Return the last identity, after waiting for transactions that may hide a later one. `Unsettled` if one stays
        open. For whoever decides by it what to write."""
        return rename_inputs(self._batches.last_settled(query, version), self._topics.forks())

    # Reading

    def snapshot(self) -> Snapshot:
        return self._snapshots.now()

    def at_rest(self, topics: Sequence[str]) -> bool:
        places = [
            TopicPartition(self.kafka_name(name), number)
            for name in topics
            for number in range(self._topics.get(name).spec.partitions)
        ]
        return not self.offsets.pending([*places, TopicPartition(self._identities.topic, 0)])

    def wait(self, arrival: int, timeout: float) -> Snapshot:
        return self._snapshots.wait(arrival, timeout)

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Records]:
        found = self._topics.get(topic)
        check_partition(found, partition)
        decoder = Decoder(found, self.schemas, columns)
        ends = self._snapshots.ends(found, partition)
        if not ends.start <= start <= ends.end:
            raise OffsetOutOfRange(
                f"topic `{topic}`, partition {partition} has no offset {start}",
                detail=f"it has {ends.start} to {ends.end}",
                start=ends.start,
                end=ends.end,
            )
        last = ends.end if end is None else min(end, ends.end)
        return (decoder.records(run, shift) for run, shift in self.messages(found, partition, start, last))

    def messages(self, topic: Topic, partition: int, start: int, end: int) -> Iterator[tuple[list[Message], int]]:
        """Return a range of a partition in runs of messages, each with how much further in the topic they are than
        Kafka says. `end` must not be beyond the last stable offset."""
        at = topic.fork_at[partition] if topic.fork_at else 0
        if start < at:
            for run in self.fetcher.messages(self.kafka_name(topic.fork_of), partition, start, min(end, at)):
                yield run, 0
        for run in self.fetcher.messages(self.kafka_name(topic.name), partition, max(start - at, 0), end - at):
            yield run, at

    def offset_at_time(self, topic: str, partition: int, time_ms: int) -> int:
        found = self._topics.get(topic)
        check_partition(found, partition)
        shift = found.fork_at[partition] if found.fork_at else 0
        own, original = (TopicPartition(self.kafka_name(name), partition) for name in (topic, found.fork_of))
        offsets = self.offsets.at_time([own, original] if found.fork_of else [own], max(0, time_ms))
        if 0 <= offsets.get(original, -1) < shift:
            return offsets[original]
        offset = offsets.get(own, -1)
        return shift + offset if offset >= 0 else self._snapshots.ends(found, partition).end

    def offset_at_arrival(self, topic: str, partition: int, arrival: int) -> int:
        raise UsageError(
            "Kafka has no arrival numbers", hint="records of several partitions are in order of time, partition, offset"
        )

    # Producers, consumers, groups

    def producer(
        self,
        name: str | None = None,
        acks: Acks = "all",
        linger_ms: float = 5.0,
        transaction_timeout_s: float = 60.0,
    ) -> Producer:
        if name is None:
            return PlainProducer(self.connection, self._encode_send, self._appender.append, acks, linger_ms)
        if acks != "all":
            raise UsageError("a producer with a name needs acks `all`", hint="leave the name or the acks out")
        return NamedProducer(
            self.connection, self.offsets, self._encode_send, self._ids, self._groups, name, transaction_timeout_s
        )

    def _encode_send(self, topic: str, batch: pa.RecordBatch, partition: int | None) -> Outgoing:
        return self._encode(Append(topic, batch, partition))

    def consumer(
        self,
        topics: Subscription,
        group: str | None = None,
        start: Start = "earliest",
        columns: Sequence[str] | None = None,
        client: str = "",
        session_timeout_s: float = 10.0,
        out_of_range: OutOfRange = "error",
    ) -> Consumer:
        return KafkaConsumer(
            self.connection,
            self._topics.all,
            self._own_ends,
            self.offset_at_time,
            lambda topic: Decoder(self._topics.get(topic), self.schemas, columns),
            topics,
            group,
            start,
            client,
            session_timeout_s,
            out_of_range,
        )

    def _ends(self, at: TopicPartition) -> PartitionEnds:
        topic = self._topics.get(at.topic)
        check_partition(topic, at.partition)
        return self._snapshots.ends(topic, at.partition)

    def _own_ends(self, at: TopicPartition) -> PartitionEnds:
        topic = self._topics.get(at.topic)
        check_partition(topic, at.partition)
        return self._snapshots.own_ends(topic, at.partition)

    def groups(self) -> list[str]:
        return self._groups.names()

    def group(self, name: str) -> Group:
        return self._groups.get(name)

    def reset_group(self, name: str, offsets: Mapping[TopicPartition, int], force: bool = False) -> None:
        self._groups.reset(name, offsets, force)

    def delete_group(self, name: str) -> None:
        self._groups.delete(name)

    # Care

    def places(self, topic: str, ids: Sequence[str]) -> list[tuple[int, int] | None]:
        return super().places(topic, ids) if self._ids is None else self._ids.places(topic, ids)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        ends = self._ends(TopicPartition(topic, partition))
        if before <= ends.start:
            return ends.start
        if before > ends.end:
            raise OffsetOutOfRange(
                f"topic `{topic}`, partition {partition} ends at {ends.end}", start=ends.start, end=ends.end
            )
        found = self._topics.get(topic)
        shift = found.fork_at[partition] if found.fork_at else 0
        if before <= shift:
            return ends.start  # they are the original's
        at = At(self.kafka_name(topic), partition, before - shift)
        try:
            seconds = self.settings.kafka.request_seconds
            return shift + int(self.admin.delete_records([at], request_timeout=seconds)[at].result().low_watermark)
        except KafkaException as failure:
            raise translate(failure, f"delete records of `{topic}`", self.connection, topic) from failure

    def owner_alive(self) -> bool:
        asked, answer = self._alive
        if time.monotonic() - asked > 1.0:
            try:
                answer = bool(self.admin.list_topics(self._definitions.topic, timeout=2.0).brokers)
            except KafkaException:
                answer = False
            self._alive = (time.monotonic(), answer)
        return answer

    def close(self) -> None:
        self._appender.close()
        if self._ids is not None:
            self._ids.close()
        self._batches.close()
        self._staging.close()
        self.fetcher.close()
