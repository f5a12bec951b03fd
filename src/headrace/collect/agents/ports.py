"""What an agent finds where it runs: a clock, a folder for what it keeps, and the way to Headrace's log, if there is
one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headrace.clock import Clock, SystemClock
from headrace.collect.agents.base import Event

Brokers = Literal["auto", "kafka", "log"]


@dataclass(frozen=True, slots=True)
class Written:
    accepted: int
    duplicates: int = 0
    rejected: int = 0
    """These are dead letters: nothing is lost, and sending them again would change nothing."""


class LogWriter(ABC):
    """Headrace's log, as a sink sees it. Safe to use from several threads."""

    @abstractmethod
    def write(self, topic: str, events: Sequence[Event]) -> Written:
        """Return when all of them are durable, each id once. A topic that is not there is made: records of bytes.
        Raises what the log does; then nothing was taken, or the same ids may be sent again."""

    @abstractmethod
    def open_topic(self, topic: str, make: bool) -> None:
        """Raises what keeps events out of it, whatever they are: `NotFound` if it is not there and not to be made,
        `UsageError` if that is no name, `Refused` or `Conflict` if it is Headrace's own or a query's."""

    @abstractmethod
    def bury(self, topic: str, events: Sequence[Event], reason: str) -> None:
        """Make dead letters of them, durable when it returns, as of the sink's own topic."""

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ports:
    clock: Clock = field(default_factory=SystemClock)
    folder: Path | None = None
    """Where channels and positions are kept that do not say where; Flume's `~/.flume` if there is no project."""
    open_log: Callable[[], LogWriter] | None = None
    brokers: Brokers = "auto"
    """Where Kafka sinks write: `kafka`, the `log`, or as it turns out: see `sinks/kafka.py`."""

    def home(self, agent: str) -> Path:
        return self.folder / agent if self.folder is not None else Path("~/.flume").expanduser()
