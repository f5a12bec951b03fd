"""Events that could not be taken: a topic of their own, with the reason and the bytes as they were sent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.log.base import ID, Append, Appended, Log, TopicSpec
from headrace.log.queues.base import Spent
from headrace.types import BIGINT, BYTES, VARCHAR, Column

DEAD_LETTERS_TOPIC = "_dead_letters"

# Role `events`, because a dead letter has an id: a request that is sent again must not bury the same event twice.
DEAD_LETTERS_SPEC = TopicSpec(
    DEAD_LETTERS_TOPIC,
    value=(
        Column("TOPIC", VARCHAR),
        Column("REASON", VARCHAR),
        Column("SOURCE", VARCHAR),
        Column("EVENT_ID", VARCHAR),
        Column("PAYLOAD", BYTES),
    ),
)

REDRIVEN_TOPIC = "_redriven"

# Written together with the mended events, so that a letter is sent again once.
REDRIVEN_SPEC = TopicSpec(
    REDRIVEN_TOPIC, value=(Column("LETTER", BIGINT), Column("TOPIC", VARCHAR), Column("WHO", VARCHAR))
)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    topic: str
    reason: str
    source: str
    event_id: str | None
    payload: bytes
    written_once: str | None = None
    """What makes it the same letter when it is written again. Without this and without an id, each is its own."""


def create_dead_letters(log: Log) -> None:
    """Does nothing when the topic is there."""
    log.create_topic(DEAD_LETTERS_SPEC)


def bury(letters: Sequence[DeadLetter]) -> Append:
    """The append that keeps them; it belongs into the same call as the events they were sent with."""
    columns = {
        ID: pa.array([letter_id(letter) for letter in letters], pa.string()),
        "TOPIC": pa.array([letter.topic for letter in letters], pa.string()),
        "REASON": pa.array([letter.reason for letter in letters], pa.string()),
        "SOURCE": pa.array([letter.source for letter in letters], pa.string()),
        "EVENT_ID": pa.array([letter.event_id for letter in letters], pa.string()),
        "PAYLOAD": pa.array([letter.payload for letter in letters], pa.binary()),
    }
    return Append(DEAD_LETTERS_TOPIC, pa.record_batch(columns))


def bury_spent(messages: Sequence[Spent]) -> Append:
    """What a queue gave up. A letter's source says which record it was."""
    return bury(
        [
            DeadLetter(
                spent.topic,
                spent.reason,
                f"queue {spent.queue} {spent.partition}:{spent.offset}",
                spent.event_id,
                spent.payload,
            )
            for spent in messages
        ]
    )


def letter_id(letter: DeadLetter) -> str | None:
    """The same for the same event, however often it is sent. Not the event's own: that stays free for the mended. An
    event without an id may well have been sent twice on purpose: each is a letter."""
    known = letter.event_id or letter.written_once
    if known is None:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for part in (letter.topic.encode(), known.encode(), letter.payload):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def offsets_of(appended: Appended, letters: int) -> list[int | None]:
    """Where each letter is; None for one that was there already."""
    if not appended.positions:
        return [None] * letters
    [(_, offset, _)] = appended.positions
    known = set(appended.duplicates)
    found: list[int | None] = []
    for letter in range(letters):
        found.append(None if letter in known else offset)
        offset += letter not in known
    return found


def mark_redriven(offsets: Sequence[int], topic: str, who: str) -> Append:
    """That these letters were sent again; belongs into the same call as their events."""
    columns = {
        "LETTER": pa.array(offsets, pa.int64()),
        "TOPIC": pa.array([topic] * len(offsets), pa.string()),
        "WHO": pa.array([who] * len(offsets), pa.string()),
    }
    return Append(REDRIVEN_TOPIC, pa.record_batch(columns))


def redriven_letters(log: Log) -> dict[int, tuple[str, str]]:
    """Offset of each letter that was sent again → its topic, and who did it."""
    ends = log.snapshot().ends.get(REDRIVEN_TOPIC)
    if not ends:
        return {}
    return {
        row["LETTER"]: (row["TOPIC"], row["WHO"])
        for records in log.read(REDRIVEN_TOPIC, 0, ends[0].start, ends[0].end)
        for row in records.batch.to_pylist()
    }
