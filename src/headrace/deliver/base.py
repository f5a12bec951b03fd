"""What delivery promises: every answer has an address, every feed can be continued, nobody slow holds up
anybody else. Whoever has to know that something is wrong is told once (`alerts/`, by states in the log)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headrace.clock import Clock, SystemClock
from headrace.deliver.sharing import Sharing
from headrace.deliver.tails import Tails
from headrace.errors import HeadraceError
from headrace.log.base import Log
from headrace.sql.source import Source
from headrace.store.base import Position, ViewStore
from headrace.store.revisions import Revisions
from headrace.types import Column
from headrace.watchdog import Watchdog

HEARTBEAT_SECONDS = 14.0
"""A feed that has nothing to say for so long says how far it has come. A little less than what a server lets pass
before it sends a sign of life of its own (`server.pump.ALIVE_S`): one of the two is enough."""


@dataclass(frozen=True, slots=True)
class AsOfNote:
    """Which moment rows that were asked for AS OF TIMESTAMP are of."""

    asked_ms: int
    represents_ms: int | None
    """The newest event time in the rows, if they are not exact; None if there was nothing yet."""
    exact: bool
    hint: str | None = None
    """What keeps it from being exact, and how to get the exact rows."""


@dataclass(frozen=True, slots=True)
class Address:
    """Which rows of a source an answer is made of. A stream has no version."""

    name: str
    version: int | None
    position: Position
    as_of: AsOfNote | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A pull query's answer. Values are JSON-able. `view`, `version` and `position` are those of the only source;
    `reads` has them of all."""

    columns: tuple[Column, ...]
    rows: list[list[Any]]
    view: str | None
    version: int | None
    position: Position | None
    truncated: bool
    took_ms: float
    reads: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """`id` is what a feed goes on after (`deliver.ids`); `event` is `change`, `heartbeat`, `cut` or, for push queries,
    `header`, `row`, `end`, `error`."""

    event: str
    data: dict[str, Any]
    id: str | None = None
    forms: dict[str, bytes] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The event as it is sent, by the name of the form: encoded once for all subscribers who get it."""


class RowsAtMoment(Protocol):
    """Computes rows of a table again from the records that its query had read at a moment. Implemented by
    `coordinate.moments.Moments`."""

    def __call__(
        self, view: ViewStore, moment_ms: int, keys: frozenset[tuple[Any, ...]] | None, seconds: float
    ) -> list[dict[str, Any]]:
        """Rows with these keys (all if None) by column name, with ROWTIME and window. `Inexact` if that is not
        possible, with the reason."""


class Inexact(HeadraceError):
    """Rows of a moment cannot be computed from records; the message says why."""


class Views(Protocol):
    """The views being served, as delivery needs them. Implemented by `store.follow.Followers`."""

    def view(self, name: str) -> ViewStore:
        """The serving version, by exact SQL name. `NotFound` if there is none."""

    def version(self, name: str, version: int) -> ViewStore:
        """A version that serves, is being built or is kept. `NotFound` if there is none."""

    def of_source(self, source: Source) -> ViewStore:
        """The version that a plan was made for, even if another has begun to serve since."""

    def names(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """What pull, push and feeds are made with. One per process, closed when it stops: feeds then say so and end."""

    log: Log
    views: Views
    serves: Callable[[Source], bool] = lambda source: True
    """Whether this version of a stream or table is still the one that serves."""
    history: Callable[[str], Sequence[tuple[int, int]]] = lambda name: ()
    """By a table's name: the arrival numbers from which on its versions served. What the changelog of one has from
    before is how it was built, not what anybody was served. Nothing if there was never another."""
    scratch: Path | None = None
    """Where large answers are put for as long as they are read; the system's own folder for such if None."""
    clock: Clock = field(default_factory=SystemClock)
    rows_at: RowsAtMoment | None = None
    """Who computes rows of a past moment exactly; without, they are as the changelog has them."""
    watchdog: Watchdog = field(default_factory=Watchdog)
    """Cancels evaluation that takes too long."""
    row_seconds: float = 10.0
    """Deadline for evaluating what a push query read at once."""
    tails: Tails = field(init=False)
    revisions: Revisions = field(init=False)
    crossings: Sharing[Any] = field(init=False, default_factory=Sharing)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tails", Tails(self.log))
        object.__setattr__(self, "revisions", Revisions(self.log))

    def close(self) -> None:
        self.tails.close()
        self.crossings.close()


def view_topic(view: ViewStore) -> str:
    source: Source = view.source
    return source.topic
