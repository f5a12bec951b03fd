"""Dead letters, sent again: mended, under their own ids, each once.

A letter is marked in the same atomic append that brings its event into the topic, so whatever is killed whenever, it is
either a letter still or an event, never both. An event that meanwhile came by itself, under the same id, is not doubled
either. What does not fit again stays the letter it is, tried once more.

A letter of a function or a delivery stream is a record that is in the topic already: it goes through the function or
the delivery stream again (`Again`), and what that makes and the mark are one append, too.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from headrace.clock import Clock
from headrace.collect.base import Sent
from headrace.collect.mending import Letter, Mending, Unmendable
from headrace.collect.split import Limits, read_json
from headrace.collect.spool.spool import joined
from headrace.config import CollectSettings
from headrace.errors import Conflict, Refused
from headrace.log.base import ID, TIME, Append, Log, Topic
from headrace.log.codecs.event_time import EventTimeBounds
from headrace.log.codecs.json_codec import RESERVED, JsonCodec
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC, Mark, Redriven, create_redriven, write_marks
from headrace.sql.functions.function import Function
from headrace.store.arrivals import addressed

SAMPLES = 50
AT_ONCE = 500
"""Letters in one append."""
ELSEWHERE = ("queue ", "function ")
"""Where letters come from whose records are in the topic already."""
_MADE = re.compile(r"function function-\S+")
"""What a function made and its topic did not take: that is in no topic."""
_FAILED = re.compile(r"function (\S+) (-?\d+):(\d+)")
_RAW_FIELDS = {"key", "value", *RESERVED}
_COLUMNS = [TIME, "TOPIC", "REASON", "SOURCE", "EVENT_ID", "PAYLOAD", "ATTEMPTS"]

Rules = Callable[[str, Topic, Sent], Sent]
"""Source of a letter, its topic, its event → the event as the rules of the collector it came from want it."""
What = Literal["accepted", "duplicate", "rejected"]


@dataclass(frozen=True, slots=True)
class Order:
    """What somebody asks for. Without `where`, all of the topic's letters that were not sent again yet."""

    topic: str
    where: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    preview: bool = False
    limit: int | None = None
    who: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    letter: Letter
    event: bytes | None
    """As it is sent; None if it could not be mended."""
    outcome: What
    reason: str | None = None


@dataclass(slots=True)
class Report:
    """With `preview`, what would be."""

    matched: int = 0
    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    samples: list[Sample] = field(default_factory=list)
    """The first of each outcome, so that no kind hides another."""

    def take(self, sample: Sample) -> None:
        match sample.outcome:
            case "accepted":
                self.accepted += 1
            case "duplicate":
                self.duplicates += 1
            case "rejected":
                self.rejected += 1
        if sum(one.outcome == sample.outcome for one in self.samples) < SAMPLES:
            self.samples.append(sample)


class Failure(NamedTuple):
    """Who failed for which record of a letter's topic."""

    name: str
    partition: int
    offset: int


def failure_of(source: str) -> Failure | None:
    """
    >>> failure_of("function large 0:17")
    Failure(name='large', partition=0, offset=17)
    >>> failure_of("function lower in query 3"), failure_of("http 127.0.0.1")
    (None, None)
    """
    found = _FAILED.fullmatch(source)
    return None if found is None else Failure(found[1], int(found[2]), int(found[3]))


class Rerun(Protocol):
    """Has a function or a delivery stream work on a letter's record once more."""

    def __call__(self, topic: Topic, letter: Letter, failure: Failure, payload: bytes) -> Sequence[Append]:
        """What is to be written, in one append with the mark; with a preview, what would be. `Unmendable` if it fails
        again."""


Again = Callable[[bool], AbstractContextManager[Rerun]]
"""Whether it is a preview → for as long as a redrive takes."""


@dataclass(frozen=True, slots=True)
class _Ready:
    letter: Letter
    event: bytes
    batch: pa.RecordBatch


