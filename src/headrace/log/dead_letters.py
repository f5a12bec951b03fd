"""Events that could not be taken: a topic of their own, with the reason and the bytes as they were sent."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.errors import NotFound
from headrace.log.base import ID, Append, Appended, Log, Snapshot, TopicSpec
from headrace.log.queues.base import Spent
from headrace.types import BIGINT, BOOLEAN, BYTES, VARCHAR, Column

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
        # Last, because older letters have none: they were tried once.
        Column("ATTEMPTS", BIGINT),
    ),
)

REDRIVEN_TOPIC = "_redriven"

# Written together with the mended events, so that a letter is sent again once; and for each that did not fit again.
REDRIVEN_SPEC = TopicSpec(
    REDRIVEN_TOPIC,
    value=(
        Column("LETTER", BIGINT),
        Column("TOPIC", VARCHAR),
        Column("WHO", VARCHAR),
        # Null, as older versions wrote it, means that it was sent.
        Column("REFUSED", BOOLEAN),
    ),
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
    attempts: int = 1
    """How often it was tried before it became one."""


@dataclass(frozen=True, slots=True)
class Mark:
    """That somebody sent a letter again."""

    letter: int
    topic: str
    who: str
    refused: bool = False
    """It did not fit this time either: it is a letter still, tried once more."""


def create_dead_letters(log: Log) -> None:
    """Does nothing when the topic is there."""
    _create(log, DEAD_LETTERS_SPEC)


def create_redriven(log: Log) -> None:
    _create(log, REDRIVEN_SPEC)


def _create(log: Log, spec: TopicSpec) -> None:
    """An older version may have made it with fewer columns."""
    try:
        known = log.topic(spec.name).spec
    except NotFound:
        log.create_topic(spec)
        return
    names = {column.name for column in known.value}
    missing = tuple(column for column in spec.value if column.name not in names)
    if missing:
        log.alter_topic(replace(known, value=known.value + missing))


def bury(letters: Sequence[DeadLetter]) -> Append:
    """The append that keeps them; it belongs into the same call as the events they were sent with."""
    columns = {
        ID: pa.array([letter_id(letter) for letter in letters], pa.string()),
        "TOPIC": pa.array([letter.topic for letter in letters], pa.string()),
        "REASON": pa.array([letter.reason for letter in letters], pa.string()),
        "SOURCE": pa.array([letter.source for letter in letters], pa.string()),
        "EVENT_ID": pa.array([letter.event_id for letter in letters], pa.string()),
        "PAYLOAD": pa.array([letter.payload for letter in letters], pa.binary()),
        "ATTEMPTS": pa.array([letter.attempts for letter in letters], pa.int64()),
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
                attempts=spent.deliveries,
            )
            for spent in messages
        ]
    )


def letter_id(letter: DeadLetter) -> str | None:
    """The same for the same event, however often it is sent. Not the event's own: that stays free for the mended. An
    event without an id may well have been sent twice on purpose: each is a letter."""
    if letter.event_id is None and letter.written_once is None:
        return None
    # Two functions may fail for the same event: each has its letter.
    known = "\0".join(one for one in (letter.written_once, letter.event_id) if one is not None)
    digest = hashlib.blake2b(digest_size=16)
    for part in (letter.topic.encode(), known.encode(), letter.payload):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def offsets_of(appended: Appended, letters: int) -> list[int | None]:
    """Where each letter is; None for one that was there already."""
    if not appended.positions:
        return [None] * letters
    [(_, offset, last)] = appended.positions
    known = set(appended.duplicates)
    if last - offset + 1 != letters - len(known):
        return [None] * letters  # on Kafka others' letters may lie between
    found: list[int | None] = []
    for letter in range(letters):
        found.append(None if letter in known else offset)
        offset += letter not in known
    return found


def write_marks(marks: Sequence[Mark]) -> Append:
    """Belongs into the same call as the events of the letters that were sent."""
    columns = {
        "LETTER": pa.array([mark.letter for mark in marks], pa.int64()),
        "TOPIC": pa.array([mark.topic for mark in marks], pa.string()),
        "WHO": pa.array([mark.who for mark in marks], pa.string()),
        "REFUSED": pa.array([mark.refused or None for mark in marks], pa.bool_()),
    }
    return Append(REDRIVEN_TOPIC, pa.record_batch(columns))


def read_marks(log: Log, start: int = 0, now: Snapshot | None = None) -> tuple[list[Mark], int]:
    """All from an offset on, and where they end."""
    ends = (now or log.snapshot()).ends.get(REDRIVEN_TOPIC)
    if not ends or ends[0].end <= start:
        return [], start
    has_refused = any(column.name == "REFUSED" for column in log.topic(REDRIVEN_TOPIC).spec.value)
    columns = ["LETTER", "TOPIC", "WHO", *(["REFUSED"] if has_refused else [])]
    marks = [
        Mark(row["LETTER"], row["TOPIC"], row["WHO"], bool(row.get("REFUSED")))
        for records in log.read(REDRIVEN_TOPIC, 0, max(start, ends[0].start), ends[0].end, columns)
        for row in records.batch.to_pylist()
    ]
    return marks, ends[0].end


@dataclass(slots=True)
class Redriven:
    """What became of letters since they are letters."""

    sent: set[int] = field(default_factory=set)
    tried: Counter[int] = field(default_factory=Counter)
    """How often each was sent again, with success or without."""
    by_topic: Counter[str] = field(default_factory=Counter)
    """How many letters of each topic were sent again with success."""
    _read: int = 0

    def catch_up(self, log: Log, now: Snapshot) -> None:
        marks, self._read = read_marks(log, self._read, now)
        self.tried.update(mark.letter for mark in marks)
        for mark in marks:
            if not mark.refused and mark.letter not in self.sent:
                self.sent.add(mark.letter)
                self.by_topic[mark.topic] += 1

    def attempts(self, letter: int, before: int | None) -> int:
        """In all. `before`: until it became a letter; None if an older version wrote it."""
        return (before or 1) + self.tried[letter]
