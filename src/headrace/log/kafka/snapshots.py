"""Moments of the log: ends of all partitions, and waiting for something new."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.log.base import PartitionEnds, Snapshot, Topic, TopicPartition
from headrace.log.kafka.forks import is_unfinished, splice_ends
from headrace.log.kafka.offsets import Offsets
from headrace.log.kafka.topics import Topics

_STEP_S = 0.02
_TOPICS_EVERY_S = 1.0


class Snapshots:
    """Safe to use from several threads."""

    def __init__(self, topics: Topics, offsets: Offsets) -> None:
        self._topics = topics
        self._offsets = offsets
        self._watching = threading.Lock()
        self._recent: tuple[float, Snapshot] | None = None
        self._listed: tuple[float, list[Topic], int] | None = None

    def now(self, fresh: bool = True) -> Snapshot:
        """`fresh`: also topics that other processes made a moment ago."""
        listed, retired = self._list(fresh)
        topics = [topic for topic in listed if not is_unfinished(topic)]
        places = [at for topic in topics for at in self._places(topic)]
        starts, ends = self._offsets.starts(places), self._offsets.ends(places)
        found: dict[str, tuple[PartitionEnds, ...]] = {}
        for topic in topics:
            inside = [self._kafka(at) for at in partitions_of(topic)]
            if all(at in ends and at in starts for at in inside):
                found[topic.name] = self._spliced(topic, starts, ends)
        used = sum(partition.end for partitions in found.values() for partition in partitions)
        # Kafka knows the largest timestamp, but counts the marks of transactions with it: no stream times from here.
        return Snapshot(retired + used, found, {})

    def ends(self, topic: Topic, partition: int) -> PartitionEnds:
        """Return the ends of a partition, with those of its original if it is of a fork."""
        if topic.fork_of:
            return self.all_ends(topic)[partition]
        return self.own_ends(topic, partition)

    def own_ends(self, topic: Topic, partition: int) -> PartitionEnds:
        """Return the ends of a partition as Kafka has them: offsets of a group are of those, also in a fork."""
        at = self._kafka(TopicPartition(topic.name, partition))
        starts, ends = self._offsets.starts([at]), self._offsets.ends([at])
        return PartitionEnds(starts.get(at, 0), ends.get(at, 0))

    def all_ends(self, topic: Topic) -> tuple[PartitionEnds, ...]:
        places = self._places(topic)
        return self._spliced(topic, self._offsets.starts(places), self._offsets.ends(places))

    def _places(self, topic: Topic) -> list[TopicPartition]:
        """What Kafka has to be asked for: of a fork, its original too."""
        own = list(partitions_of(topic))
        return [self._kafka(replace(at, topic=name)) for name in (topic.name, topic.fork_of) if name for at in own]

    def _spliced(
        self, topic: Topic, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> tuple[PartitionEnds, ...]:
        own = [self._kafka(at) for at in partitions_of(topic)]
        found = [PartitionEnds(starts.get(at, 0), ends.get(at, 0)) for at in own]
        for number, at in enumerate(topic.fork_at):
            of = self._kafka(TopicPartition(topic.fork_of, number))
            original = PartitionEnds(starts[of], ends[of]) if of in starts and of in ends else None
            found[number] = splice_ends(at, original, found[number])
        return tuple(found)

    def wait(self, arrival: int, timeout: float) -> Snapshot:
        """Many may wait at once; the brokers are asked by one of them for all."""
        deadline = time.monotonic() + timeout
        while True:
            snapshot = self._shared()
            left = deadline - time.monotonic()
            if snapshot.arrival > arrival or left <= 0:
                return snapshot
            time.sleep(min(_STEP_S, left))

    def _shared(self) -> Snapshot:
        asked = time.monotonic()
        with self._watching:
            recent = self._recent
            if recent is None or recent[0] < asked:
                started = time.monotonic()
                recent = self._recent = (started, self.now(fresh=False))
            return recent[1]

    def _list(self, fresh: bool) -> tuple[list[Topic], int]:
        now = time.monotonic()
        listed = self._listed
        if fresh or listed is None or now - listed[0] > _TOPICS_EVERY_S:
            listed = self._listed = (now, self._topics.all(), self._topics.retired())
        return listed[1], listed[2]

    def _kafka(self, at: TopicPartition) -> TopicPartition:
        return TopicPartition(self._topics.kafka_name(at.topic), at.partition)


def partitions_of(topic: Topic) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, number) for number in range(topic.spec.partitions))