@dataclass(slots=True)
class _Work:
    """One redrive."""

    order: Order
    topic: Topic
    mending: Mending
    codec: JsonCodec
    rerun: Rerun | None
    report: Report = field(default_factory=Report)
    pending: list[_Ready] = field(default_factory=list)
    refused: list[Letter] = field(default_factory=list)
    failures: bool = False
    """Whether there are letters of functions or delivery streams, sent again or not."""

    def refuse(self, letter: Letter, event: bytes | None, reason: str | None) -> None:
        self.report.take(Sample(letter, event, "rejected", reason))
        self.refused.append(letter)


class Redriver:
    """Safe to use from several threads: one redrive at a time."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        settings: CollectSettings,
        rules: Rules | None = None,
        again: Again | None = None,
    ) -> None:
        self._log, self._clock, self._rules, self._again = log, clock, rules, again
        self._limits = Limits(settings.max_events, settings.max_event_bytes)
        self._bounds = EventTimeBounds(settings)
        self._lock = threading.Lock()

    def redrive(self, order: Order, functions: Mapping[str, Function]) -> Report:
        topic = self._log.topic(order.topic)
        mending, codec = Mending(topic, order.where, order.values, functions), JsonCodec(topic)
        again = nullcontext(None) if self._again is None else self._again(order.preview)
        with self._lock, again as rerun:
            work = _Work(order, topic, mending, codec, rerun)
            for letter in self._meant(work):
                work.report.matched += 1
                failure = failure_of(letter.source)
                if failure is None:
                    self._prepare(letter, work)
                else:
                    self._run_again(letter, failure, work)
                if len(work.pending) + len(work.refused) >= AT_ONCE:
                    self._send(work)
            self._send(work)
        if not work.failures:
            check_takes_events(topic)  # what else would be sent again
        return work.report

    def _meant(self, work: _Work) -> Iterator[Letter]:
        redriven = Redriven()
        redriven.catch_up(self._log, self._log.snapshot())
        found = 0
        for letter in letters_of(self._log, work.topic.name, redriven):
            if found == work.order.limit:
                return
            failed = failure_of(letter.source) is not None
            work.failures |= failed
            sendable = work.rerun is not None if failed else _sendable(letter, work.topic)
            if letter.offset not in redriven.sent and sendable and work.mending.picks(letter):
                found += 1
                yield letter

    def _prepare(self, letter: Letter, work: _Work) -> None:
        """Decoded as on the day it came: an event without a time of its own keeps that of its first attempt."""
        event: bytes | None = None
        try:
            event = work.mending.mended(letter)
            sent = read_json(event, work.codec.decoder, self._limits)
            if work.topic.spec.kind == "raw" and not _is_raw_event(sent.events):
                batch = self._as_bytes(event, _id_of(letter))
            else:
                ruled = self._ruled(letter, sent, work.topic)
                event = event if ruled is sent else ruled.slices(0)
                batch = self._decoded(letter, ruled, work.codec)
        except Unmendable as misfit:
            work.refuse(letter, event, str(misfit))
            return
        if TIME not in batch.schema.names:
            batch = batch.append_column(TIME, pa.array([letter.time_ms], pa.int64()))
        work.pending.append(_Ready(letter, event, batch))

    def _ruled(self, letter: Letter, sent: Sent, topic: Topic) -> Sent:
        """The one event, as its collector would have it now."""
        if len(sent.events) != 1:
            raise Unmendable(f"it is {len(sent.events)} events; a letter is one")
        return self._rules(letter.source, topic, sent) if self._rules and type(sent.events[0]) is dict else sent

    def _decoded(self, letter: Letter, sent: Sent, codec: JsonCodec) -> pa.RecordBatch:
        age = max(0, self._clock.now_ms() - letter.time_ms)
        decoded = codec.decode(
            sent.events,
            sent.slices,
            letter.time_ms,
            self._bounds.of(codec.topic.name).widened(age),
            default_id=lambda _: _id_of(letter),
            refused=sent.refused,
        )
        if decoded.batch is None:
            raise Unmendable(decoded.rejected[0])
        return decoded.batch

    def _as_bytes(self, event: bytes, id_: str) -> pa.RecordBatch:
        """A record of a raw topic may be anything, if it is not too large."""
        most = self._limits.max_event_bytes
        if len(event) > most:
            raise Unmendable(f"the event is {len(event)} bytes, more than the {most} an event may have")
        columns = {"VALUE": pa.array([event], pa.binary()), ID: pa.array([id_], pa.string())}
        return pa.record_batch(columns)

    def _run_again(self, letter: Letter, failure: Failure, work: _Work) -> None:
        """Alone, because what it makes is written with this letter's mark, and while the function still knows."""
        assert work.rerun is not None
        event: bytes | None = None
        try:
            event = work.mending.mended(letter)
            appends = work.rerun(work.topic, letter, failure, event)
        except Unmendable as misfit:
            work.refuse(letter, event, str(misfit))
            return
        known = False
        if not work.order.preview:
            create_redriven(self._log)
            marks = write_marks([Mark(letter.offset, work.topic.name, work.order.who)])
            appended = self._log.append([*appends, marks]).result()
            made = list(zip(appends, appended, strict=False))
            known = bool(made) and all(len(one.duplicates) == append.batch.num_rows for append, one in made)
        work.report.take(Sample(letter, event, "duplicate" if known else "accepted"))

    def _send(self, work: _Work) -> None:
        pending, refused, report = work.pending, work.refused, work.report
        work.pending, work.refused = [], []
        if work.order.preview:
            for ready, known in zip(pending, self._known(work.topic.name, pending), strict=True):
                report.take(Sample(ready.letter, ready.event, "duplicate" if known else "accepted"))
        elif pending or refused:
            self._write(pending, refused, work.order, report)

    def _known(self, topic: str, pending: list[_Ready]) -> list[bool]:
        """Which events have come meanwhile."""
        if not pending or "event-ids" not in self._log.capabilities:
            return [False] * len(pending)
        ids = [ready.batch[ID][0].as_py() for ready in pending]
        return [place is not None for place in self._log.places(topic, ids)]

    def _write(self, pending: list[_Ready], refused: list[Letter], order: Order, report: Report) -> None:
        create_redriven(self._log)
        events = joined([[Append(order.topic, ready.batch)] for ready in pending])
        marks = [Mark(ready.letter.offset, order.topic, order.who) for ready in pending]
        marks += [Mark(letter.offset, order.topic, order.who, refused=True) for letter in refused]
        appended, *_ = self._log.append([*events, write_marks(marks)]).result()
        known = set(appended.duplicates) if events else set()
        for row, ready in enumerate(pending):
            report.take(Sample(ready.letter, ready.event, "duplicate" if row in known else "accepted"))


