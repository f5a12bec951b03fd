"""All collectors of a project that this process runs: found by what a client brings, made anew when a file changes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.access.secrets import project_secret
from headrace.clock import Clock
from headrace.collect.base import Collector, Outcome, RawEvents, Sent
from headrace.collect.definitions import Definition, load_definitions
from headrace.collect.files import FOLDER, collector_files
from headrace.collect.gate import Arrival, Gate
from headrace.collect.kinds import Where
from headrace.collect.status import COLLECTORS_STATUS, Board, CollectorStatus, Report
from headrace.config import Project
from headrace.errors import ConfigError, HeadraceError, NotFound, Unauthenticated, UsageError
from headrace.log.base import Topic
from headrace.toml_files import Problem, Stamp, secret, stamp_files

LOOK_S = 1.0
REPORT_S = 1.0
SILENT = "the process that runs it does not answer"

logger = logging.getLogger("headrace.collectors")


@dataclass(frozen=True, slots=True)
class _Running:
    """What runs at one moment; replaced as a whole."""

    gates: dict[str, Gate] = field(default_factory=dict)
    by_kind: dict[str, list[Gate]] = field(default_factory=dict)
    by_topic: dict[str, Gate] = field(default_factory=dict)
    """Of type `http`."""
    keys: dict[str, frozenset[bytes]] = field(default_factory=dict)
    """Collector → digests of its keys."""
    disabled: tuple[Definition, ...] = ()
    problems: tuple[Problem, ...] = ()


class Gates:
    """Safe to use from several threads. `reload` keeps the gates of files that did not change, with their counts."""

    def __init__(self, project: Project, collector: Collector, clock: Clock) -> None:
        self._project, self._collector, self._clock = project, collector, clock
        self._lock = threading.Lock()
        self._stamp: Stamp | None = None
        self._running = _Running()
        self.reload()

    # Finding one

    def for_topic(self, topic: str) -> Gate | None:
        """The collector of type `http` that keeps the plain endpoint of a topic, if there is one."""
        return self._running.by_topic.get(topic)

    def collect(self, raw: RawEvents, arrived: Arrival) -> Future[Outcome]:
        """Past that collector, or without one where there is none."""
        gate = self.for_topic(raw.topic)
        return self._collector.collect(raw) if gate is None else gate.collect(raw, arrived)

    def of(self, kind: str, *, key: str | None = None, name: str | None = None) -> Gate:
        """The collector of a kind that a client means: by its write key, by its name if the path has one, or the only
        one there is. `NotFound` with what to write, `Unauthenticated` for a key nobody has."""
        running = self._running
        found = running.by_kind.get(kind, [])
        if name is not None:
            found = [gate for gate in found if gate.name == name]
        if not found:
            raise self._missing(kind, name)
        digest = _digest(key or "")
        admitted = [gate for gate in found if digest in running.keys.get(gate.name, ())]
        open_ones = [gate for gate in found if gate.name not in running.keys]
        fitting = admitted or open_ones
        if not fitting:
            raise Unauthenticated(
                f"this needs a write key of a `{kind}` collector" if not key else "no collector has this write key",
                hint=f"`keys` of {found[0].definition.where} lists those that may",
            )
        if len(fitting) > 1:
            names = ", ".join(f"`{gate.name}`" for gate in fitting)
            raise UsageError(f"several collectors of type `{kind}` fit: {names}", hint="give each its own `keys`")
        return fitting[0]

    def named(self, name: str) -> Gate:
        gate = self._running.gates.get(name)
        if gate is None:
            raise NotFound(f"collector `{name}` does not exist", hint="`headrace collector list` shows those that do")
        return gate

    def again(self, source: str, topic: Topic, sent: Sent) -> Sent:
        """A dead letter that was put right, as the collector it came from wants it; what came to the topic's plain
        endpoint before it had a collector passes the one it has."""
        kind, _, rest = source.partition(" ")
        gate = self._running.gates.get(rest.partition(" ")[0])
        if gate is None or gate.definition.kind.name != kind:
            gate = self.for_topic(topic.name) if kind == "http" else None
        return sent if gate is None else gate.again(topic, sent)

    def all(self) -> list[Gate]:
        return list(self._running.gates.values())

    @property
    def disabled(self) -> tuple[Definition, ...]:
        return self._running.disabled

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._running.problems

    def wait_for(self, detail: str) -> None:
        """Say of those over HTTP that they take events, but wait for something; nothing if they do not any more."""
        for gate in self.all():
            if gate.definition.kind.where == "http":
                gate.counters.becomes("waiting" if detail else "running", detail)

    # Files

    def look(self) -> bool:
        """Reload if a file changed. True if so; what cannot be read now is tried again with the next look."""
        try:
            if stamp_of(self._project) == self._stamp:
                return False
            self.reload()
        except (OSError, HeadraceError) as error:
            logger.warning("collectors cannot be read: %s", error)
            return False
        logger.info("collectors were read again: %s", ", ".join(self._running.gates) or "none")
        return True

    def reload(self) -> None:
        """Read the files: what changed is made anew, what is broken goes on as it was, and is a problem."""
        with self._lock:
            stamp = stamp_of(self._project)
            definitions, problems = load_definitions(self._project)
            self._running = self._made(definitions, problems)
            self._stamp = stamp
        for problem in self._running.problems:
            logger.warning("%s", problem)

    def report(self, process: str, *where: Where) -> Report:
        """What this process says of the collectors it runs."""
        running = [gate.counters.status() for gate in self.all() if gate.definition.kind.where in where]
        return Report(process, os.getpid(), running)

    async def run(self) -> None:
        """Look for changes until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await asyncio.to_thread(self.look)
            except Exception:
                # Nobody would begin it again.
                logger.exception("collectors cannot be read")

    def _made(self, definitions: list[Definition], problems: list[Problem]) -> _Running:
        before = self._running.gates
        gates: dict[str, Gate] = {}
        keys: dict[str, frozenset[bytes]] = {}
        for definition in definitions:
            if not definition.settings.enabled:
                continue
            try:
                digests = frozenset(_digest(secret(key)) for key in definition.settings.keys)
                gate = self._kept(before.get(definition.name), definition)
            except (ConfigError, OSError) as error:
                hint = error.hint if isinstance(error, ConfigError) else None
                message = error.message if isinstance(error, ConfigError) else str(error)
                problems.append(Problem(definition.name, definition.where, 1, message, hint))
                continue
            if digests:
                keys[definition.name] = digests
            gates[definition.name] = gate
        for problem in problems:
            if problem.name in before:
                gates[problem.name] = before[problem.name]
                if problem.name in self._running.keys:
                    keys[problem.name] = self._running.keys[problem.name]
        by_kind: dict[str, list[Gate]] = {}
        by_topic: dict[str, Gate] = {}
        for gate in gates.values():
            by_kind.setdefault(gate.definition.kind.name, []).append(gate)
            if gate.definition.kind.name == "http":
                first = by_topic.setdefault(gate.topic, gate)
                if first is not gate:
                    message = f"topic `{gate.topic}` has the collector `{first.name}` already"
                    problems.append(Problem(gate.name, gate.definition.where, 1, message, "one of type `http` a topic"))
        disabled = tuple(one for one in definitions if not one.settings.enabled)
        return _Running(gates, by_kind, by_topic, keys, disabled, tuple(problems))

    def _kept(self, before: Gate | None, definition: Definition) -> Gate:
        if before is not None and before.definition == definition:
            return before
        # Events over HTTP are spread over all processes that take them; others come to one.
        share = 1.0 / max(1, self._project.settings.server.workers) if definition.kind.where == "http" else 1.0
        gate = Gate(definition, self._collector, self._clock, hash_key(self._project, definition), share)
        if before is not None:
            gate.counters = before.counters
        return gate

    def _missing(self, kind: str, name: str | None) -> NotFound:
        if name is not None:
            return NotFound(
                f"there is no collector `{name}` of type `{kind}`",
                hint="`headrace collector list` shows those there are",
            )
        return NotFound(
            f"no collector of type `{kind}` is set up",
            hint=f'write {FOLDER}/{kind}.toml:  type = "{kind}"  and  topic = "…"',
        )


