"""The front of one running collector: every protocol hands its events in here, so its rules hold for all of them, and
what became of them is counted."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, replace

from headrace.clock import Clock
from headrace.collect.base import Collector, Outcome, RawEvents, Sent
from headrace.collect.definitions import CollectorSettings, Definition
from headrace.collect.status import Counters
from headrace.errors import HeadraceError, Overloaded
from headrace.log.base import Acks


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """How events came. What is not known is left out."""

    address: str = ""
    """Of whoever is connected: a proxy's, if there is one."""
    forwarded: str = ""
    """The `X-Forwarded-For` it brought, believed only from proxies that `[enrich] proxies` names."""
    user_agent: str = ""
    key: str = ""
    """The write key it was sent with, for quotas."""
    size: int = 0
    """Bytes on the wire of all the events."""
    idempotency_key: str | None = None
    """Gives event *i* the id `KEY/i`, unless it brings its own."""


class Gate:
    """Safe to use from several threads."""

    def __init__(self, definition: Definition, collector: Collector, clock: Clock) -> None:
        self.definition = definition
        self.counters = Counters(definition.name, clock)
        self._collector, self._clock = collector, clock

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def settings(self) -> CollectorSettings:
        return self.definition.settings

    @property
    def topic(self) -> str:
        return self.settings.topic

    def take(self, events: Sent, arrived: Arrival, acks: Acks = "all", topic: str | None = None) -> Future[Outcome]:
        """Events that a protocol has read. As `Collector.collect`, it raises at once where nothing can be taken, and
        the future fails where the write did. `topic`, where it is not the collector's one."""
        raw = RawEvents(topic=topic or self.topic, sent=events, idempotency_key=arrived.idempotency_key, acks=acks)
        return self.collect(raw, arrived)

    def collect(self, raw: RawEvents, arrived: Arrival) -> Future[Outcome]:
        """The same for a body that is read by the topic's codec."""
        raw = self._collector.read(raw)
        assert raw.sent is not None
        count = len(raw.sent.events)
        try:
            future = self._collector.collect(replace(raw, source=self._source(arrived)))
        except HeadraceError as error:
            self._refused(error, count)
            raise
        future.add_done_callback(lambda done: self._done(done, count, arrived.size))
        return future

    def _source(self, arrived: Arrival) -> str:
        """For the dead letters."""
        return f"{self.definition.kind.name} {self.name} {arrived.address}".rstrip()

    def _done(self, done: Future[Outcome], count: int, size: int) -> None:
        error = done.exception()
        if error is None:
            self.counters.took(done.result(), count, size)
        else:
            self._refused(error, count)

    def _refused(self, error: BaseException, count: int) -> None:
        text = error.message if isinstance(error, HeadraceError) else str(error)
        self.counters.refused(count, f"try again later: {text}" if isinstance(error, Overloaded) else text)