def check_takes_events(topic: Topic) -> None:
    if topic.internal:
        raise Refused(f"topic `{topic.name}` is Headrace's own: nobody sends events to it")
    if topic.spec.role != "events":
        raise Conflict(f"topic `{topic.name}` is written by a query", hint="redrive the letters of the query's inputs")


def _sendable(letter: Letter, topic: Topic) -> bool:
    takes_events = not topic.internal and topic.spec.role == "events"
    return takes_events and (not letter.source.startswith(ELSEWHERE) or _MADE.fullmatch(letter.source) is not None)


def _id_of(letter: Letter) -> str:
    return letter.event_id or f"dead-letter/{letter.offset}"


def _is_raw_event(events: Sequence[Any]) -> bool:
    """Whether it names what a record of a raw topic has; other bytes are its value."""
    return len(events) == 1 and type(events[0]) is dict and {name.casefold() for name in events[0]} <= _RAW_FIELDS


def letters_of(log: Log, topic: str, redriven: Redriven) -> Iterator[Letter]:
    """All there are, oldest first."""
    ends = log.snapshot().ends.get(DEAD_LETTERS_TOPIC)
    if not ends:
        return
    for records in log.read(DEAD_LETTERS_TOPIC, 0, ends[0].start, ends[0].end, _COLUMNS):
        for row in addressed(records).to_pylist():
            if row["TOPIC"] == topic:
                offset, attempts = row["$offset"], redriven.attempts(row["$offset"], row["ATTEMPTS"])
                about = row["REASON"], row["SOURCE"], row["EVENT_ID"], row["PAYLOAD"] or b""
                yield Letter(offset, row[TIME], *about, attempts)