def hash_key(project: Project, definition: Definition) -> bytes:
    """Of a gate's hashes; made only where something is hashed."""
    settings = definition.settings
    if not settings.privacy.hash and settings.enrich.address_as != "hash":
        return b""
    given = settings.privacy.key
    return secret(given).encode() if given else project_secret(project, "privacy")


def all_statuses(gates: Gates, board: Board) -> dict[str, CollectorStatus]:
    """Of each file by its name, in all processes."""
    found: dict[str, CollectorStatus] = {}
    for gate in gates.all():
        own = gate.counters.status()
        if gate.definition.kind.where != "http":
            # It runs elsewhere; here it is only for test events.
            own = msgspec.structs.replace(own, state="disabled")
        status = board.status(gate.name, own)
        if status.state == "disabled":
            status = msgspec.structs.replace(status, state="waiting", detail=SILENT)
        found[gate.name] = status
    for definition in gates.disabled:
        found[definition.name] = CollectorStatus(name=definition.name, state="disabled")
    for problem in gates.problems:
        found.setdefault(problem.name, CollectorStatus(name=problem.name, state="failed", detail=problem.message))
    return dict(sorted(found.items()))


def received(gates: Gates, board: Board) -> dict[str, int]:
    """How many events each collector has."""
    return {name: status.received for name, status in all_statuses(gates, board).items()}


async def report_statuses(gates: Gates, process: str, *where: Where, call: Callable[[str, Any], Any]) -> None:
    """Tell the server every second, until cancelled. While it is away nobody listens, and nothing is lost: counts are
    totals."""
    while True:
        try:
            body = msgspec.to_builtins(gates.report(process, *where))
            await asyncio.to_thread(call, COLLECTORS_STATUS, body)
        except HeadraceError:
            pass
        except Exception:
            # Without reports everybody would think that nothing is collected any more.
            logger.exception("what the collectors do could not be told")
        await asyncio.sleep(REPORT_S)


def stamp_of(project: Project) -> Stamp:
    """Changes when a file of `collectors/` does."""
    return stamp_files(collector_files(project))


def _digest(key: str) -> bytes:
    # Looked up by digest: how long that takes says nothing about a key.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
