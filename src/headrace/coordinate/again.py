"""Records that a function or a delivery stream failed for, once more: what `Redriver` asks for with such letters.

A function gets the record alone, and what it makes is written. A delivery stream that writes files gets the record into
a topic of its own, if it would now fit a file: the file is its business, at its time, and each record of that topic is
in one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from headrace.clock import Clock
from headrace.collect.mending import Letter, Unmendable
from headrace.collect.redrive import Failure, Rerun
from headrace.collect.split import read_one
from headrace.coordinate.attached_worker import check_target, group_of, output_batch
from headrace.coordinate.firehose.definition import DeliveryNote, Files, buffer_topic
from headrace.coordinate.firehose.delivery import content_of
from headrace.coordinate.firehose.manager import Deliveries
from headrace.coordinate.firehose.transforming import Find, transformed
from headrace.errors import HeadraceError
from headrace.functions.batches import Caller, Made, Sent, Works, sent_records
from headrace.functions.compiled import Limits
from headrace.log.base import HEADERS, ID, TOMBSTONE, Append, Log, Topic
from headrace.log.codecs.event_json import event_maker
from headrace.log.codecs.event_time import ANY_TIME
from headrace.log.codecs.json_codec import JsonCodec
from headrace.log.codecs.json_encode import to_json

HEADERS_TYPE = pa.map_(pa.string(), pa.binary())


class Reruns:
    """Safe to use from several threads."""

    def __init__(self, log: Log, clock: Clock, find: Find, deliveries: Deliveries, limits: Limits) -> None:
        self._log, self._clock, self._find, self._deliveries, self._limits = log, clock, find, deliveries, limits

    @contextmanager
    def begin(self, preview: bool) -> Iterator[Rerun]:
        running = _Running(self._log, self._clock, self._find, self._deliveries, self._limits, preview)
        try:
            yield running
        finally:
            for works in running.works.values():
                works.close()


@dataclass(slots=True)
class _Running:
    """One redrive. Functions stay loaded for as long as it takes."""

    log: Log
    clock: Clock
    find: Find
    deliveries: Deliveries
    limits: Limits
    preview: bool
    works: dict[str, Works] = field(default_factory=dict)

    def __call__(self, topic: Topic, letter: Letter, failure: Failure, payload: bytes) -> Sequence[Append]:
        sent = self._sent(topic, letter, failure, payload)
        try:
            found = self.deliveries.named(failure.name, topic.name)
            if found is None:
                return self._function(topic, failure.name, letter, sent)
            note, plan = found
            works = self._working(failure.name, lambda: self.deliveries.transforming(note, plan, retries=0))
            if plan.files is None:
                return self._made(works, sent, plan.to, failure.name, letter)
            return self._file(works, sent, note, plan.files, letter)
        except HeadraceError as error:
            raise Unmendable(error.message) from error

    def _working(self, name: str, make: Callable[[], Works]) -> Works:
        if name not in self.works:
            self.works[name] = make()
        return self.works[name]

    def _function(self, topic: Topic, name: str, letter: Letter, sent: Sent) -> Sequence[Append]:
        file, attached = self.find(name)
        if attached.topic != topic.name:
            raise Unmendable(f"function `{name}` is not on topic `{topic.name}` any more")
        once = msgspec.structs.replace(attached, retries=0)
        raw = topic.spec.kind == "raw"
        works = self._working(name, lambda: Caller(file, once, raw, self.limits, lambda: None))
        return self._made(works, sent, attached.to, name, letter)

    def _made(self, works: Works, sent: Sent, to: str, name: str, letter: Letter) -> Sequence[Append]:
        """What is made of the record, whole or not at all."""
        worked = works.work([sent], threading.Event())
        if worked.rejected:
            raise Unmendable(worked.rejected[0].reason)
        made: list[Made] = [one for one in worked.made if one[1] is not None]
        if not made:
            return []
        target = self.log.topic(to)
        check_target(target)
        batch, misfits = output_batch(
            target, made, self.clock.now_ms(), group_of(name), lambda row: f"dead-letter/{letter.offset}/{row}"
        )
        if misfits:
            raise Unmendable(f"what it makes does not fit topic `{to}`: {misfits[0].reason}")
        return [] if batch is None else [Append(to, batch)]

    def _file(self, works: Works, sent: Sent, note: DeliveryNote, files: Files, letter: Letter) -> Sequence[Append]:
        kept, rejected = transformed(works, [sent], threading.Event())
        if rejected:
            raise Unmendable(rejected[0].reason)
        _, misfits = content_of(self.log, files, [value for _, value in kept])
        if misfits:
            raise Unmendable(misfits[0])
        if not kept:
            return []
        if not self.preview:
            self.deliveries.make_buffer(note)
        _, _, _, _, key, value, headers = sent
        columns = {
            "KEY": pa.array([key], pa.binary()),
            "VALUE": pa.array([value], pa.binary()),
            TOMBSTONE: pa.array([value is None], pa.bool_()),
            HEADERS: pa.array([list(headers.items())], HEADERS_TYPE),
            # Not the record's own: that is in the buffer still, perhaps.
            ID: pa.array([f"dead-letter/{letter.offset}"], pa.string()),
        }
        return [Append(buffer_topic(note.name), pa.record_batch(columns))]

    def _sent(self, topic: Topic, letter: Letter, failure: Failure, payload: bytes) -> Sent:
        """The record as it is in the topic, with the value that is asked for. If it is gone, what the letter has."""
        found = self._record(topic, failure)
        if found is not None and (found[5] or b"") == letter.payload:
            if payload == letter.payload:
                return found
            key = found[4] if topic.spec.kind == "raw" else _key(topic, payload)
            return (*found[:4], key, payload, found[6])
        key = None if topic.spec.kind == "raw" else _key(topic, payload)
        return failure.partition, failure.offset, letter.time_ms, letter.event_id, key, payload or None, {}

    def _record(self, topic: Topic, failure: Failure) -> Sent | None:
        try:
            ends = self.log.snapshot().ends[topic.name][failure.partition] if failure.partition >= 0 else None
            if ends is None or not ends.start <= failure.offset < ends.end:
                return None
            for records in self.log.read(topic.name, failure.partition, failure.offset, failure.offset + 1):
                return next(sent_records(records, topic), None)
        except (HeadraceError, LookupError):
            pass
        return None


def _key(topic: Topic, payload: bytes) -> bytes | None:
    """Of a topic with columns, as a function gets it."""
    codec = JsonCodec(topic)
    decoded = codec.decode([read_one(payload, codec.decoder)], lambda row: payload, 0, ANY_TIME)
    if decoded.batch is None or not topic.spec.key:
        return None
    [row] = decoded.batch.to_pylist(maps_as_pydicts=None)
    whole = dict.fromkeys(column.name for column in topic.spec.key + topic.spec.value)
    event = event_maker(topic)({**whole, "$time": 0, TOMBSTONE: False, **row}, 0, 0)
    return to_json(event["key"]) if event["key"] else None
