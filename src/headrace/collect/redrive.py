"""Dead letters, sent again: mended, under their own ids, each once.

A letter is marked in the same atomic append that brings its event into the topic, so whatever is killed whenever, it is
either a letter still or an event, never both. An event that meanwhile came by itself, under the same id, is not doubled
either. What does not fit again stays the letter it is, tried once more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from headrace.clock import Clock
from headrace.collect.base import Sent
from headrace.collect.mending import Letter, Mending, Unmendable
from headrace.collect.split import Limits, read_json
from headrace.collect.spool.spool import joined
from headrace.config import CollectSettings
from headrace.errors import Conflict, Refused, UsageError
from headrace.log.base import ID, TIME, Append, Log, Topic
from headrace.log.codecs.json_codec import JsonCodec
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC, Mark, Redriven, create_redriven, write_marks
from headrace.sql.functions.function import Function
from headrace.store.arrivals import addressed

SAMPLES = 50
AT_ONCE = 500
"""Letters in one append."""
ELSEWHERE = ("queue ", "function ")
"""Where letters come from whose records are in the topic already: nothing is to be sent again."""
_COLUMNS = [TIME, "TOPIC", "REASON", "SOURCE", "EVENT_ID", "PAYLOAD", "ATTEMPTS"]

Again = Callable[[str, Topic, Sent], Sent]
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


@dataclass(frozen=True, slots=True)
class _Ready:
    letter: Letter
    event: bytes
    batch: pa.RecordBatch


class Redriver:
    """Safe to use from several threads: one redrive at a time."""

    def __init__(self, log: Log, clock: Clock, settings: CollectSettings, again: Again | None = None) -> None:
        self._log, self._clock, self._again = log, clock, again
        self._limits = Limits(settings.max_events, settings.max_event_bytes)
        self._max_future_ms = int(settings.max_future_seconds * 1000)
        self._lock = threading.Lock()

    def redrive(self, order: Order, functions: Mapping[str, Function]) -> Report:
        topic = self._topic(order.topic)
        mending, codec = Mending(topic, order.where, order.values, functions), JsonCodec(topic)
        report, pending, refused = Report(), list[_Ready](), list[Letter]()
        with self._lock:
            for letter in self._meant(topic, mending, order.limit):
                report.matched += 1
                ready = self._prepare(letter, codec, mending, report)
                if ready is None:
                    refused.append(letter)
                else:
                    pending.append(ready)
                if len(pending) + len(refused) >= AT_ONCE:
                    self._send(pending, refused, order, report)
                    pending, refused = [], []
            self._send(pending, refused, order, report)
        return report

    def _topic(self, name: str) -> Topic:
        topic = self._log.topic(name)
        if topic.internal:
            raise Refused(f"topic `{name}` is Headrace's own: nobody sends events to it")
        if topic.spec.role != "events":
            raise Conflict(f"topic `{name}` is written by a query", hint="redrive the letters of the query's inputs")
        if topic.spec.kind == "raw":
            raise UsageError(f"topic `{name}` takes any bytes: its letters cannot be mended by column")
        return topic

    def _meant(self, topic: Topic, mending: Mending, limit: int | None) -> Iterator[Letter]:
        redriven = Redriven()
        redriven.catch_up(self._log, self._log.snapshot())
        found = 0
        for letter in letters_of(self._log, topic.name, redriven):
            if found == limit:
                return
            if letter.offset not in redriven.sent and not letter.source.startswith(ELSEWHERE) and mending.picks(letter):
                found += 1
                yield letter

    def _prepare(self, letter: Letter, codec: JsonCodec, mending: Mending, report: Report) -> _Ready | None:
        """Decoded as on the day it came: an event without a time of its own keeps that of its first attempt."""
        event: bytes | None = None
        try:
            event = mending.mended(letter)
            sent = read_json(event, codec.decoder, self._limits)
            if len(sent.events) != 1:
                raise Unmendable(f"it is {len(sent.events)} events; a letter is one")
        except Unmendable as misfit:
            report.take(Sample(letter, event, "rejected", str(misfit)))
            return None
        if self._again is not None and type(sent.events[0]) is dict:
            sent = self._again(letter.source, codec.topic, sent)
            event = sent.slices(0)
        age = max(0, self._clock.now_ms() - letter.time_ms)
        id_ = letter.event_id or f"dead-letter/{letter.offset}"
        decoded = codec.decode(
            sent.events,
            sent.slices,
            letter.time_ms,
            self._max_future_ms + age,
            default_id=lambda _: id_,
            refused=sent.refused,
        )
        if decoded.batch is None:
            report.take(Sample(letter, event, "rejected", decoded.rejected.get(0)))
            return None
        batch = decoded.batch
        if TIME not in batch.schema.names:
            batch = batch.append_column(TIME, pa.array([letter.time_ms], pa.int64()))
        return _Ready(letter, event, batch)

    def _send(self, pending: list[_Ready], refused: list[Letter], order: Order, report: Report) -> None:
        if order.preview:
            for ready, known in zip(pending, self._known(order.topic, pending), strict=True):
                report.take(Sample(ready.letter, ready.event, "duplicate" if known else "accepted"))
        elif pending or refused:
            self._write(pending, refused, order, report)

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
