"""What all actions share: the log, the clock, the limits, and how a request names its stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from headrace.clock import Clock
from headrace.collect.base import Collector
from headrace.collect.gate import Gate
from headrace.collect.gates import Gates
from headrace.collect.kinesis.errors import NOT_FOUND, VALIDATION, ApiError
from headrace.collect.kinesis.notes import Notes, StreamNote
from headrace.collect.kinesis.quota import Quota, Rate
from headrace.collect.kinesis.settings import KinesisStreamSettings
from headrace.collect.kinesis.wire import Model
from headrace.config import KinesisSettings
from headrace.errors import NotFound
from headrace.log.base import Log, Topic


class OfStream(Model, frozen=True, kw_only=True):
    """A request about one stream, by name or by ARN."""

    stream_name: str | None = None
    stream_arn: str | None = msgspec.field(name="StreamARN", default=None)

    @property
    def name(self) -> str:
        if self.stream_name:
            return self.stream_name
        if self.stream_arn:
            return name_in_arn(self.stream_arn)
        raise ApiError(VALIDATION, "neither StreamName nor StreamARN was given")


def name_in_arn(arn: str) -> str:
    """
    >>> name_in_arn("arn:aws:kinesis:us-east-1:000000000000:stream/clicks")
    'clicks'
    """
    return arn.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Account:
    log: Log
    clock: Clock
    collector: Collector
    gates: Gates
    settings: KinesisSettings
    notes: Notes
    quota: Quota
    check_unused: Callable[[Topic], None]
    """Raises `Conflict` if something would miss the topic."""

    def topic(self, name: str) -> Topic:
        try:
            found = self.log.topic(name)
        except NotFound:
            found = None
        if found is None or found.internal:
            raise ApiError(NOT_FOUND, f"Stream {name} under account {self.settings.account} not found.")
        return found

    def arn(self, name: str) -> str:
        return f"arn:aws:kinesis:{self.settings.region}:{self.settings.account}:stream/{name}"

    def note(self, topic: Topic) -> StreamNote:
        found = self.notes.get(f"stream/{topic.name}", StreamNote)
        return found if found is not None and found.topic_id == topic.id else StreamNote(topic_id=topic.id)

    def write_note(self, topic: Topic, note: StreamNote) -> None:
        self.notes.put(f"stream/{topic.name}", note)

    def gate(self, name: str) -> Gate | None:
        """The collector whose rules hold for a stream."""
        for gate in self.gates.all():
            if gate.definition.kind.name == "kinesis" and gate.topic == name:
                return gate
        return self.gates.for_topic(name)

    def rate(self, name: str) -> Rate | None:
        gate = self.gate(name)
        if gate is not None and isinstance(gate.settings, KinesisStreamSettings):
            settings = gate.settings
            if settings.shard_records_per_second or settings.shard_bytes_per_second:
                return Rate(settings.shard_records_per_second, settings.shard_bytes_per_second)
        return None
