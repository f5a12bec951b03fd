"""What a listener or a puller works with: where its events go, where it has got to, how it says how it is."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from headrace.clock import Clock
from headrace.collect.base import Destination, Outcome, Rejection, Sent, sent_objects
from headrace.collect.columns import Columns
from headrace.collect.decode import EventCollector
from headrace.collect.definitions import CollectorSettings, Definition
from headrace.collect.gate import Arrival, Gate
from headrace.collect.gates import hash_key
from headrace.collect.outlet import Outlet, Stopped
from headrace.collect.poison import Nowhere, described, find_poison, is_poison, only_rows, replaced, text_of
from headrace.collect.status import Counters, waiting_for_topic
from headrace.config import Project
from headrace.errors import NotFound, Overloaded
from headrace.log.base import Log, Topic, TopicSpec
from headrace.log.dead_letters import DeadLetter, bury
from headrace.types import DataType

T = TypeVar("T")
S = TypeVar("S", bound=CollectorSettings)

logger = logging.getLogger("headrace.listeners")

NOTHING = Outcome(0)
LOOK_S = 0.5


class Feed:
    """One running collector. Its events are written one call after the other, by a thread of its own."""

    def __init__(self, project: Project, definition: Definition, log: Log, clock: Clock, counters: Counters | None):
        self.project, self.definition, self.clock = project, definition, clock
        self._stopping = threading.Event()
        self._outlet = Outlet(log, definition.name, self._stopping, self._log_says)
        self.gate = self._gate(self._outlet)
        if counters is not None:
            self.gate.counters = counters
        self.counters = self.gate.counters
        self._thread = ThreadPoolExecutor(1, f"collector-{definition.name}")
        self._before = self.counters.state, self.counters.detail

    def _gate(self, to: Destination) -> Gate:
        # How many there are at once is decided here, by their bytes: not by who sends them.
        limits = msgspec.structs.replace(self.project.settings.collect, max_events=1 << 31)
        collector = EventCollector(to, self.clock, limits)
        gate = Gate(self.definition, collector, self.clock, hash_key(self.project, self.definition))
        gate.patient = True
        return gate

    def settings(self, type_: type[S]) -> S:
        return self.definition.settings_as(type_)

    async def cursor(self) -> Any:
        """Where the collector had got to, None at its very beginning. Called first, and once. Waits for the topic:
        better not to take anything than not to know what to do with it."""
        found = await self.call(self._outlet.open)
        while (missing := await self.call(self._missing_topic)) is not None:
            self.waiting(missing)
            await asyncio.sleep(LOOK_S)
        return found

    def _missing_topic(self) -> str | None:
        """What to say of a topic that is not there."""
        try:
            self._outlet.topic(self.gate.topic)
        except NotFound:
            return waiting_for_topic(self.gate.topic)
        return None

    def open_log(self) -> None:
        """As `cursor`, for a collector that has neither a cursor nor one topic."""
        self._outlet.open()

    def topic(self, name: str) -> Topic:
        return self._outlet.topic(name)

    def create_topic(self, spec: TopicSpec) -> Topic:
        return self._outlet.create_topic(spec)

    def take(self, events: Sent, arrived: Arrival, topic: str) -> Outcome:
        """Into any topic. In the writing thread (`call`)."""
        return self._take(events, arrived, topic)

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Events that no topic can take. In the writing thread (`call`)."""
        if self.gate.settings.privacy.any:
            # Nobody can say what is in them.
            letters = [replace(letter, payload=b"") for letter in letters]
        self._outlet.append([bury(letters)])
        rejected = tuple(Rejection(number, letter.reason, None) for number, letter in enumerate(letters))
        size = sum(len(letter.payload) for letter in letters)
        self.counters.took(Outcome(0, rejected=rejected), len(letters), size)

    def column_type(self, field: str) -> DataType | None:
        """Of the column that a field goes to; None if the topic has none for it."""
        spec = self._outlet.topic(self.gate.topic).spec
        return next((one.type for one in spec.key + spec.value if one.name.casefold() == field.casefold()), None)

    def key_column(self) -> str | None:
        """The topic's key, in small letters, if it is one column."""
        key = self._outlet.topic(self.gate.topic).spec.key
        return key[0].name.casefold() if len(key) == 1 else None

    async def put(self, events: Sent | Columns, arrived: Arrival, cursor: Any = None) -> Outcome:
        """In the log, durably, when this returns, together with the cursor if there is one. Waits for as long as that
        takes: a collector that does not read on meanwhile needs to do nothing else."""
        return await self.call(self._put, events, arrived, cursor)

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Something that blocks, in the writing thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def running(self, detail: str) -> None:
        self.counters.becomes("running", detail)
        self._before = ("running", detail)

    def waiting(self, detail: str) -> None:
        """For something outside that will come by itself."""
        self.counters.becomes("waiting", detail)
        self._before = ("waiting", detail)

    def stop(self) -> None:
        """Whatever waits for the log gives up."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    async def close(self, seconds: float) -> None:
        """What was put before is written, if the log takes it within this time."""
        ended = asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        await asyncio.wait([ended], timeout=seconds)
        self.stop()
        await ended
        self._outlet.close()

    def _put(self, events: Sent | Columns, arrived: Arrival, cursor: Any) -> Outcome:
        if cursor is not None:
            self._outlet.advance(cursor)
        outcome = self._take(events, arrived) if _count(events) else NOTHING
        self._outlet.settle()
        return outcome

    def _take(self, events: Sent | Columns, arrived: Arrival, topic: str | None = None) -> Outcome:
        before = self._outlet.written
        try:
            return self._take_patiently(events, arrived, topic)
        except Exception as error:
            if isinstance(error, Stopped) or not is_poison(error):
                raise
            logger.exception("collector `%s` breaks at its events", self.gate.name)
            self.counters.failed(f"breaks at its events: {described(error)}")
            if self._outlet.written > before:
                # They are in the log: what broke came after it.
                return NOTHING
            return self._take_apart(events, arrived, topic)

    def _take_apart(self, events: Sent | Columns, arrived: Arrival, topic: str | None) -> Outcome:
        """All but those that break it; they are dead letters, and so are all where none of them is it alone."""
        sent = events if isinstance(events, Sent) else sent_objects(events.objects(), events.originals)
        trial = self._gate(Nowhere(self._outlet))
        attempt = replace(arrived, position=None)
        poison = find_poison(
            len(sent.events), lambda rows: trial.take(only_rows(sent, rows), attempt, topic=topic).result()
        )
        try:
            return self._take_patiently(replaced(sent, poison), arrived, topic)
        except Exception as error:
            if isinstance(error, Stopped) or not is_poison(error):
                raise
            return self._bury(sent, arrived, topic, described(error))

    def _bury(self, sent: Sent, arrived: Arrival, topic: str | None, why: str) -> Outcome:
        name, reason = topic or self.gate.topic, f"the event breaks the collector: {why}"
        source = f"{self.definition.kind.name} {self.gate.name}"
        # Nobody can say what is in them.
        hidden = self.gate.settings.privacy.any
        rows = range(len(sent.events))
        letters = [DeadLetter(name, reason, source, None, b"" if hidden else text_of(sent, row)) for row in rows]
        self._outlet.append([bury(letters)])
        outcome = Outcome(0, rejected=tuple(Rejection(row, reason, None) for row in rows))
        self.counters.took(outcome, len(rows), arrived.size)
        return outcome

    def _take_patiently(self, events: Sent | Columns, arrived: Arrival, topic: str | None) -> Outcome:
        while True:
            try:
                if isinstance(events, Columns):
                    return self.gate.take_columns(events, arrived).result()
                return self.gate.take(events, arrived, topic=topic).result()
            except Overloaded as error:
                # A quota: nobody is told, so nothing is taken meanwhile.
                self._log_says(error.message)
                if self._stopping.wait(error.retry_after):
                    raise Stopped from error

    def _log_says(self, why: str | None) -> None:
        """The log, or a rule, makes it wait; None when it goes on."""
        if why is None:
            self.counters.becomes(*self._before)
        else:
            self.counters.becomes("waiting", why)


def _count(events: Sent | Columns) -> int:
    return events.rows if isinstance(events, Columns) else len(events.events)
