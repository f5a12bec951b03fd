"""What of the log's state has changed between two marks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.log.local import journal as journals
from headrace.log.local.producers import ProducerState
from headrace.log.local.state import LogState, PartitionState, batch_payload, topic_payload, topic_state


@dataclass(slots=True)
class Changes:
    """Which parts of the log's state are others than before."""

    topics: set[int] = field(default_factory=set)
    partitions: set[tuple[int, int]] = field(default_factory=set)
    times: set[int] = field(default_factory=set)
    batches: set[tuple[str, int]] = field(default_factory=set)
    producers: set[int] = field(default_factory=set)

    def note(self, kind: int, payload: Any) -> None:
        """Take in a record of the journal."""
        match kind:
            case journals.GROUP | journals.FULL_GROUP:
                _, _, ends, times, batches, writes = payload[: journals.GROUP_FIELDS]
                for end in ends:
                    self.partitions.add((end[0], end[1]))
                for one in times:
                    self.times.add(one[0])
                for fields, _ in batches:
                    self.batches.add((fields["query"], fields["version"]))
                for write in writes:
                    self.producers.add(write[0])
            case journals.TOPIC:
                self.topics.add(payload["id"] if payload["op"] == "deleted" else payload["topic"]["id"])
            case journals.START:
                self.partitions.add((payload[0], payload[1]))
            case journals.PRODUCER:
                self.producers.update(payload["ids"] if payload["op"] == "forgotten" else [payload["id"]])

    def add(self, other: Changes) -> None:
        self.topics |= other.topics
        self.partitions |= other.partitions
        self.times |= other.times
        self.batches |= other.batches
        self.producers |= other.producers

    def encode(self, state: LogState) -> dict[str, Any]:
        """Return the changes as a payload for `apply_changes`."""
        topics = state.topics
        return {
            "group": state.group,
            "next_arrival": state.next_arrival,
            "next_topic_id": state.next_topic_id,
            "next_producer_id": state.next_producer_id,
            "topics": [(one, topic_payload(topics[one]) if one in topics else None) for one in sorted(self.topics)],
            "partitions": [
                (one, number, p.start, p.end, p.segment, p.position)
                for one, number in sorted(self.partitions)
                if one in topics and one not in self.topics
                for p in (topics[one].partitions[number],)
            ],
            "times": [(one, topics[one].stream_time) for one in sorted(self.times) if one in topics],
            "batches": [batch_payload(state.batches[one]) for one in sorted(self.batches)],
            "producers": [
                (one, state.producers[one].to_payload() if one in state.producers else None)
                for one in sorted(self.producers)
            ],
        }


def find_changes(old: LogState, new: LogState) -> Changes:
    """Compare two states."""
    found = Changes()
    for number in old.topics.keys() | new.topics.keys():
        was, now = old.topics.get(number), new.topics.get(number)
        if was is None or now is None or was.topic != now.topic or len(was.partitions) != len(now.partitions):
            found.topics.add(number)
            continue
        pairs = enumerate(zip(was.partitions, now.partitions, strict=True))
        found.partitions.update((number, place) for place, (one, other) in pairs if one != other)
        if was.stream_time != now.stream_time:
            found.times.add(number)
    found.batches.update(key for key, batch in new.batches.items() if old.batches.get(key) != batch)
    both = old.producers.keys() | new.producers.keys()
    found.producers.update(one for one in both if old.producers.get(one) != new.producers.get(one))
    return found


def apply_changes(state: LogState, kind: int, payload: dict[str, Any]) -> LogState:
    """Return the state at a mark, given that at the mark before it."""
    if kind == journals.SNAPSHOT:
        state = LogState()
        state.apply(kind, payload)
        return state
    state.group, state.next_arrival = payload["group"], payload["next_arrival"]
    state.next_topic_id, state.next_producer_id = payload["next_topic_id"], payload["next_producer_id"]
    for number, entry in payload["topics"]:
        state.topics.pop(number, None)
        if entry is not None:
            state.topics[number] = topic_state(entry)
    for number, partition, *values in payload["partitions"]:
        state.topics[number].partitions[partition] = PartitionState(*values)
    for number, stream_time in payload["times"]:
        state.topics[number].stream_time = stream_time
    for fields, arrival in payload["batches"]:
        state.remember(fields, arrival)
    for number, entry in payload["producers"]:
        state.producers.pop(number, None)
        if entry is not None:
            state.producers[number] = ProducerState.from_payload(entry)
    return state
