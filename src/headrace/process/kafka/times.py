"""How far time had come where a query goes on: a fact of the log, noted before each batch (`TopicTimes.java`).

The note is only a short cut. What is missing from it is read again from Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from headrace.log.base import NO_STREAM_TIME
from headrace.log.kafka import KafkaLog
from headrace.structs import ready

NOTE = "stream_times.json"
Times = Mapping[int, int]
"""By partition: the largest event time so far."""


class Note(msgspec.Struct, frozen=True):
    offsets: dict[int, int]
    times: dict[int, int]


def read_note(file: Path) -> Note | None:
    """None if there is none, or it is torn: it is not synced."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=ready(Note), strict=False)
    except (OSError, msgspec.DecodeError):
        return None


def times_at(log: KafkaLog, topic: str, starts: Mapping[int, int], note: Note | None) -> Times:
    """Where a batch begins at `starts`. Reads what lies between the note and there, at worst the whole topic."""
    ends = log.snapshot().ends.get(topic, ())
    reached: dict[int, int] = {}
    for partition, start in starts.items():
        begin = ends[partition].start if partition < len(ends) else start
        so_far = NO_STREAM_TIME
        if note is not None and begin <= note.offsets.get(partition, -1) <= start:
            begin, so_far = note.offsets[partition], note.times.get(partition, NO_STREAM_TIME)
        latest = _latest(log, topic, partition, begin, start, so_far)
        if latest != NO_STREAM_TIME:
            reached[partition] = latest
    return reached


def _latest(log: KafkaLog, topic: str, partition: int, begin: int, end: int, so_far: int) -> int:
    """By Kafka's timestamps, as the source sees them."""
    if begin < end:
        for run, _ in log.messages(log.topic(topic), partition, begin, end):
            so_far = max(so_far, max((max(0, message.timestamp()[1]) for message in run), default=so_far))
    return so_far
