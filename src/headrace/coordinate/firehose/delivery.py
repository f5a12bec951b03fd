"""A delivery stream at work: gathers records until there are enough or they are old enough, then writes a file."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import msgspec

from headrace.clock import Clock
from headrace.coordinate.attached_worker import letter_of
from headrace.coordinate.firehose.definition import DeliveryNote, Files, Plan, attached_name, buffer_topic
from headrace.coordinate.firehose.gathering import AGAIN, Gathered, Place, Trimming, places_of
from headrace.coordinate.firehose.parquet import parquet_file
from headrace.coordinate.firehose.status import DeliveryStatus
from headrace.coordinate.firehose.transforming import transformed
from headrace.coordinate.firehose.writing import (
    Position,
    Positions,
    finish,
    join_records,
    sweep,
    write_temporary,
)
from headrace.errors import HeadraceError, OffsetOutOfRange
from headrace.functions.attach import Attached
from headrace.functions.batches import Rejected, Stopped, Works, sent_records
from headrace.log.base import Log, Topic
from headrace.log.dead_letters import DeadLetter, bury

LOOK_S = 0.25
PAUSE_S = 2.0
LETTER_BYTES = 8 * 1024 * 1024
"""Of dead letters in one write, with one more."""

logger = logging.getLogger("headrace.firehose")


@dataclass(slots=True)
class FileDelivery:
    """Writes one delivery stream's files. One thread."""

    log: Log
    clock: Clock
    note: DeliveryNote
    plan: Plan
    positions: Positions
    buckets: Path
    transforming: Works
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    error: str | None = None
    error_ms: int | None = None
    _position: Position | None = None
    _gathered: Gathered = field(default_factory=Gathered)
    _trim: Trimming = field(init=False)

    def __post_init__(self) -> None:
        self._trim = Trimming(self.log, self.clock, buffer_topic(self.note.name))

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                self._deliver()
            except Stopped:
                break
            except HeadraceError as error:
                self._failed(str(error))
            except OSError as error:
                self._failed(f"{(error.strerror or str(error)).lower()}: `{error.filename}`")
            except Exception as error:
                logger.exception("delivery stream `%s`", self.note.name)
                self._failed(f"{type(error).__name__}: {error}")
            self.stop.wait(PAUSE_S)
        self.transforming.close()

    def _failed(self, why: str) -> None:
        self.error, self.error_ms = why, self.clock.now_ms()

    @property
    def delivered(self) -> int:
        return 0 if self._position is None else self._position.records

    def status(self) -> DeliveryStatus:
        """For any thread: what it says may be a moment old."""
        position, gathered = self._position or Position(made=self.note.made), self._gathered
        return DeliveryStatus(
            name=self.note.name,
            source=self.note.source,
            topic=self.note.topic,
            to=f"{self.files.bucket}/{self.files.prefix}",
            format="parquet" if self.files.parquet else "gzip" if self.files.gzip else "plain",
            transform=self.plan.transform,
            state="running" if self.error is None else "failed",
            records=position.records,
            rejected=position.rejected,
            files=position.files,
            buffered=len(gathered.records),
            buffered_bytes=gathered.size,
            buffered_since_ms=gathered.since_ms or None,
            file_bytes=self.files.size,
            file_seconds=self.files.seconds,
            last_file=position.last_file or position.final,
            last_file_ms=position.last_file_ms,
            error=self.error,
            error_ms=self.error_ms,
        )

    def lag(self) -> int:
        """Records that are in no file yet."""
        offsets = self._offsets(self._position or Position(made=self.note.made))
        if not self._gathered.records:
            offsets |= self._gathered.offsets
        ends = [(place.ends, offsets.get(place.number, 0)) for place in places_of(self.log, self.note)]
        return sum(max(0, one.end - max(one.start, offset)) for one, offset in ends)

    def needed(self) -> Mapping[int, int]:
        """By partition of the stream that it reads, what is in no file yet."""
        offsets = self._offsets(self._position or self.positions.read())
        return {
            place.number: offsets.get(place.number, 0)
            for place in places_of(self.log, self.note)
            if place.number != AGAIN
        }

    def _offsets(self, position: Position) -> dict[int, int]:
        return self.note.starts | position.offsets

    @property
    def files(self) -> Files:
        assert self.plan.files is not None
        return self.plan.files

    def _deliver(self) -> None:
        topic = self.log.topic(self.note.topic)
        self._position = position = self._begin(topic)
        sweep(self.buckets / self.files.bucket, self.note.made)
        gathered = self._gathered = Gathered(offsets=self._offsets(position))
        while not self.stop.is_set():
            arrival = self.log.snapshot().arrival
            places = places_of(self.log, self.note)
            if places[0].topic.id != topic.id:
                return  # another stream by that name
            self._gather(places, gathered)
            if self._due(gathered):
                self._flush(topic, gathered)
                gathered = self._gathered = Gathered(offsets=dict(gathered.offsets))
            elif gathered.records:
                self.stop.wait(LOOK_S)
            else:
                self.log.wait(arrival, LOOK_S)
                self.stop.wait(0.01)

    def _begin(self, topic: Topic) -> Position:
        """Where it goes on. Offsets are one topic's: of a stream that was deleted and made again, all is read."""
        position = self.positions.load()
        if position.topic_id == topic.id:
            self._check_log(position)
            return position
        if position.topic_id is not None:
            offsets = dict.fromkeys(self.note.starts, 0)
            offsets |= {number: offset for number, offset in position.offsets.items() if number == AGAIN}
            position = msgspec.structs.replace(position, offsets=offsets)
        position = msgspec.structs.replace(position, topic_id=topic.id, epoch=self.log.current_epoch())
        self.positions.save(position)
        return position

    def _check_log(self, position: Position) -> None:
        """Files may hold records that this log does not have: then somebody has to decide."""
        again = {0: position.offsets[AGAIN]} if AGAIN in position.offsets else {}
        own = {number: offset for number, offset in position.offsets.items() if number != AGAIN}
        hint = (
            "its files have records that are not in the log any more. To deliver again all that its topic still holds, "
            f"stop the project, move those files away and remove `{self.positions.path}`"
        )
        what = f"delivery stream `{self.note.name}`"
        self.log.check_offsets(self.note.topic, own, position.epoch, what, hint)
        if again:
            self.log.check_offsets(buffer_topic(self.note.name), again, position.epoch, what, hint)

    def _due(self, gathered: Gathered) -> bool:
        if not gathered.records:
            return False
        old = self.clock.now_ms() - gathered.since_ms >= self.files.seconds * 1000
        return old or gathered.full(self.files.size)

    def _gather(self, places: Sequence[Place], gathered: Gathered) -> None:
        """What is new, until a file's worth is there."""
        now = self.clock.now_ms()
        for number, topic, partition, ends in places:
            first = max(gathered.offsets.get(number, 0), ends.start)
            missed = first - gathered.offsets.get(number, first)
            if missed > 0:
                logger.warning(
                    "delivery stream `%s`: %d records were gone before a file was due", self.note.name, missed
                )
            if first >= ends.end or gathered.full(self.files.size):
                continue
            try:
                for records in self.log.read(topic.name, partition, first, ends.end):
                    for sent in sent_records(records, topic):
                        # In its own topic a record's time is when it was put; elsewhere it may be any.
                        gathered.take(number, sent, now if self.note.source else min(now, sent[2]))
                        if gathered.full(self.files.size):
                            return
                # Past what is no record: marks of transactions, and what compaction took.
                gathered.offsets[number] = ends.end
            except OffsetOutOfRange:
                continue  # retention was faster; the next look begins where it left off

    def _flush(self, topic: Topic, gathered: Gathered) -> None:
        kept, rejected = transformed(self.transforming, gathered.records, self.stop)
        if self.stop.is_set():
            raise Stopped  # the call may have taken longer than anybody waits: whoever follows is at work by now
        content, misfits = content_of(self.log, self.files, [value for _, value in kept])
        rejected += [Rejected(kept[number][0], reason) for number, reason in misfits.items()]
        attached = Attached(attached_name(self.note.name), "")
        # The same letters, if this has to be done again, are there once.
        for letters in _parts(letter_of(attached, topic.name, *one) for one in rejected):
            self.log.append([bury(letters)]).result()
        position = self._position
        assert position is not None
        written = len(kept) - len(misfits)
        following = msgspec.structs.replace(
            position,
            offsets=dict(gathered.offsets),
            epoch=self.log.current_epoch(),
            temporary=None,
            final=None,
            files=position.files + (content is not None),
            records=position.records + written,
            rejected=position.rejected + len(rejected),
        )
        if content is not None:
            following = self._write(content, gathered, following)
        else:
            self.positions.save(following)
        self._position = following
        self.error = self.error_ms = None
        if not self.note.source:
            self._trim(gathered.offsets)
        elif AGAIN in gathered.offsets:
            self._trim({0: gathered.offsets[AGAIN]})

    def _write(self, content: bytes, gathered: Gathered, following: Position) -> Position:
        places = ",".join(f"{number}:{offset}" for number, offset in sorted(gathered.offsets.items()))
        unique = blake2b(f"{self.note.made}/{places}".encode(), digest_size=8).hexdigest()
        name = self.files.file(self.note.name, self.note.version, gathered.oldest_ms, unique)
        final = self.buckets / self.files.bucket / name
        temporary = write_temporary(final, self.note.made, content)
        following = msgspec.structs.replace(
            following,
            temporary=str(temporary),
            final=str(final),
            last_file=str(final),
            last_file_ms=self.clock.now_ms(),
        )
        self.positions.save(following)
        finish(temporary, final)
        return following


def content_of(log: Log, files: Files, values: Sequence[bytes]) -> tuple[bytes | None, dict[int, str]]:
    """Of a file, and the records that do not fit it: number → reason."""
    if not values:
        return None, {}
    if not files.parquet:
        return join_records(values, files.delimiter, files.gzip), {}
    schema = log.topic(files.schema_topic) if files.schema_topic else None
    return parquet_file(values, schema)


def _parts(letters: Iterator[DeadLetter]) -> Iterator[list[DeadLetter]]:
    part: list[DeadLetter] = []
    size = 0
    for letter in letters:
        part.append(letter)
        size += len(letter.payload) + len(letter.reason)
        if size >= LETTER_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
