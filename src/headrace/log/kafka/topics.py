"""Topics in Kafka, and what Headrace knows about them beyond their name: kept in the table `_headrace_topics`.

A topic that Kafka has and the table does not is a raw one: somebody else's, and readable as bytes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from headrace.errors import Conflict, LogError, NotFound
from headrace.log.base import SchemaVersion, Topic, TopicSpec
from headrace.log.kafka.client import Connection
from headrace.log.kafka.configs import topic_config, topic_configs
from headrace.log.kafka.errors import error_of, translate
from headrace.log.kafka.table import Table
from headrace.log.missing import no_topic
from headrace.log.schema import check_alteration, is_topic_name, normalize_spec, topic_from_json, topic_to_json

_NEWS_S = 5.0
RETIRED = "$retired"
"""The table's row that says how many offsets deleted topics have used: `Snapshot.arrival` must not fall."""
Put = Callable[[str, bytes | None], None]
"""Writes a row of the table, and returns when it is stored."""


class Topics:
    """Safe to use from several threads. Names are Headrace's, without the prefix."""

    def __init__(
        self, admin: AdminClient, connection: Connection, table: Table, put: Put, retention: tuple[int, int]
    ) -> None:
        """`retention`: milliseconds and bytes for topics of events that do not say themselves; 0 is for ever."""
        self._admin = admin
        self._connection = connection
        self._table = table
        self._put = put
        self._retention = retention
        self._prefix = connection.settings.prefix
        self._seconds = connection.settings.request_seconds
        self._lock = threading.Lock()
        self._known: dict[str, Topic] = {}
        self._limits: dict[str, int] = {}

    def kafka_name(self, name: str) -> str:
        return self._prefix + name

    # Finding

    def get(self, name: str, fresh: bool = False) -> Topic:
        """`fresh`: another process may have changed it, look again."""
        found = None if fresh else self._known.get(name)
        if found is None and is_topic_name(name):
            found = {topic.name: topic for topic in self.all()}.get(name)
        if found is None:
            raise no_topic(name, self._known)
        return found

    def all(self) -> list[Topic]:
        """By name: everything Kafka has, but for what is only ours or Kafka's own."""
        rows = self._table.refresh()
        counts = self.partition_counts()
        with self._lock:
            before, self._known = self._known, {}
            undefined = []
            for name, count in sorted(counts.items()):
                row = rows.get(name)
                if row is not None:
                    topic = topic_from_json(msgspec.json.decode(row))
                    self._known[name] = _with_partitions(topic, count)
                elif (old := before.get(name)) is not None and old.spec.kind == "raw":
                    self._known[name] = _with_partitions(old, count)
                else:
                    undefined.append(name)
            for name in undefined:
                with contextlib.suppress(NotFound):
                    self._known[name] = self._raw_topic(name, counts[name])
            return [self._known[name] for name in sorted(self._known)]

    def partition_counts(self) -> dict[str, int]:
        try:
            metadata = self._admin.list_topics(timeout=self._seconds)
        except KafkaException as failure:
            raise translate(failure, "list topics", self._connection) from failure
        ours = {self._table.topic, self._prefix + "_headrace_batches", self._prefix + "_headrace_turns"}
        return {
            name.removeprefix(self._prefix): len(topic.partitions)
            for name, topic in metadata.topics.items()
            if name.startswith(self._prefix) and not name.startswith("__") and name not in ours and topic.error is None
        }

    def retired(self) -> int:
        return int(self._table.refresh().get(RETIRED, b"0"))

    def _raw_topic(self, name: str, partitions: int) -> Topic:
        config = topic_config(self.live_config(name))
        spec = normalize_spec(TopicSpec(name, partitions=partitions, kind="raw", key_format="RAW", value_format="RAW"))
        return Topic(self._id(name), replace(spec, config=config), (SchemaVersion(1, spec.key, spec.value),))

    def _id(self, name: str) -> int:
        """Kafka gives a topic 128 random bits; 48 of them are enough to tell it from one of the same name."""
        kafka = self.kafka_name(name)
        deadline = time.monotonic() + _NEWS_S
        while True:
            described = self._admin.describe_topics(TopicCollection([kafka]), request_timeout=self._seconds)
            try:
                return int(described[kafka].result().topic_id.get_most_significant_bits()) & (2**48 - 1)
            except KafkaException as failure:
                error = translate(failure, f"describe `{name}`", self._connection, name)
                # Brokers hear of a new topic one after the other.
                if not isinstance(error, NotFound) or time.monotonic() > deadline:
                    raise error from failure
                time.sleep(0.05)

    def live_config(self, name: str) -> dict[str, str]:
        """What Kafka says about a topic, where it was set for the topic; and how large a record may be."""
        resource = ConfigResource(ResourceType.TOPIC, self.kafka_name(name))
        try:
            entries = self._admin.describe_configs([resource], request_timeout=self._seconds)[resource].result()
        except KafkaException as failure:
            raise translate(failure, f"describe `{name}`", self._connection, name) from failure
        self._limits[name] = int(entries["max.message.bytes"].value)
        return {name: entry.value for name, entry in entries.items() if not entry.is_default and entry.value}

    def largest_record(self, name: str) -> int:
        if name not in self._limits:
            self.live_config(name)
        return self._limits[name]

    # Changing

    def create(self, wanted: TopicSpec) -> Topic:
        spec = normalize_spec(wanted)
        rows, counts = self._table.refresh(), self.partition_counts()
        if spec.name in counts:
            return self._existing(spec, rows.get(spec.name), counts[spec.name])
        if not self._create_in_kafka(spec):
            return self._lost_race(spec)
        return self._define(spec)

    def _create_in_kafka(self, spec: TopicSpec) -> bool:
        """False if somebody else was faster."""
        kafka, settings = self.kafka_name(spec.name), self._connection.settings
        config = topic_configs(spec, settings, self._retention)
        copies = spec.config.replication or settings.replication or -1
        made = NewTopic(kafka, spec.partitions, copies, config=config)
        try:
            self._admin.create_topics([made], request_timeout=self._seconds)[kafka].result()
        except KafkaException as failure:
            error = error_of(failure)
            if error is not None and error.name() == "TOPIC_ALREADY_EXISTS":
                return False
            raise translate(failure, f"make topic `{spec.name}`", self._connection, spec.name) from failure
        self._wait(spec.name, spec.partitions)
        return True

    def _lost_race(self, spec: TopicSpec) -> Topic:
        """Whoever made it is about to say what it is; a topic that stays without a definition is ours to define."""
        deadline = time.monotonic() + 2.0
        while (row := self._table.refresh().get(spec.name)) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        self._wait(spec.name, None)
        return self._existing(spec, row, self.partition_counts()[spec.name])

    def _existing(self, spec: TopicSpec, row: bytes | None, partitions: int) -> Topic:
        if row is None:
            # Somebody else's topic, or one whose maker died before he could define it: it is what we say it is.
            return self._define(replace(spec, partitions=partitions) if spec.kind == "raw" else spec, partitions)
        topic = _with_partitions(topic_from_json(msgspec.json.decode(row)), partitions)
        if topic.spec != spec:
            raise Conflict(f"topic `{spec.name}` exists already, and differs", hint="`headrace topic show` shows it")
        self._known[spec.name] = topic
        return topic

    def _define(self, spec: TopicSpec, partitions: int | None = None) -> Topic:
        if partitions is not None and partitions != spec.partitions:
            raise Conflict(
                f"topic `{spec.name}` exists in Kafka already, with {partitions} partitions",
                hint=f"declare it with PARTITIONS={partitions}",
            )
        return self._save(Topic(self._id(spec.name), spec, (SchemaVersion(1, spec.key, spec.value),)))

    def _save(self, topic: Topic) -> Topic:
        self._put(topic.name, msgspec.json.encode(topic_to_json(topic)))
        self._known[topic.name] = topic
        return topic

    def alter(self, wanted: TopicSpec) -> Topic:
        topic, spec = self.get(wanted.name, fresh=True), normalize_spec(wanted)
        check_alteration(topic, spec)
        if spec.config != topic.spec.config:
            self._alter_in_kafka(spec)
        schemas = topic.schemas
        if spec.value != topic.spec.value:
            schemas += (SchemaVersion(schemas[-1].version + 1, spec.key, spec.value),)
        return self._save(replace(topic, spec=spec, schemas=schemas))

    def fork(self, name: str, fork: str, shut_out: Callable[[], None], ends: Callable[[Topic], Sequence[int]]) -> Topic:
        """Make a fork (`forks`). `shut_out` lets no writer go on that has not heard of it, `ends` returns where the
        original ends then. Each step may be repeated after a crash."""
        original = self.get(name, fresh=True)
        made = self._begin_fork(original, fork)
        if not made.fork_at:
            shut_out()
            at = tuple(ends(original))
            # Another server may have been faster, and what has been written since is not of the version that left.
            made = self.get(fork, fresh=True)
        return made if made.fork_at else self._save(replace(made, fork_at=at))

    def _begin_fork(self, original: Topic, fork: str) -> Topic:
        rows, counts = self._table.refresh(), self.partition_counts()
        known = topic_from_json(msgspec.json.decode(rows[fork])) if fork in rows and fork in counts else None
        if known is not None and known.forked_from == original.id:
            return known
        spec = replace(original.spec, name=fork)
        if known is not None or counts.get(fork, spec.partitions) != spec.partitions:
            raise Conflict(f"topic `{fork}` exists already and is another one", hint=f"delete topic `{fork}`")
        if fork not in counts:
            self._create_in_kafka(spec)
        return self._save(Topic(self._id(fork), spec, original.schemas, forked_from=original.id, fork_of=original.name))

    def forks(self) -> dict[str, str]:
        """Return the forks by the names of their originals, as they are known without asking."""
        return {one.fork_of: one.name for one in list(self._known.values()) if one.fork_of}

    def _alter_in_kafka(self, spec: TopicSpec) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in topic_configs(spec, self._connection.settings, self._retention).items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.kafka_name(spec.name), incremental_configs=entries)
        try:
            self._admin.incremental_alter_configs([resource], request_timeout=self._seconds)[resource].result()
        except KafkaException as failure:
            raise translate(failure, f"alter topic `{spec.name}`", self._connection, spec.name) from failure

    def delete(self, name: str, used: int) -> None:
        """`used`: how many offsets the topic had given out."""
        self.get(name, fresh=True)
        kafka = self.kafka_name(name)
        self._put(RETIRED, str(self.retired() + used).encode())
        try:
            self._admin.delete_topics([kafka], request_timeout=self._seconds)[kafka].result()
        except KafkaException as failure:
            raise translate(failure, f"delete topic `{name}`", self._connection, name) from failure
        self._put(name, None)
        self.forget(name)
        self._wait(name, 0)

    def forget(self, name: str) -> None:
        """Another process deleted or changed it."""
        self._known.pop(name, None)
        self._limits.pop(name, None)

    def _wait(self, name: str, partitions: int | None) -> None:
        """Until the brokers know of a change: a topic has that many partitions (None: any), each with a leader."""
        deadline = time.monotonic() + self._seconds
        while not self._arrived(name, partitions):
            if time.monotonic() > deadline:
                raise LogError(f"Kafka took a change of topic `{name}` but does not show it")
            time.sleep(0.01)

    def _arrived(self, name: str, partitions: int | None) -> bool:
        metadata: Any = self._admin.list_topics(timeout=self._seconds).topics.get(self.kafka_name(name))
        found = {} if metadata is None or metadata.error is not None else metadata.partitions
        led = all(partition.leader >= 0 for partition in found.values())
        return led and (len(found) > 0 if partitions is None else len(found) == partitions)


def _with_partitions(topic: Topic, partitions: int) -> Topic:
    """Kafka's own tools may have added some."""
    if topic.spec.partitions == partitions:
        return topic
    return replace(topic, spec=replace(topic.spec, partitions=partitions))


def check_partition(topic: Topic, partition: int) -> None:
    if not 0 <= partition < topic.spec.partitions:
        raise NotFound(f"topic `{topic.name}` has no partition {partition}", hint=f"0 to {topic.spec.partitions - 1}")
