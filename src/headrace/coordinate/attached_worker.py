"""One function on a topic at work: a thread that reads, has the function called in a process of its own, and writes.

What a function made, what it failed for and how far it is are one transaction: after a kill a batch is worked on again,
and its output is there once. A function belongs to a group `function-NAME`, so its position and lag are shown like
any other reader's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import pyarrow as pa

from headrace.clock import Clock
from headrace.collect.split import read_one
from headrace.errors import Conflict, HeadraceError, NotFound, OffsetOutOfRange, Refused
from headrace.functions.attach import Attached
from headrace.functions.batches import Caller, Made, Sent, Stopped, Worked, Works, sent_records
from headrace.functions.compiled import Limits
from headrace.functions.files import FunctionFile
from headrace.log.base import ID, Consumer, Log, Producer, Topic, TopicPartition
from headrace.log.codecs.event_time import ANY_TIME
from headrace.log.codecs.json_codec import JsonCodec
from headrace.log.dead_letters import DeadLetter, bury

POLL_S = 0.5
PAUSE_S = 2.0
"""Before it is tried again after an error that is not the function's."""
SESSION_S = 30.0
END_S = 10.0
LONGEST_REASON = 4000

State = Literal["starting", "running", "waiting", "failed", "stopped"]

logger = logging.getLogger("headrace.functions")


class AttachedStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    file: str
    topic: str
    to: str
    state: State
    summary: str
    batch: int
    retries: int
    records: int
    """Since the server started."""
    written: int
    rejected: int
    """Records it fails for: dead letters."""
    missed: int
    """Records that retention took before it read them."""
    calls: int
    tried_again: int
    error: str | None
    """Why it does not run, or what it last failed for."""
    error_ms: int | None


@dataclass(slots=True)
class _Counts:
    records: int = 0
    written: int = 0
    rejected: int = 0
    missed: int = 0
    state: State = "starting"
    error: str | None = None
    error_ms: int | None = None


