"""What a delivery stream has read and not written yet, and the topics it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.clock import Clock
from headrace.coordinate.firehose.definition import DeliveryNote, buffer_topic
from headrace.errors import NotFound, OffsetOutOfRange
from headrace.functions.batches import Sent
from headrace.log.base import Log, PartitionEnds, Topic

MOST_RECORDS = 250_000
"""In a file: each costs memory, however small it is."""
AGAIN = -1
"""Stands for a partition where the stream is somebody else's: records that are to be delivered again are in the
delivery stream's own topic, which others do not read."""
RETRIED_MS = 3_600_000
"""How long a client may try a put again."""
TRIM_S = 60.0


@dataclass(slots=True)
class Gathered:
    """What waits for its file."""

    records: list[Sent] = field(default_factory=list)
    size: int = 0
    oldest_ms: int = 0
    """The oldest record's own time."""
    since_ms: int = 0
    """Since when they wait."""
    offsets: dict[int, int] = field(default_factory=dict)

    def take(self, number: int, sent: Sent, since_ms: int) -> None:
        self.oldest_ms = min(self.oldest_ms, sent[2]) if self.records else sent[2]
        self.since_ms = min(self.since_ms, since_ms) if self.records else since_ms
        self.records.append((number, *sent[1:]))
        self.size += len(sent[5] or b"")
        self.offsets[number] = sent[1] + 1

    def full(self, size: int) -> bool:
        return self.size >= size or len(self.records) >= MOST_RECORDS


class Place(NamedTuple):
    """A partition that is read, and the number by which it is remembered."""

    number: int
    topic: Topic
    partition: int
    ends: PartitionEnds


def places_of(log: Log, note: DeliveryNote) -> Sequence[Place]:
    topic, again = log.topic(note.topic), buffer_topic(note.name)
    all_ends = log.snapshot().ends
    found = [Place(number, topic, number, ends) for number, ends in enumerate(all_ends[topic.name])]
    if note.source and again in all_ends:
        found.append(Place(AGAIN, log.topic(again), 0, all_ends[again][0]))
    return found


@dataclass(slots=True)
class Trimming:
    """Empties a delivery stream's own topic of what was delivered, but not at once: a put that is tried again is known
    by the ids that are still there."""

    log: Log
    clock: Clock
    topic: str
    _last: float | None = None

    def __call__(self, delivered: Mapping[int, int]) -> None:
        """By partition, how far it is."""
        now = self.clock.monotonic()
        if self._last is not None and now - self._last < TRIM_S:
            return
        self._last = now
        long_ago = max(0, self.clock.now_ms() - RETRIED_MS)
        for number, offset in delivered.items():
            try:
                before = min(offset, self.log.offset_at_time(self.topic, number, long_ago))
                self.log.delete_records(self.topic, number, before)
            except (NotFound, OffsetOutOfRange):
                continue
