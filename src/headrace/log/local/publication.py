"""What may be read: `stable` for other processes, a `Snapshot` for this one, always the same moment."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from headrace.log.base import PartitionEnds, Snapshot, Topic
from headrace.log.local.group import OwnedTopic
from headrace.log.local.partition import Partition
from headrace.log.local.stable import Slot, StablePublisher
from headrace.log.local.state import LogState


class Publication:
    """Shown by the commit thread, read by anyone."""

    def __init__(self, stable: StablePublisher) -> None:
        self._stable = stable
        self._changed = threading.Condition()
        self._closed = False
        self.snapshot = Snapshot(0, {}, {})

    def show(self, state: LogState, topics: Sequence[OwnedTopic], removed: Sequence[Topic] = ()) -> None:
        """Make visible what the state says of these topics."""
        gone = [(topic.id, number) for topic in removed for number in range(topic.spec.partitions)]
        slots = [slot for topic in topics for slot in _slots(topic)]
        self._stable.publish(state.next_arrival, state.group, slots, gone)
        ends, stream_times = dict(self.snapshot.ends), dict(self.snapshot.stream_times)
        for topic in removed:
            del ends[topic.name], stream_times[topic.name]
        for owned in topics:
            ends[owned.name], stream_times[owned.name] = _ends(owned), owned.state.stream_time
        self._replace(Snapshot(state.next_arrival, ends, stream_times))

    def show_group(self, state: LogState, touched: Sequence[tuple[OwnedTopic, Sequence[Partition]]]) -> None:
        """After a commit: the partitions it wrote to, however many others there are."""
        slots = [_slot(topic, partition.number) for topic, partitions in touched for partition in partitions]
        self._stable.publish(state.next_arrival, state.group, slots)
        ends, stream_times = dict(self.snapshot.ends), dict(self.snapshot.stream_times)
        for topic, partitions in touched:
            changed = list(ends[topic.name])
            for partition in partitions:
                changed[partition.number] = PartitionEnds(partition.state.start, partition.state.end)
            ends[topic.name], stream_times[topic.name] = tuple(changed), topic.state.stream_time
        self._replace(Snapshot(state.next_arrival, ends, stream_times))

    def show_all(self, state: LogState, topics: Iterable[OwnedTopic]) -> None:
        """After opening: these topics and no others."""
        topics = list(topics)
        slots = [slot for topic in topics for slot in _slots(topic)]
        self._stable.publish_all(state.next_arrival, state.group, slots)
        ends = {topic.name: _ends(topic) for topic in topics}
        self._replace(Snapshot(state.next_arrival, ends, {topic.name: topic.state.stream_time for topic in topics}))

    def _replace(self, snapshot: Snapshot) -> None:
        with self._changed:
            self.snapshot = snapshot
            self._changed.notify_all()

    def wait(self, arrival: int, timeout: float) -> Snapshot:
        with self._changed:
            self._changed.wait_for(lambda: self.snapshot.arrival > arrival or self._closed, timeout)
            return self.snapshot

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._stable.close()


def _ends(topic: OwnedTopic) -> tuple[PartitionEnds, ...]:
    return tuple(PartitionEnds(partition.start, partition.end) for partition in topic.state.partitions)


def _slots(topic: OwnedTopic) -> list[Slot]:
    return [_slot(topic, number) for number in range(len(topic.state.partitions))]


def _slot(topic: OwnedTopic, number: int) -> Slot:
    state, partition = topic.state, topic.state.partitions[number]
    return Slot(state.topic.id, number, partition.start, partition.end, state.stream_time)
