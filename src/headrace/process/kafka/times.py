"""How far time had come where a query goes on: a fact of the log, noted before each batch (`StreamTimes.java`).

The note is only a short cut. What is missing from it is read again from Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headrace.log.base import NO_STREAM_TIME
from headrace.log.kafka import KafkaLog

NOTE = "stream_times.json"


@dataclass(frozen=True, slots=True)
class Times:
    reached: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By partition: the largest event time so far, and the offset of the record that brought it."""
    floor: int = NO_STREAM_TIME

    def options(self) -> dict[str, str]:
        """As the source takes them."""
        return {
            "times": json.dumps({str(partition): list(pair) for partition, pair in self.reached.items()}),
            "floor": str(self.floor),
        }


class Note(msgspec.Struct, frozen=True):
    offsets: dict[int, int]
    times: dict[int, tuple[int, int]]
    floor: int


def read_note(file: Path) -> Note | None:
    """None if there is none, or it is torn: it is not synced."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Note, strict=False)
    except (OSError, msgspec.DecodeError):
        return None


def times_at(log: KafkaLog, topic: str, starts: Mapping[int, int], note: Note | None) -> Times:
    """Where a batch begins at `starts`. Reads what lies between the note and there, at worst the whole topic."""
    ends = log.snapshot().ends.get(topic, ())
    reached: dict[int, tuple[int, int]] = {}
    for partition, start in starts.items():
        begin = ends[partition].start if partition < len(ends) else start
        so_far: tuple[int, int] | None = None
        if note is not None and begin <= note.offsets.get(partition, -1) <= start:
            begin, so_far = note.offsets[partition], note.times.get(partition)
        found = _latest(log, topic, partition, begin, start, so_far)
        if found is not None:
            reached[partition] = found
    return Times(reached, NO_STREAM_TIME if note is None else note.floor)


def _latest(
    log: KafkaLog, topic: str, partition: int, begin: int, end: int, so_far: tuple[int, int] | None
) -> tuple[int, int] | None:
    """By Kafka's timestamps, as the source sees them."""
    if begin >= end:
        return so_far
    for run in log.fetcher.messages(log.kafka_name(topic), partition, begin, end):
        for message in run:
            time = max(0, message.timestamp()[1])
            if so_far is None or time > so_far[0]:
                so_far = (time, message.offset() or 0)
    return so_far
