"""Sink groups: which sink of several delivers next."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.collect.agents.options import Option, Options


@dataclass(frozen=True, slots=True)
class ProcessorKind:
    names: tuple[str, ...]
    summary: str
    options: tuple[Option, ...]

    @property
    def name(self) -> str:
        return self.names[0]


PROCESSORS = (
    ProcessorKind(("default",), "One sink by itself.", ()),
    ProcessorKind(
        ("failover", "org.apache.flume.sink.FailoverSinkProcessor"),
        "The sink with the highest priority that works.",
        (
            Option("priority.*", "integer", None, "Sink → its priority; a larger number comes first."),
            Option("maxpenalty", "integer", 30_000, "Milliseconds that a failed sink is left alone, at most.", least=0),
        ),
    ),
    ProcessorKind(
        ("load_balance", "org.apache.flume.sink.LoadBalancingSinkProcessor"),
        "The sinks in turns.",
        (
            Option("selector", "text", "round_robin", "How.", choices=("round_robin", "random")),
            Option("backoff", "flag", False, "Leave a failed sink alone for a while, longer each time."),
            Option("selector.maxTimeOut", "integer", 30_000, "Milliseconds of that, at most.", least=0),
        ),
    ),
)
BY_NAME = {name.lower(): kind for kind in PROCESSORS for name in kind.names}

FIRST_PENALTY_S = 1.0


class Processor(ABC):
    """For one thread. Every turn tries the sinks of `order`, until one delivers; it is told what became of each."""

    @abstractmethod
    def order(self) -> Sequence[str]:
        """The sinks to try now. All are on their penalty bench if there is none."""

    def succeeded(self, sink: str) -> None:  # noqa: B027 - not all remember
        """It delivered, or had nothing to deliver."""

    def failed(self, sink: str) -> None:  # noqa: B027
        """It could not deliver."""


class Single(Processor):
    def __init__(self, sink: str) -> None:
        self._order = (sink,)

    def order(self) -> Sequence[str]:
        return self._order


class Bench:
    """Failed sinks sit here, twice as long each time."""

    def __init__(self, now: Callable[[], float], longest_s: float) -> None:
        self._now, self._longest_s = now, longest_s
        self._until: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def add(self, sink: str) -> None:
        failures = self._failures[sink] = self._failures.get(sink, 0) + 1
        self._until[sink] = self._now() + min(self._longest_s, FIRST_PENALTY_S * 2 ** min(failures - 1, 20))

    def clear(self, sink: str) -> None:
        self._until.pop(sink, None)
        self._failures.pop(sink, None)

    def has(self, sink: str) -> bool:
        return self._until.get(sink, 0.0) > self._now()


class Failover(Processor):
    def __init__(self, priorities: Mapping[str, int], longest_s: float, now: Callable[[], float]) -> None:
        self._by_priority = sorted(priorities, key=lambda sink: -priorities[sink])
        self._bench = Bench(now, longest_s)

    def order(self) -> Sequence[str]:
        return [sink for sink in self._by_priority if not self._bench.has(sink)]

    def succeeded(self, sink: str) -> None:
        self._bench.clear(sink)

    def failed(self, sink: str) -> None:
        self._bench.add(sink)


class LoadBalance(Processor):
    def __init__(
        self, sinks: Sequence[str], at_random: bool, backoff_s: float | None, now: Callable[[], float]
    ) -> None:
        self._sinks, self._at_random = list(sinks), at_random
        self._bench = Bench(now, backoff_s) if backoff_s is not None else None
        self._turn = 0

    def order(self) -> Sequence[str]:
        able = [sink for sink in self._sinks if self._bench is None or not self._bench.has(sink)]
        if self._at_random:
            random.shuffle(able)
            return able
        self._turn += 1
        first = self._turn % len(able) if able else 0
        return able[first:] + able[:first]

    def succeeded(self, sink: str) -> None:
        if self._bench is not None:
            self._bench.clear(sink)

    def failed(self, sink: str) -> None:
        if self._bench is not None:
            self._bench.add(sink)


def make_processor(kind: str, sinks: Sequence[str], options: Options, now: Callable[[], float]) -> Processor:
    match kind:
        case "failover":
            given = options.below("priority.*")
            priorities = {sink: int(given.get(sink, -number)) for number, sink in enumerate(sinks)}
            return Failover(priorities, options.integer("maxpenalty") / 1000, now)
        case "load_balance":
            longest = options.integer("selector.maxTimeOut") / 1000 if options.flag("backoff") else None
            return LoadBalance(sinks, options.text("selector") == "random", longest, now)
        case _:
            return Single(sinks[0])
