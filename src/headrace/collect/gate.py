"""The front of one running collector: every protocol hands its events in here, so its rules hold for all of them, and
what became of them is counted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from headrace.clock import Clock
from headrace.collect.base import Collector, Outcome, RawEvents, Sent, sent_objects
from headrace.collect.columns import Columns
from headrace.collect.decode import then
from headrace.collect.definitions import CollectorSettings, Definition
from headrace.collect.quota import Quota
from headrace.collect.rules.base import Rules
from headrace.collect.shedding import Shedding, numbered, only
from headrace.collect.status import Counters
from headrace.errors import HeadraceError, Overloaded, UsageError
from headrace.log.base import Acks, Topic


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
    """Bytes of all the events, decompressed, where that is known."""
    idempotency_key: str | None = None
    """Gives event *i* the id `KEY/i`, unless it brings its own."""
    position: Callable[[int], str] | None = None
    """Where event *i* was in its source, for the dead letters."""
    visitor: str = ""
    session: str = ""
    """The visit it belongs to (`visits`), as far as it is known."""


class Gate:
    """Safe to use from several threads."""

    def __init__(
        self, definition: Definition, collector: Collector, clock: Clock, key: bytes = b"", share: float = 1.0
    ) -> None:
        """`key` is that of its hashes; `share` this process's part of its quotas."""
        self.definition = definition
        self._key = key
        self.has_rules = definition.settings.has_rules
        """Whether events must be looked at one by one."""
        self.patient = False
        """Whether whoever hands events in keeps what is too much, and brings it again: then none is refused."""
        self._rules: dict[str, Rules] = {}
        self.counters = Counters(definition.name, clock)
        self._collector, self._clock = collector, clock
        settings = definition.settings
        self._quota = Quota(settings.quota, clock, share) if settings.quota.any else None
        self._shedding = None if settings.shed.policy == "none" else Shedding(settings.shed, clock, share)

    @property
    def has_quota(self) -> bool:
        return self._quota is not None

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
        raw = RawEvents(
            topic=topic or self.topic,
            sent=events,
            size=arrived.size,
            idempotency_key=arrived.idempotency_key,
            acks=acks,
            position=arrived.position,
        )
        return self.collect(raw, arrived)

    def take_columns(self, columns: Columns, arrived: Arrival) -> Future[Outcome]:
        """The same for events that come as columns. They stay so, unless a rule must look at each."""
        if self.has_rules or self._quota is not None or self._shedding is not None:
            return self.take(sent_objects(columns.objects(), columns.originals), arrived)
        try:
            future = self._collector.collect_columns(self.topic, columns, self._source(arrived), arrived.position)
        except HeadraceError as error:
            self._refused(error, columns.rows)
            raise
        future.add_done_callback(lambda done: self._done(done, columns.rows, arrived.size))
        return future

    def _source(self, arrived: Arrival) -> str:
        """For the dead letters."""
        return f"{self.definition.kind.name} {self.name} {arrived.address}".rstrip()

    def collect(self, raw: RawEvents, arrived: Arrival) -> Future[Outcome]:
        """The same for a body that is read by the topic's codec."""
        count = 1
        try:
            if raw.form == "bytes" and raw.sent is None:
                self._check_bytes()
            else:
                raw = self._collector.read(raw)
                assert raw.sent is not None
                count = len(raw.sent.events)
            self._admit(raw, arrived)
            kept = None if self._shedding is None or raw.sent is None else self._shedding.kept(raw.sent.events)
            if kept is not None:
                raw = only(raw, kept)
            future = self._collector.collect(self._ruled(raw, arrived))
        except HeadraceError as error:
            self._refused(error, count)
            raise
        if kept is not None:
            future = then(future, lambda outcome: numbered(outcome, kept, count))
        future.add_done_callback(lambda done: self._done(done, count, arrived.size))
        return future

    def admit_bytes(self, records: int, arrived: Arrival) -> None:
        """For a protocol whose records are bytes, which it writes itself, and counts. Raises as `collect` does."""
        try:
            self._check_bytes()
            if self._quota is not None:
                self._quota.take([None] * records, arrived.size, arrived.key or arrived.address)
        except HeadraceError as error:
            self._refused(error, records)
            raise

    def _admit(self, raw: RawEvents, arrived: Arrival) -> None:
        """`Overloaded` beyond its quotas."""
        if self._quota is not None:
            events = (None,) if raw.sent is None else raw.sent.events
            self._quota.take(events, arrived.size or len(raw.body), arrived.key or arrived.address)

    def _ruled(self, raw: RawEvents, arrived: Arrival) -> RawEvents:
        """As its rules want it."""
        what = f"{self.definition.kind.name} {self.name}"
        if not self.has_rules or raw.sent is None:
            return replace(raw, source=self._source(arrived))
        rules = self._rules_for(self._collector.topic(raw.topic))
        address = rules.enriching.sender(arrived.address, arrived.forwarded)
        now = self._clock.now_ms()
        sent = rules.apply(raw.sent, address, arrived.user_agent, now, arrived.visitor, arrived.session)
        # Where addresses are not to be known, a dead letter does not tell them either.
        told = rules.enriching.told(address) if not self.settings.privacy.any or self.settings.enrich.address else ""
        return replace(raw, sent=sent, source=f"{what} {told or ''}".rstrip())

    def misfit(self, topic: Topic, event: dict[str, Any]) -> str | None:
        """What its rules say against a dead letter that was put right."""
        return self._rules_for(topic).misfit(event) if self.has_rules else None

    def _rules_for(self, topic: Topic) -> Rules:
        """Made anew when the topic was altered, or dropped and made again."""
        rules = self._rules.get(topic.name)
        if rules is None or rules.topic != topic:
            found = self.settings
            rules = Rules(self.name, topic, self._key, found.enrich, found.validate, found.privacy)
            self._rules[topic.name] = rules
        return rules

    def _check_bytes(self) -> None:
        if self.has_rules:
            raise UsageError(
                f"collector `{self.name}` has rules about fields, which bytes do not have",
                hint=f"send JSON, or take the rules out of {self.definition.where}",
            )

    def _done(self, done: Future[Outcome], count: int, size: int) -> None:
        error = done.exception()
        if error is None:
            self.counters.took(done.result(), count, size)
        else:
            self._refused(error, count)

    def _refused(self, error: BaseException, count: int) -> None:
        if self.patient and isinstance(error, Overloaded):
            return
        text = error.message if isinstance(error, HeadraceError) else str(error)
        self.counters.refused(count, f"try again later: {text}" if isinstance(error, Overloaded) else text)
