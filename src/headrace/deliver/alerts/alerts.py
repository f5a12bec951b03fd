"""The project's alerts at work: look, remember, tell.

A change of state is in the log before anybody is told, and that somebody took it is in the log before the next is told
to them. Whoever starts anew goes on from there: nothing is told twice to who took it, nothing that is not told is lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from headrace.clock import Clock
from headrace.collect.base import Collector
from headrace.config import Project
from headrace.deliver.alerts.counts import Increase
from headrace.deliver.alerts.definitions import Definition, Destination, alert_files, load_alerts
from headrace.deliver.alerts.sending import Sender
from headrace.deliver.alerts.state import (
    ALERTS_SPEC,
    Instance,
    Notice,
    Reading,
    State,
    Told,
    append_instances,
    message,
    read_instances,
    step,
)
from headrace.errors import HeadraceError, NotFound
from headrace.log.base import Log
from headrace.toml_files import Problem, Stamp, stamp_files

LOOK_S = 1.0
WORST_FIRST: tuple[State, ...] = ("firing", "pending", "resolved", "ok")
Key = tuple[str, str]
Measure = Callable[[], Mapping[str, Reading]]
"""Every subject there is, and what it measures now."""

logger = logging.getLogger("headrace.alerts")


@dataclass(frozen=True, slots=True)
class DestinationStatus:
    place: Destination
    waiting: int
    """Notices that it has not taken yet."""
    last: Told | None
    error: str | None
    """What is wrong with telling it now."""


@dataclass(frozen=True, slots=True)
class AlertStatus:
    definition: Definition
    state: State | Literal["disabled"]
    """That of its worst subject, or `disabled`."""
    instances: tuple[Instance, ...]
    """Of subjects that are or were too much, and of the one it names."""
    values: Mapping[str, float | None]
    """What they measure now."""
    destinations: tuple[DestinationStatus, ...]
    problem: str | None


class Alerts:
    """One thread that looks, from `start` until `close`. Safe to use from several threads."""

    def __init__(
        self,
        project: Project,
        log: Log,
        clock: Clock,
        collector: Collector,
        secret: bytes | None,
        measures: Mapping[str, Measure],
    ) -> None:
        self._project, self._log, self._clock, self._measures = project, log, clock, measures
        self._lock = threading.RLock()
        self._stamp: Stamp | None = None
        self._definitions: dict[str, Definition] = {}
        self.problems: tuple[Problem, ...] = ()
        self._instances = read_instances(log)
        self._readings: dict[Key, Reading] = {}
        self._missing: set[str] = set()
        self._counts: dict[Key, Increase] = {}
        seconds = project.settings.collect.callback_seconds
        self._sender = Sender(collector, clock, seconds, secret, self._over)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-alerts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._sender.close()

    # Looking

    def look(self) -> None:
        """Once: files, what is measured, what follows from it, and what is to be told."""
        with self._lock:
            self._load()
            known: dict[str, Mapping[str, Reading]] = {}
            changed: list[Instance] = []
            gone: list[Key] = [key for key in self._instances if self._is_dropped(key[0])]
            now_ms = self._clock.now_ms()
            self._readings, self._missing = {}, set()
            for definition in self._definitions.values():
                if not definition.settings.enabled:
                    continue
                for subject, reading in self._read(definition, known):
                    key = (definition.name, subject)
                    before = self._instances.get(key, Instance(alert=definition.name, subject=subject))
                    after = step(before, definition, reading, now_ms, self._project.name)
                    if reading is None and after.state in ("ok", "resolved") and not after.outbox:
                        gone += [key] if key in self._instances else []
                    elif after is not before:
                        changed.append(after)
            self._write(changed, gone)
        self._tell()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.look()
            except (HeadraceError, OSError) as error:
                logger.warning("alerts could not be looked at: %s", error)
            except Exception:
                logger.exception("alerts could not be looked at")

    def _load(self) -> None:
        stamp = stamp_files(alert_files(self._project))
        if stamp == self._stamp:
            return
        found, problems = load_alerts(self._project)
        broken = {problem.name for problem in problems}
        kept = {name: one for name, one in self._definitions.items() if name in broken}
        if self._stamp is not None:
            logger.info("alerts were read again: %s", ", ".join(one.name for one in found) or "none")
        self._definitions = dict(sorted((kept | {one.name: one for one in found}).items()))
        self._stamp, self.problems = stamp, tuple(problems)
        for problem in problems:
            logger.warning("%s", problem)

    def _is_dropped(self, alert: str) -> bool:
        """Its file is gone or says `enabled = false`; not if it cannot be read."""
        definition = self._definitions.get(alert)
        if definition is None:
            return all(problem.name != alert for problem in self.problems)
        return not definition.settings.enabled

    def _read(
        self, definition: Definition, known: dict[str, Mapping[str, Reading]]
    ) -> Iterator[tuple[str, Reading | None]]:
        """Each subject with its reading, and those that are remembered with none if they are no more."""
        watch = definition.watch.name
        if watch not in known:
            known[watch] = self._measured(watch)
        readings = known[watch]
        only = definition.subject.casefold()
        found = {name: one for name, one in readings.items() if not only or name.casefold() == only}
        if only and not found:
            self._missing.add(definition.name)
        for subject, reading in found.items():
            counted = self._counted(definition, subject, reading) if definition.watch.counted else reading
            self._readings[definition.name, subject] = counted
            yield subject, counted
        for alert, subject in list(self._instances):
            if alert == definition.name and subject not in found:
                yield subject, None

    def _measured(self, watch: str) -> Mapping[str, Reading]:
        try:
            return self._measures[watch]()
        except HeadraceError as error:
            logger.warning("`%s` cannot be measured: %s", watch, error)
            return {subject: Reading(None) for alert, subject in self._instances if self._watches(alert, watch)}

    def _watches(self, alert: str, watch: str) -> bool:
        definition = self._definitions.get(alert)
        return definition is not None and definition.watch.name == watch

    def _counted(self, definition: Definition, subject: str, reading: Reading) -> Reading:
        if reading.value is None:
            return reading
        counted = self._counts.setdefault((definition.name, subject), Increase())
        now, within = self._clock.monotonic(), definition.within_ms / 1000
        grown = counted.over(reading.value, now, within, definition.settings.above)
        return msgspec.structs.replace(reading, value=grown)

    def _write(self, changed: list[Instance], gone: list[Key]) -> None:
        """Durable first, then known."""
        if not changed and not gone:
            return
        self._log.create_topic(ALERTS_SPEC)
        self._log.append([append_instances(changed, gone, self._clock.now_ms())]).result()
        for key in gone:
            self._instances.pop(key, None)
        for one in changed:
            before = self._instances.get(one.key)
            self._instances[one.key] = one
            if one.state == "firing" and (before is None or before.state != "firing"):
                logger.error("alert `%s` fires: %s, %g %s", one.alert, one.subject, one.value, one.detail)
            elif one.state == "resolved" and (before is None or before.state != "resolved"):
                logger.info("alert `%s` is over: %s", one.alert, one.subject)

    # Telling

    def _tell(self) -> None:
        """The oldest notice of each instance to each destination: what came later waits for it."""
        with self._lock:
            heads: dict[tuple[Key, str], Notice] = {}
            for key, instance in self._instances.items():
                for notice in instance.outbox:
                    heads.setdefault((key, notice.to), notice)
        for (key, to), notice in heads.items():
            place = self._place(key[0], to)
            if place is not None and place.webhook:
                # That it was taken is noted by another thread: one that has been since we looked is told no more.
                with self._lock:
                    if key in self._instances and notice in self._instances[key].outbox:
                        self._sender.send(notice, place)
            elif place is not None:
                self._sender.send(notice, place)
            elif not self._is_dropped(key[0]) and key[0] in self._definitions:
                self._over(notice, 0, "the file no longer names it")

    def _place(self, alert: str, to: str) -> Destination | None:
        definition = self._definitions.get(alert)
        places = definition.settings.to if definition is not None else []
        return next((place for place in places if place.key == to), None)

    def _over(self, notice: Notice, attempts: int, error: str | None) -> None:
        with self._lock:
            now_ms = self._clock.now_ms()
            for instance in list(self._instances.values()):
                if notice in instance.outbox:
                    left = tuple(one for one in instance.outbox if one != notice)
                    told = instance.told | {notice.to: Told(notice.id, now_ms, attempts, error)}
                    self._write([msgspec.structs.replace(instance, outbox=left, told=told)], [])
        if error is not None:
            logger.warning("nobody took alert `%s`: %s", notice.id, error)

    def test(self, name: str) -> list[tuple[Destination, str | None]]:
        """Tell every destination that this is a test: what went wrong with each."""
        definition = self.status(name).definition
        now_ms = self._clock.now_ms()
        subject = definition.subject or "test"
        value = definition.settings.above + 1
        trial = Instance(alert=name, subject=subject, since_ms=now_ms, value=value, detail="this is a test")
        said = message(trial, definition, now_ms, self._project.name, state="test")
        said["id"] = f"{name}/{subject}/{now_ms}/test"
        body = msgspec.json.encode(said).decode()
        return [(place, self._sender.try_once(said["id"], place, body)) for place in definition.settings.to]

    # Knowing

    def statuses(self) -> list[AlertStatus]:
        with self._lock:
            self._load()
            return [self._status(definition) for definition in self._definitions.values()]

    def status(self, name: str) -> AlertStatus:
        for status in self.statuses():
            if status.definition.name == name:
                return status
        broken = next((problem for problem in self.problems if problem.name == name), None)
        if broken is not None:
            raise NotFound(f"alert `{name}` cannot be read: {broken}")
        raise NotFound(f"alert `{name[:100]}` does not exist", hint="`headrace alert list` shows those that do")

    def _status(self, definition: Definition) -> AlertStatus:
        name = definition.name
        instances = [one for one in self._instances.values() if one.alert == name]
        known = {one.subject for one in instances}
        named = [key[1] for key in self._readings if key[0] == name and definition.subject]
        instances += [Instance(alert=name, subject=subject) for subject in named if subject not in known]
        states = [one.state for one in instances]
        worst = next((state for state in WORST_FIRST if state in states), WORST_FIRST[-1])
        broken = next((problem for problem in self.problems if problem.name == name), None)
        problem = None if broken is None else str(broken)
        if problem is None and name in self._missing:
            problem = f"there is no {definition.watch.of} `{definition.subject}`"
        return AlertStatus(
            definition,
            worst if definition.settings.enabled else "disabled",
            tuple(sorted(instances, key=lambda one: (-one.since_ms, one.subject))),
            {subject: reading.value for (alert, subject), reading in self._readings.items() if alert == name},
            tuple(self._destination(place, instances) for place in definition.settings.to),
            problem,
        )

    def _destination(self, place: Destination, instances: list[Instance]) -> DestinationStatus:
        waiting = [notice for one in instances for notice in one.outbox if notice.to == place.key]
        told = [one.told[place.key] for one in instances if place.key in one.told]
        last = max(told, key=lambda one: one.at_ms, default=None)
        errors = [error for notice in waiting if (error := self._sender.trouble(notice)[1]) is not None]
        return DestinationStatus(place, len(waiting), last, errors[0] if errors else None)
