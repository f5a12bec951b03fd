"""Where partitions begin and end, in one request for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.errors import LogError
from headrace.log.base import TopicPartition
from headrace.log.kafka.client import Connection
from headrace.log.kafka.errors import error_of, translate

_GONE = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"}
_MOMENTARY = {
    "_NOENT",
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_LEADER_EPOCH",
    "FENCED_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "_TRANSPORT",
    "KAFKA_STORAGE_ERROR",
}
_COMMITTED = IsolationLevel.READ_COMMITTED
_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.1


class Unsettled(LogError):
    """A transaction is open in a partition, so what follows it cannot be read yet."""


class Offsets:
    """Names here are Kafka's. A topic that went away meanwhile is left out of the answer."""

    def __init__(self, admin: AdminClient, connection: Connection) -> None:
        self._admin = admin
        self._connection = connection

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ask(partitions, OffsetSpec.earliest())

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The last stable offsets: below them everything is committed or aborted."""
        return self._ask(partitions, OffsetSpec.latest())

    def written(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends, with what is neither committed nor aborted."""
        return self._ask(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def pending(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether something is written that is neither committed nor aborted, or not yet marked as such."""
        wanted = set(partitions)
        written = self.written(wanted)
        stable = self.ends(wanted)
        return any(stable.get(at, end) < end for at, end in written.items())

    def at_time(self, partitions: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """The first offset of a record at or after a time, -1 where there is none."""
        return self._ask(partitions, OffsetSpec.for_timestamp(time_ms), least=-1)

    def wait_for(self, wanted: Mapping[TopicPartition, int], seconds: float) -> None:
        """Wait until the last stable offsets are at least these: a transaction is committed a moment before it can be
        read, and one that is open hides what was committed after it began. `Unsettled` after so many seconds."""
        self._until(
            lambda: all(end >= wanted[at] for at, end in self.ends(wanted).items()),
            seconds,
            Unsettled("a transaction is open", detail=", ".join(f"{at.topic}/{at.partition}" for at in wanted)),
        )

    def _ask(
        self,
        partitions: Iterable[TopicPartition],
        what: OffsetSpec,
        level: IsolationLevel = _COMMITTED,
        least: int = 0,
    ) -> dict[TopicPartition, int]:
        left = set(partitions)
        found: dict[TopicPartition, int] = {}
        self._until(
            lambda: self._ask_some(left, what, level, least, found),
            self._connection.settings.request_seconds,
            LogError("Kafka has no leader for some partitions", hint="are enough brokers running?"),
        )
        return found

    def _ask_some(
        self,
        left: set[TopicPartition],
        what: OffsetSpec,
        level: IsolationLevel,
        least: int,
        found: dict[TopicPartition, int],
    ) -> bool:
        """Ask for what is left; False if some partitions have to be asked for again, as their leader is changing."""
        if not left:
            return True
        seconds = self._connection.settings.request_seconds
        futures = self._admin.list_offsets(
            {At(at.topic, at.partition): what for at in left},
            isolation_level=level,
            request_timeout=seconds,
        )
        for kafka, future in futures.items():
            at = TopicPartition(kafka.topic, kafka.partition)
            try:
                offset = future.result(seconds + 5).offset
                # A broker that did not answer in time may be no error, but an offset that is none (-1001).
                if offset >= least:
                    found[at] = offset
                    left.discard(at)
            except KafkaException as failure:
                error = error_of(failure)
                if error is not None and error.name() in _GONE:
                    left.discard(at)
                elif error is None or error.name() not in _MOMENTARY:
                    raise
        for topic in {at.topic for at in left}:
            # What librdkafka remembers of the leaders is older than they are.
            self._admin.list_topics(topic, timeout=seconds)
        return not left

    def _until(self, done: Callable[[], bool], seconds: float, late: LogError) -> None:
        """Ask again and again. Raises `late` after so many seconds."""
        deadline = time.monotonic() + seconds
        pause = _PAUSE_S
        try:
            while not done():
                if time.monotonic() > deadline:
                    raise late
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        except KafkaException as failure:
            raise translate(failure, "ask for offsets", self._connection) from failure