@dataclass(slots=True)
class Worker:
    """One function at work."""

    log: Log
    clock: Clock
    file: FunctionFile
    attached: Attached
    limits: Limits
    instead: Works | None = None
    """What works on the records, if it is not the function of the file."""
    told: Callable[[Mapping[int, int]], None] | None = None
    """Told how far it is, by partition, when that is written."""
    stop: threading.Event = field(default_factory=threading.Event)
    counts: _Counts = field(default_factory=_Counts)
    caller: Works | None = None
    thread: threading.Thread | None = None

    @property
    def group(self) -> str:
        return group_of(self.attached.name)

    def run(self) -> None:
        """Until told to stop."""
        while not self.stop.is_set():
            try:
                self._follow()
            except Stopped:
                break
            except NotFound as error:
                self._troubled("waiting", error.message)
            except HeadraceError as error:
                self._troubled("failed", str(error))
            except Exception as error:
                logger.exception("function `%s`", self.attached.name)
                self._troubled("failed", f"{type(error).__name__}: {error}")
            self.stop.wait(PAUSE_S)
        self.counts.state = "stopped"

    def _troubled(self, state: State, text: str) -> None:
        self.counts.state, self.counts.error, self.counts.error_ms = state, text, self.clock.now_ms()

    def _follow(self) -> None:
        attached = self.attached
        topic = self.log.topic(attached.topic)
        if attached.to:
            check_target(self.log.topic(attached.to))
        seconds = attached.seconds or self.limits.seconds
        with (
            self.log.producer(self.group) as producer,
            self.log.consumer(
                [topic.name],
                self.group,
                attached.start,
                session_timeout_s=max(SESSION_S, 3 * seconds),
            ) as consumer,
        ):
            raw = topic.spec.kind == "raw"
            caller = self.instead or Caller(self.file, attached, raw, self.limits, consumer.heartbeat)
            self.caller = caller
            try:
                self.counts.state, self.counts.error = "running", None
                while not self.stop.is_set():
                    self._step(consumer, producer, caller)
            finally:
                caller.close()

    def _step(self, consumer: Consumer, producer: Producer, caller: Works) -> None:
        if self.attached.partitions:
            others = [at for at in consumer.assignment() if at.partition not in self.attached.partitions]
            consumer.pause(others)
        try:
            polled = consumer.poll(POLL_S, self.attached.batch)
        except OffsetOutOfRange:
            self._catch_up(consumer)
            return
        for records in polled:
            topic = self.log.topic(records.topic)
            sent = list(sent_records(records, topic))
            worked = caller.work(sent, self.stop)
            at = TopicPartition(records.topic, records.partition)
            self._write(consumer, producer, topic, worked, {at: records.next_offset})
            self.counts.records += len(sent)

    def _catch_up(self, consumer: Consumer) -> None:
        """Retention was faster than the function: it goes on with what there is, and says what it has missed."""
        ends = self.log.snapshot().ends[self.attached.topic]
        for at in consumer.assignment():
            missed = ends[at.partition].start - consumer.position(at)
            if missed > 0:
                consumer.seek(at, "earliest")
                self.counts.missed += missed
        text = f"{self.counts.missed} records were gone before they were read: the topic keeps them too short a time"
        logger.warning("function `%s`: %s", self.attached.name, text)
        self._troubled("running", text)

    def _write(
        self,
        consumer: Consumer,
        producer: Producer,
        topic: Topic,
        worked: Worked,
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        """All of it, at once, or nothing."""
        letters = [letter_of(self.attached, topic.name, *rejected) for rejected in worked.rejected]
        batch, misfits = None, list[DeadLetter]()
        if made := [one for one in worked.made if one[1] is not None]:
            batch, misfits = output_batch(self.log.topic(self.attached.to), made, self.clock.now_ms(), self.group)
        producer.begin()
        try:
            if batch is not None:
                producer.send(self.attached.to, batch)
            if letters or misfits:
                append = bury([*letters, *misfits])
                producer.send(append.topic, append.batch)
            producer.send_offsets(self.group, offsets, consumer)
            producer.commit()
        except BaseException:
            producer.abort()
            raise
        if self.told is not None:
            self.told({at.partition: offset for at, offset in offsets.items()})
        self.counts.written += 0 if batch is None else batch.num_rows
        self.counts.rejected += len(letters) + len(misfits)
        if letters:
            self.counts.error, self.counts.error_ms = worked.rejected[-1].reason.partition("\n")[0], self.clock.now_ms()

    def status(self) -> AttachedStatus:
        attached, counts = self.attached, self.counts
        calls = self.caller.counts if self.caller else None
        return AttachedStatus(
            name=attached.name,
            file=self.file.file,
            topic=attached.topic,
            to=attached.to,
            state=counts.state,
            summary=attached.summary,
            batch=attached.batch,
            retries=attached.retries,
            records=counts.records,
            written=counts.written,
            rejected=counts.rejected,
            missed=counts.missed,
            calls=calls.calls if calls else 0,
            tried_again=calls.retries if calls else 0,
            error=counts.error,
            error_ms=counts.error_ms,
        )


def group_of(name: str) -> str:
    return f"function-{name}"


def check_target(topic: Topic) -> None:
    """A function writes events, as anybody else may, and nothing that is Headrace's own or a query's."""
    if topic.internal:
        raise Refused(f"topic `{topic.name}` is Headrace's own: no function writes to it")
    if topic.spec.role != "events":
        raise Conflict(f"topic `{topic.name}` is written by a query", hint="let the function write to another")


def letter_of(attached: Attached, topic: str, sent: Sent, reason: str, attempts: int) -> DeadLetter:
    """Its source says `function …`, by which such letters are told from events that were rejected: their records are
    in the topic already."""
    partition, offset, _, id_, _, value, _ = sent
    place = f"{partition}:{offset}"
    return DeadLetter(
        topic,
        f"function `{attached.name}` failed: {reason}"[:LONGEST_REASON],
        f"function {attached.name} {place}",
        id_,
        value or b"",
        f"{attached.name}/{place}",
        attempts,
    )


def output_batch(
    topic: Topic, made: Sequence[Made], now_ms: int, source: str, default_id: Callable[[int], str] | None = None
) -> tuple[pa.RecordBatch | None, list[DeadLetter]]:
    """What a function made, as rows of a topic; and what does not fit there. `default_id` names those that have no id
    of their own."""
    values = [value for _, value, _ in made]
    if topic.spec.kind == "raw":
        columns = {
            "KEY": pa.array([key for key, _, _ in made], pa.binary()),
            "VALUE": pa.array(values, pa.binary()),
        }
        if default_id is not None:
            columns[ID] = pa.array([default_id(row) for row in range(len(made))], pa.string())
        return pa.record_batch(columns), []
    codec = JsonCodec(topic)
    events = [read_one(value or b"", codec.decoder) for value in values]
    decoded = codec.decode(events, lambda row: values[row] or b"", now_ms, ANY_TIME, default_id)
    letters = [
        DeadLetter(topic.name, reason, f"function {source}", decoded.ids.get(row), values[row] or b"")
        for row, reason in decoded.rejected.items()
    ]
    return decoded.batch, letters
