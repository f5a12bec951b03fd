"""What the parts of an agent promise each other.

A *source* gives events to one or more *channels*, a *sink* takes them from one channel to the next hop: Kafka, the
log, another agent. In between stand transactions:

- What a source put is in all its (required) channels, or in none; only then does the source move on (`taken`) or
  acknowledge.
- An event leaves its channel only when the next hop has it: `deliver` returned. If it raised, all events of the
  transaction are in the channel again, in their order, at its head.
- A channel is bounded. A full one makes its sources wait, and whoever sends to them.

So an agent that is killed loses nothing but what was in a memory channel, and may send again what it had sent. A
source that can gives each event an `id` that is the same when it is read again; Headrace's log keeps an id once
(contract 11), so what comes from files comes exactly once. Other targets get it at least once.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import msgspec

from headrace.clock import Clock
from headrace.errors import HeadraceError

Role: TypeAlias = Literal["source", "channel", "sink"]
Headers: TypeAlias = dict[str, str]
NO_HEADERS: Headers = {}


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Headers are shared between events: whoever changes them makes new ones."""

    body: bytes
    headers: Headers = NO_HEADERS
    id: str | None = None
    origin: str = ""
    """Where its source found it, for people: a place, or, if it ends with a colon, a file, in which the second part of
    the id is the offset. So all lines of a file share it."""

    def with_headers(self, more: Mapping[str, str]) -> Event:
        return Event(self.body, {**self.headers, **more}, self.id, self.origin)

    @property
    def place(self) -> str:
        """`FILE:OFFSET`, `TOPIC:PARTITION:OFFSET`; its id where nobody knows more."""
        if not self.origin.endswith(":") or self.id is None:
            return self.origin or self.id or ""
        return self.origin + self.id.split(":")[1]


class AgentError(HeadraceError):
    """A component cannot do its work now; it is tried again."""

    code, status = "agent", 503


class ChannelFull(AgentError):
    code = "channel_full"


class Transaction(ABC):
    """For one thread. Leaving the `with` commits, an exception rolls back."""

    @abstractmethod
    def put(self, events: Sequence[Event]) -> None:
        """`ChannelFull` if there is no room for them within the channel's patience, or never will be."""

    @abstractmethod
    def take(self, most: int) -> list[Event]:
        """Up to so many of the oldest; waits a moment if there are none."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.rollback()
            return
        try:
            self.commit()
        except BaseException:
            self.rollback()
            raise


class Channel(ABC):
    """Safe to use from several threads."""

    name: str
    transaction_capacity: int
    """Most events of one transaction."""

    @abstractmethod
    def transaction(self) -> Transaction: ...

    @abstractmethod
    def size(self) -> int:
        """Events that nobody has taken for good."""

    @abstractmethod
    def capacity(self) -> int: ...

    def wake(self) -> None:  # noqa: B027 - most have nobody to wake
        """Let go whoever waits in a transaction: the agent stops."""

    def close(self) -> None:  # noqa: B027
        """After all sources and sinks have stopped."""


Put: TypeAlias = Callable[[Sequence[Event]], None]
"""Into the channels; raises `AgentError` if they do not have them: but for the first so many that its `taken` says."""


def left_over(events: Sequence[Event], error: AgentError) -> Sequence[Event]:
    """What is still to be put after that error."""
    return events[int(error.data.get("taken", 0)) :]


class PollingSource(ABC):
    """Is asked for events, in a thread of its own."""

    @abstractmethod
    def poll(self) -> list[Event]:
        """What is there now, within a moment; at most a batch. Called again after an error, and after `taken` only."""

    def taken(self) -> None:  # noqa: B027
        """The channels have what `poll` gave last: remember how far that was."""

    def wake(self) -> None:  # noqa: B027
        """Make a `poll` that waits return: the agent stops. Called from another thread."""

    def close(self) -> None:  # noqa: B027
        """In the source's own thread, once, at the end."""

    @property
    def done(self) -> bool:
        """It will never have more."""
        return False


class ListeningSource(ABC):
    """Others come to it, in threads of its own."""

    @abstractmethod
    def start(self, put: Put) -> None:
        """`AgentError` if it cannot listen."""

    @abstractmethod
    def stop(self) -> None:
        """Whoever is being answered is answered first."""

    @property
    def port(self) -> int:
        """Where it listens, if on a port."""
        return 0


class Sink(ABC):
    """For one thread."""

    batch_size: int = 100

    def start(self) -> None:  # noqa: B027
        """`AgentError` if it cannot work yet: it is tried again."""

    @abstractmethod
    def deliver(self, events: Sequence[Event]) -> None:
        """Return when the next hop has all of them, raise otherwise."""

    def idle(self) -> None:  # noqa: B027
        """Nothing to deliver at the moment."""

    def close(self) -> None:  # noqa: B027
        """Once, at the end, also if it never started."""


class Counters:
    """What happened in one component, by Flume's names."""

    def __init__(self, role: Role, name: str, clock: Clock) -> None:
        self.role, self.name = role, name
        self._clock = clock
        self._lock = threading.Lock()
        self._values = dict.fromkeys(COUNTED[role], 0)
        self._gauges: dict[str, Callable[[], Any]] = {}
        self.started_ms, self.stopped_ms = clock.now_ms(), 0
        self.last_error: str | None = None
        self.last_error_ms = 0

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._values[name] = self._values.get(name, 0) + count

    def gauge(self, name: str, read: Callable[[], Any]) -> None:
        self._gauges[name] = read

    def failed(self, name: str, error: BaseException) -> None:
        self.add(name)
        self.last_error = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        self.last_error_ms = self._clock.now_ms()

    def read(self) -> dict[str, Any]:
        with self._lock:
            values: dict[str, Any] = dict(self._values)
        return values | {name: read() for name, read in self._gauges.items()}


COUNTED: dict[Role, tuple[str, ...]] = {
    "source": (
        "EventReceivedCount",
        "EventAcceptedCount",
        "AppendReceivedCount",
        "AppendAcceptedCount",
        "AppendBatchReceivedCount",
        "AppendBatchAcceptedCount",
        "OpenConnectionCount",
        "EventReadFail",
        "ChannelWriteFail",
        "GenericProcessingFail",
    ),
    "channel": (
        "EventPutAttemptCount",
        "EventPutSuccessCount",
        "EventTakeAttemptCount",
        "EventTakeSuccessCount",
    ),
    "sink": (
        "ConnectionCreatedCount",
        "ConnectionClosedCount",
        "ConnectionFailedCount",
        "BatchEmptyCount",
        "BatchUnderflowCount",
        "BatchCompleteCount",
        "EventDrainAttemptCount",
        "EventDrainSuccessCount",
        "EventWriteFail",
        "ChannelReadFail",
    ),
}
