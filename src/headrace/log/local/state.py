"""What the journal says: topics, ends, stream times, identities. Plain values, folded from the records."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.errors import LogError
from headrace.log.base import NO_STREAM_TIME, BatchIdentity, Topic
from headrace.log.local import journal
from headrace.log.local.producers import ProducerState
from headrace.log.schema import topic_from_json, topic_to_json
from headrace.log.writing.identities import CommittedBatch


@dataclass(slots=True)
class PartitionState:
    start: int = 0
    end: int = 0
    segment: int = 0
    """Base offset of the active segment."""
    position: int = 0
    """Where the next frame goes in it; 0 if there is no segment yet."""


@dataclass(slots=True)
class TopicState:
    topic: Topic
    partitions: list[PartitionState]
    stream_time: int = NO_STREAM_TIME
    fork: int = 0
    """The id of the topic that takes what queries write to this one; 0 if none does."""

    def has_records(self) -> bool:
        return any(partition.end for partition in self.partitions)


@dataclass(slots=True)
class LogState:
    group: int = 0
    next_arrival: int = 0
    next_topic_id: int = 1
    topics: dict[int, TopicState] = field(default_factory=dict)
    batches: dict[tuple[str, int], CommittedBatch] = field(default_factory=dict)
    """The last committed batch by query and version."""
    next_producer_id: int = 1
    producers: dict[int, ProducerState] = field(default_factory=dict)

    def apply(self, kind: int, payload: Any) -> None:
        match kind:
            case journal.SNAPSHOT:
                self._apply_snapshot(payload)
            case journal.GROUP | journal.FULL_GROUP:
                self._apply_group(payload)
            case journal.TOPIC:
                self._apply_topic(payload)
            case journal.START:
                topic_id, partition, start = payload
                self.topics[topic_id].partitions[partition].start = start
            case journal.PRODUCER:
                self._apply_producer(payload)
            case _:
                raise LogError(f"the journal holds a record of unknown kind {kind}", hint="update Headrace")

    def _apply_snapshot(self, payload: dict[str, Any]) -> None:
        self.group, self.next_arrival = payload["group"], payload["next_arrival"]
        self.next_topic_id = payload["next_topic_id"]
        self.topics = {}
        for state in map(topic_state, payload["topics"]):
            self.topics[state.topic.id] = state
        for state in self.topics.values():
            self._note_fork(state.topic, state.topic.id)
        self.batches = {}
        for fields, arrival in payload["batches"]:
            self.remember(fields, arrival)
        self.next_producer_id = payload.get("next_producer_id", 1)
        producers = [ProducerState.from_payload(entry) for entry in payload.get("producers", [])]
        self.producers = {producer.id: producer for producer in producers}

    def _apply_group(self, payload: list[Any]) -> None:
        # A journal of the first release has no producers.
        group, next_arrival, ends, stream_times, batches, writes = (*payload, [])[: journal.GROUP_FIELDS]
        if group != self.group + 1:
            raise LogError(f"the journal goes from group {self.group} to {group}", hint="restore it from a backup")
        self.group, self.next_arrival = group, next_arrival
        for topic_id, partition, end, segment, position in ends:
            state = self.topics[topic_id].partitions[partition]
            state.end, state.segment, state.position = end, segment, position
        for topic_id, stream_time in stream_times:
            self.topics[topic_id].stream_time = stream_time
        for fields, arrival in batches:
            self.remember(fields, arrival)
        for producer, sequence, answer in writes:
            self.producers[producer].accept(sequence, answer)

    def _apply_producer(self, payload: dict[str, Any]) -> None:
        if payload["op"] == "forgotten":
            for number in payload["ids"]:
                self.producers.pop(number, None)
            return
        opened = ProducerState(payload["id"], payload["name"], payload["epoch"])
        self.producers[opened.id] = opened
        self.next_producer_id = max(self.next_producer_id, opened.id + 1)

    def _apply_topic(self, payload: dict[str, Any]) -> None:
        if payload["op"] == "deleted":
            if (gone := self.topics.pop(payload["id"], None)) is not None:
                self._note_fork(gone.topic, 0)
            return
        topic = topic_from_json(payload["topic"])
        if known := self.topics.get(topic.id):
            known.topic = topic
            known.partitions += [PartitionState() for _ in range(topic.spec.partitions - len(known.partitions))]
        else:
            given = payload.get("partitions") or [[]] * topic.spec.partitions
            stream_time = payload.get("stream_time", NO_STREAM_TIME)
            self.topics[topic.id] = TopicState(topic, [PartitionState(*values) for values in given], stream_time)
            self.next_topic_id = max(self.next_topic_id, topic.id + 1)
            self._note_fork(topic, topic.id)

    def _note_fork(self, topic: Topic, fork: int) -> None:
        if (original := self.topics.get(topic.forked_from)) is not None:
            original.fork = fork

    def remember(self, fields: dict[str, Any], arrival: int) -> None:
        identity = BatchIdentity(**fields)
        self.batches[identity.query, identity.version] = CommittedBatch(identity, arrival)

    def to_payload(self) -> dict[str, Any]:
        """The payload of a snapshot record."""
        return {
            "group": self.group,
            "next_arrival": self.next_arrival,
            "next_topic_id": self.next_topic_id,
            "topics": [topic_payload(state) for state in self.topics.values()],
            "batches": [batch_payload(batch) for batch in self.batches.values()],
            "next_producer_id": self.next_producer_id,
            "producers": [producer.to_payload() for producer in self.producers.values()],
        }


def topic_payload(state: TopicState) -> dict[str, Any]:
    return {
        "topic": topic_to_json(state.topic),
        "partitions": [[p.start, p.end, p.segment, p.position] for p in state.partitions],
        "stream_time": state.stream_time,
    }


def topic_state(payload: dict[str, Any]) -> TopicState:
    partitions = [PartitionState(*values) for values in payload["partitions"]]
    return TopicState(topic_from_json(payload["topic"]), partitions, payload["stream_time"])


def batch_payload(batch: CommittedBatch) -> list[Any]:
    return [asdict(batch.identity), batch.arrival]


def fold(records: list[tuple[int, Any]]) -> LogState:
    state = LogState()
    for kind, payload in records:
        state.apply(kind, payload)
    return state
