"""A delivery stream at work: gathers records until there are enough or they are old enough, then writes a file."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import msgspec

from headrace.clock import Clock
from headrace.coordinate.attached_worker import State, letter_of
from headrace.coordinate.firehose.definition import DeliveryNote, Files, Plan
from headrace.coordinate.firehose.parquet import parquet_file
from headrace.coordinate.firehose.writing import (
    Position,
    Positions,
    finish,
    join_records,
    sweep,
    write_temporary,
)
from headrace.errors import HeadraceError, NotFound, OffsetOutOfRange
from headrace.functions.attach import Attached
from headrace.functions.batches import Caller, Counts, Rejected, Sent, Stopped, Worked, Works, sent_records
from headrace.functions.compiled import Limits
from headrace.functions.files import FunctionFile
from headrace.log.base import Log, Topic
from headrace.log.dead_letters import bury

LOOK_S = 0.25
PAUSE_S = 2.0
RETRIED_MS = 3_600_000
"""How long a client may try a put again."""
AT_A_TIME = 500
"""Records of one call of a transform."""

logger = logging.getLogger("headrace.firehose")

Find = Callable[[str], tuple[FunctionFile, Attached]]


class Transforming:
    """Calls the project's function of a name, as it is now; without one, records stay as they are."""

    def __init__(self, name: str, find: Find, limits: Limits, raw: bool) -> None:
        self.name, self._find, self._limits, self._raw = name, find, limits, raw
        self._caller: Caller | None = None
        self._loaded: tuple[FunctionFile, Attached] | None = None
        self.counts = Counts()

    def work(self, records: Sequence[Sent], stop: threading.Event) -> Worked:
        if not self.name:
            return Worked([(sent[4], sent[5], False) for sent in records])
        found = self._find(self.name)
        if self._caller is None or found != self._loaded:
            self.close()
            # A transform has as many results as records, whatever its decorator says of topics.
            attached = msgspec.structs.replace(found[1], topic="")
            self._caller = Caller(found[0], attached, self._raw, self._limits, lambda: None)
            self._caller.counts, self._loaded = self.counts, found
        return self._caller.work(records, stop)

    def close(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.close()


@dataclass(slots=True)
class Gathered:
    """What waits for its file."""

    records: list[Sent] = field(default_factory=list)
    size: int = 0
    oldest_ms: int = 0
    offsets: dict[int, int] = field(default_factory=dict)


class DeliveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a delivery stream is. What is about files is nothing for one that writes to a topic."""

    name: str
    source: str
    """The stream it reads; empty where records are put into it."""
    topic: str
    """Where its records wait."""
    to: str
    """A bucket's folder, or a topic."""
    format: Literal["plain", "gzip", "parquet", "topic"]
    transform: str
    state: State
    records: int
    """Delivered: in files ever, into a topic since the server started."""
    rejected: int
    """Dead letters."""
    files: int = 0
    buffered: int = 0
    """Records that wait for their file."""
    buffered_bytes: int = 0
    buffered_since_ms: int | None = None
    file_bytes: int = 0
    file_seconds: float = 0.0
    """A file is written when so much is there, or so old."""
    last_file: str | None = None
    last_file_ms: int | None = None
    error: str | None = None
    error_ms: int | None = None


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
            buffered_since_ms=gathered.oldest_ms or None,
            file_bytes=self.files.size,
            file_seconds=self.files.seconds,
            last_file=position.last_file or position.final,
            last_file_ms=position.last_file_ms,
            error=self.error,
            error_ms=self.error_ms,
        )

    def lag(self) -> int:
        """Records that are in no file yet."""
        offsets = self.note.starts | (self._position.offsets if self._position is not None else {})
        if not self._gathered.records:
            offsets |= self._gathered.offsets
        ends = self.log.snapshot().ends.get(self.note.topic, ())
        return sum(max(0, end.end - max(end.start, offsets.get(number, 0))) for number, end in enumerate(ends))

    @property
    def files(self) -> Files:
        assert self.plan.files is not None
        return self.plan.files

    def _deliver(self) -> None:
        self._position = position = self.positions.load()
        sweep(self.buckets / self.files.bucket, self.note.made)
        gathered = self._gathered = Gathered(offsets=self.note.starts | position.offsets)
        while not self.stop.is_set():
            topic = self.log.topic(self.note.topic)
            arrival = self.log.snapshot().arrival
            self._gather(topic, gathered)
            if self._due(gathered):
                self._flush(topic, gathered)
                gathered = self._gathered = Gathered(offsets=dict(gathered.offsets))
            elif gathered.records:
                self.stop.wait(LOOK_S)
            else:
                self.log.wait(arrival, LOOK_S)
                self.stop.wait(0.01)

    def _due(self, gathered: Gathered) -> bool:
        if not gathered.records:
            return False
        return gathered.size >= self.files.size or self.clock.now_ms() - gathered.oldest_ms >= self.files.seconds * 1000

    def _gather(self, topic: Topic, gathered: Gathered) -> None:
        """What is new, until a file's worth is there."""
        for number, ends in enumerate(self.log.snapshot().ends[topic.name]):
            first = max(gathered.offsets.get(number, 0), ends.start)
            missed = first - gathered.offsets.get(number, first)
            if missed > 0:
                logger.warning(
                    "delivery stream `%s`: %d records were gone before a file was due", self.note.name, missed
                )
            if first >= ends.end or gathered.size >= self.files.size:
                continue
            try:
                for records in self.log.read(topic.name, number, first, ends.end):
                    for sent in sent_records(records, topic):
                        gathered.oldest_ms = min(gathered.oldest_ms, sent[2]) if gathered.records else sent[2]
                        gathered.records.append(sent)
                        gathered.size += len(sent[5] or b"")
                        gathered.offsets[number] = sent[1] + 1
                        if gathered.size >= self.files.size:
                            return
                # Past what is no record: marks of transactions, and what compaction took.
                gathered.offsets[number] = ends.end
            except OffsetOutOfRange:
                continue  # retention was faster; the next look begins where it left off

    def _flush(self, topic: Topic, gathered: Gathered) -> None:
        kept, rejected = self._transformed(gathered.records)
        content, misfits = self._content([value for _, value in kept])
        rejected += [Rejected(kept[number][0], reason) for number, reason in misfits.items()]
        if rejected:
            attached = Attached(f"delivery-{self.note.name}", "")
            letters = [letter_of(attached, topic.name, *one) for one in rejected]
            # The same letters, if this has to be done again, are there once.
            self.log.append([bury(letters)]).result()
        position = self._position
        assert position is not None
        written = len(kept) - len(misfits)
        following = msgspec.structs.replace(
            position,
            offsets=dict(gathered.offsets),
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
        self._trim(gathered)

    def _transformed(self, records: Sequence[Sent]) -> tuple[list[tuple[Sent, bytes]], list[Rejected]]:
        kept: list[tuple[Sent, bytes]] = []
        rejected: list[Rejected] = []
        for first in range(0, len(records), AT_A_TIME):
            part = records[first : first + AT_A_TIME]
            worked = self.transforming.work(part, self.stop)
            failed = {one.sent[:2] for one in worked.rejected}
            survivors = [sent for sent in part if sent[:2] not in failed]
            rejected += worked.rejected
            kept += [(sent, made[1]) for sent, made in zip(survivors, worked.made, strict=True) if made[1] is not None]
        return kept, rejected

    def _content(self, values: Sequence[bytes]) -> tuple[bytes | None, dict[int, str]]:
        if not values:
            return None, {}
        if not self.files.parquet:
            return join_records(values, self.files.delimiter, self.files.gzip), {}
        schema = self.log.topic(self.files.schema_topic) if self.files.schema_topic else None
        return parquet_file(values, schema)

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

    def _trim(self, gathered: Gathered) -> None:
        """What is in a file need not wait any longer, but for a while: a put that is tried again is known by the ids
        that are still there. A stream that others read keeps its records."""
        if self.note.source:
            return
        long_ago = self.clock.now_ms() - RETRIED_MS
        for number, offset in gathered.offsets.items():
            try:
                before = min(offset, self.log.offset_at_time(self.note.topic, number, max(0, long_ago)))
                self.log.delete_records(self.note.topic, number, before)
            except (NotFound, OffsetOutOfRange):
                continue
