"""All delivery streams of a project: made, changed, deleted, and at work."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headrace.clock import Clock
from headrace.collect.kinesis.errors import IN_USE, INVALID, NOT_FOUND, ApiError
from headrace.collect.kinesis.notes import Notes
from headrace.coordinate.attached_worker import Worker, check_target, group_of
from headrace.coordinate.firehose.definition import (
    DeliveryNote,
    Plan,
    attached_name,
    buffer_topic,
    check_wanted,
    plan_of,
)
from headrace.coordinate.firehose.delivery import FileDelivery
from headrace.coordinate.firehose.gathering import Trimming
from headrace.coordinate.firehose.status import DeliveryStatus
from headrace.coordinate.firehose.transforming import Find, Transforming
from headrace.coordinate.firehose.writing import Positions
from headrace.errors import NotFound
from headrace.functions.attach import Attached
from headrace.functions.compiled import Limits
from headrace.functions.files import FunctionFile
from headrace.log.base import Log, Start, Topic, TopicConfig, TopicSpec

PREFIX = "delivery/"
END_S = 15.0
FOR_EVER_MS = 100 * 365 * 24 * 3_600_000
"""A buffer loses nothing to the log's own retention: it is emptied after its files are written."""


class Deliveries:
    """Safe to use from several threads."""

    def __init__(self, log: Log, clock: Clock, data: Path, buckets: Path, find: Find, limits: Limits) -> None:
        self._log, self._clock, self._find, self._limits = log, clock, find, limits
        self._state, self.buckets = data / "firehose", buckets
        self.notes = Notes(log)
        self._lock = threading.RLock()
        """Held by the one who begins and ends: a call that is under way may take its time."""
        self._known = threading.Lock()
        self._working: dict[str, FileDelivery | Worker] = {}

    def start(self) -> None:
        with self._lock:
            for note in self.all():
                # One that was made while the server was still starting is at work already.
                if note.name not in self._working:
                    self._begin(note)

    def close(self) -> None:
        with self._lock:
            working = self._workers()
            for worker in working.values():
                worker.stop.set()
            for name in working:
                self._end(name)

    def all(self) -> list[DeliveryNote]:
        found = [self.notes.get(name, DeliveryNote) for name in self.notes.names(PREFIX)]
        return [note for note in found if note is not None]

    def get(self, name: str) -> DeliveryNote:
        found = self.notes.get(f"{PREFIX}{name}", DeliveryNote)
        if found is None:
            raise ApiError(NOT_FOUND, f"Firehose {name} under account not found.")
        return found

    def error(self, name: str) -> str | None:
        worker = self._workers().get(name)
        if isinstance(worker, Worker):
            return worker.counts.error
        return None if worker is None else worker.error

    def delivered(self) -> dict[str, int]:
        """Records in files, ever."""
        return {name: one.delivered for name, one in self._workers().items() if isinstance(one, FileDelivery)}

    def statuses(self) -> list[DeliveryStatus]:
        return [
            one.status() if isinstance(one, FileDelivery) else _into_topic(name, one)
            for name, one in sorted(self._workers().items())
        ]

    def lag(self, name: str) -> int:
        """Records that are not delivered yet."""
        worker = self._workers().get(name)
        if isinstance(worker, FileDelivery):
            return worker.lag()
        try:
            return 0 if worker is None else self._log.group(worker.group).lag
        except NotFound:
            return 0

    def needed(self, topic: str) -> dict[int, int]:
        """By partition, from which offset on a delivery stream that reads this topic has yet to deliver."""
        found: dict[int, int] = {}
        for note in self.all():
            for partition, offset in (self._needed(note) if note.source == topic else {}).items():
                found[partition] = min(offset, found.get(partition, offset))
        return found

    def _needed(self, note: DeliveryNote) -> Mapping[int, int]:
        worker = self._workers().get(note.name)
        if worker is None:
            worker = self._worker(note)  # not at work yet: the server is starting
        if isinstance(worker, FileDelivery):
            return worker.needed()
        try:
            offsets = self._log.group(worker.group).offsets
        except NotFound:
            return {}
        return {one.at.partition: one.committed for one in offsets if one.committed is not None}

    def _workers(self) -> dict[str, FileDelivery | Worker]:
        with self._known:
            return dict(self._working)

    def create(self, note: DeliveryNote) -> None:
        with self._lock:
            if self.notes.get(f"{PREFIX}{note.name}", DeliveryNote) is not None:
                raise ApiError(IN_USE, f"Firehose {note.name} under account already exists")
            self._check(note)
            if not note.source:
                # One of a stream that was killed while it was made or deleted: what is in it was forgotten.
                with contextlib.suppress(NotFound):
                    self._log.delete_topic(buffer_topic(note.name))
                note = msgspec.structs.replace(note, made=self.make_buffer(note).id)
            else:
                # As Firehose does: what is put from now on.
                ends = self._log.snapshot().ends[note.source]
                starts = {number: end.end for number, end in enumerate(ends)}
                note = msgspec.structs.replace(note, starts=starts)
            self.write(note)
            self._begin(note)

    def make_buffer(self, note: DeliveryNote) -> Topic:
        """Its own topic, if it is not there: one that reads a stream needs it for what is delivered again."""
        config = TopicConfig(retention_ms=FOR_EVER_MS)
        return self._log.create_topic(TopicSpec(buffer_topic(note.name), kind="raw", config=config))

    def named(self, attached: str, topic: str) -> tuple[DeliveryNote, Plan] | None:
        """The one that has this name as the source of dead letters, and such a topic."""
        name = attached.removeprefix(attached_name(""))
        note = self.notes.get(f"{PREFIX}{name}", DeliveryNote) if name != attached else None
        if note is None or note.topic != topic:
            return None
        return note, plan_of(note.destination, note.configuration)

    def transforming(self, note: DeliveryNote, plan: Plan, retries: int | None = None) -> Transforming:
        return Transforming(plan.transform, self._find, self._limits, lambda: self._raw(note), retries)

    def _check(self, note: DeliveryNote) -> Plan:
        """What it needs has to be there when it is made, not only when the first file is due."""
        check_wanted(note.configuration)
        plan = plan_of(note.destination, note.configuration)
        try:
            if plan.transform:
                self._find(plan.transform)
            for topic in (note.source, plan.files.schema_topic if plan.files else ""):
                if topic:
                    self._log.topic(topic)
            if plan.to:
                check_target(self._log.topic(plan.to))
        except NotFound as error:
            raise ApiError(INVALID, error.message) from error
        return plan

    def change(self, note: DeliveryNote) -> None:
        """A newer version: the next file is as it says."""
        with self._lock:
            self._check(note)
            self.write(note)
            self._end(note.name)
            self._begin(note)

    def write(self, note: DeliveryNote) -> None:
        self.notes.put(f"{PREFIX}{note.name}", note)

    def delete(self, name: str) -> None:
        """Its files stay; what was not written yet goes with it, as in Firehose."""
        with self._lock:
            note = self.get(name)
            self._end(name)
            self.notes.put(f"{PREFIX}{name}", None)
            self._positions(note).forget()
            with contextlib.suppress(NotFound):  # or one that was deleted and made again would go on where it was
                self._log.delete_group(group_of(attached_name(name)))
            with contextlib.suppress(NotFound):
                self._log.delete_topic(buffer_topic(name))

    def _positions(self, note: DeliveryNote) -> Positions:
        return Positions(self._state / f"{note.name}.json", note.made)

    def _begin(self, note: DeliveryNote) -> None:
        worker = self._worker(note)
        worker.thread = threading.Thread(target=worker.run, name=f"headrace-delivery-{note.name}", daemon=True)
        worker.thread.start()
        with self._known:
            self._working[note.name] = worker

    def _worker(self, note: DeliveryNote) -> FileDelivery | Worker:
        plan = plan_of(note.destination, note.configuration)
        transforming = self.transforming(note, plan)
        if plan.files is not None:
            return FileDelivery(self._log, self._clock, note, plan, self._positions(note), self.buckets, transforming)
        name = attached_name(note.name)
        start: Start = "latest" if note.source else "earliest"
        attached = Attached(name, "", topic=note.topic, to=plan.to, batch=1000, start=start)
        worker = Worker(self._log, self._clock, FunctionFile(name, ""), attached, self._limits, transforming)
        if not note.source:
            worker.told = Trimming(self._log, self._clock, note.topic)
        return worker

    def _raw(self, note: DeliveryNote) -> bool:
        return not note.source or self._log.topic(note.source).spec.kind == "raw"

    def _end(self, name: str) -> None:
        worker = self._workers().get(name)
        if worker is not None:
            worker.stop.set()
            if worker.thread is not None:
                worker.thread.join(END_S + self._limits.seconds)
            with self._known:
                del self._working[name]


def _into_topic(name: str, worker: Worker) -> DeliveryStatus:
    status, topic = worker.status(), worker.attached.topic
    return DeliveryStatus(
        name=name,
        source="" if topic == buffer_topic(name) else topic,
        topic=topic,
        to=status.to,
        format="topic",
        transform=worker.instead.name if isinstance(worker.instead, Transforming) else "",
        state=status.state,
        records=status.written,
        rejected=status.rejected,
        error=status.error,
        error_ms=status.error_ms,
    )
