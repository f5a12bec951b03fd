"""What every store promises.

A store holds the rows of views, one `ViewStore` per view version. It follows the log: `apply` takes committed
changes in order and remembers how far it got in the same transaction as the rows, so a change is in the rows
exactly once, whatever is killed when. A store can be thrown away and refilled from the log. Readers never
block the writer and see a whole number of batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from headrace.log.base import Log, Records, Topic
from headrace.sql.expressions import Expression
from headrace.sql.source import Source


@dataclass(frozen=True, slots=True)
class Position:
    """How much of the log a view's rows include: of each partition of its topic everything before the offset given,
    which is every record with an arrival number below `arrival`. Where the log gives no arrival numbers, that is the
    sum of the offsets: it too only grows."""

    arrival: int
    offsets: Mapping[int, int]
    """By partition: the next offset to apply."""


Key: TypeAlias = tuple[Any, ...]
"""A row's key and window, as `store.changes` has them: hashable, in the form SQLite keeps them."""


@dataclass(frozen=True, slots=True)
class Rows:
    """An answer, with its address. Values are plain Python values in the order of `columns`."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    position: Position


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows being read, one at a time, all of one moment of the view. `residual` is the part of the predicate that the
    rows were not checked for."""

    position: Position
    rows: Iterator[tuple[Any, ...]]
    residual: Expression | None = None


class Decoder(Protocol):
    """How records of a view's changelog become its rows."""

    topic: Topic
    columns: list[str]
    """What to ask the log for."""

    def decode(self, records: Records) -> Records:
        """The same records with the view's own columns instead of the topic's."""


class ViewStore(ABC):
    """One version of one view. Columns are those of `source.all_columns`.

    A value is what the evaluator of `sql.evaluate` works with: DECIMAL a `decimal.Decimal` of the column's scale,
    TIMESTAMP and TIME milliseconds as int, DATE a `datetime.date`; ARRAY a list, MAP and STRUCT a dict."""

    source: Source
    version: int
    damaged: bool = False
    """Somebody found that the rows cannot be read: whoever follows the log for this view throws it away and fills it
    again."""
    layers: Callable[[Log, Source], Decoder] | None = None
    """How its changelog is read if that has two layers (`store.layers`); None if it has plain rows."""

    epoch: str | None = None
    """The epoch of the log (`log.epochs`) in which the position was last moved; None if it is not known."""

    @abstractmethod
    def position(self) -> Position: ...

    def stamp(self, epoch: str) -> None:
        """Remember, before anything more is applied, in which epoch of the log that happens."""
        self.epoch = epoch

    @abstractmethod
    def apply(self, changes: Sequence[Records], position: Position) -> int:
        """Apply changes (upsert by key and window; a tombstone deletes) and move to `position`, in one transaction.
        Called by one thread. Changes below the store's own position are passed over. Returns the number of rows
        changed."""

    def horizon(self) -> int | None:
        """Rows at or before it have expired (`store.expiry`); None if none ever do."""
        return None

    @abstractmethod
    def widen(self, source: Source) -> bool:
        """Have the columns of a source that is otherwise the same; further ones are null in the rows there are. For as
        long as it is open: whoever opens it anew fills it again. False if that cannot be."""

    @abstractmethod
    def rebase(self, position: Position) -> None:
        """The same rows, at the position that is theirs in another log."""

    @abstractmethod
    def scan(
        self,
        columns: Sequence[str],
        predicate: Expression | None = None,
        order: Sequence[tuple[str, bool]] = (),
        limit: int | None = None,
        deadline: float = 10.0,
    ) -> AbstractContextManager[Scan]:
        """Rows that satisfy what the store can check of `predicate`, in `order` (column, descending; nulls first, or
        last if descending). `limit` holds only if nothing is left to check: with a residual the caller counts.

        Reading costs memory for one row, not for all. `DeadlineExceeded` after `deadline` seconds."""

    def select(
        self,
        columns: Sequence[str],
        predicate: Expression | None = None,
        order: Sequence[tuple[str, bool]] = (),
        limit: int | None = None,
        deadline: float = 10.0,
    ) -> tuple[Rows, Expression | None]:
        """A scan as a list: for few rows."""
        with self.scan(columns, predicate, order, limit, deadline) as scan:
            return Rows(tuple(columns), list(scan.rows), scan.position), scan.residual

    @abstractmethod
    def find(self, keys: Sequence[Key], columns: Sequence[str]) -> dict[Key, tuple[Any, ...]]:
        """The rows with these keys; those that are not there are left out. A key with a null in it is not found."""

    @abstractmethod
    def count(self) -> int: ...

    @abstractmethod
    def close(self) -> None: ...


class Store(ABC):
    """All views of a project."""

    @abstractmethod
    def open_view(self, source: Source, version: int) -> ViewStore:
        """Open or create. One ViewStore per version at a time. Rows that were kept for another definition, in another
        format, or are damaged, are thrown away: then the position is the beginning."""

    @abstractmethod
    def open_beside(self, source: Source, version: int) -> ViewStore:
        """Rows of another definition of a version that is open, from the beginning. Who opens the version later gets
        them, if that is its definition then."""

    @abstractmethod
    def take_over(self, view: ViewStore) -> None:
        """What was opened beside is the version from now on. What was it before can still be read."""

    @abstractmethod
    def discard(self, view: ViewStore) -> None:
        """Close rows that are not the version's (any more), and remove them."""

    @abstractmethod
    def keep_only(self, views: Collection[tuple[str, int]]) -> None:
        """Remove everything but these (name, version): what a process left behind that died before it removed it."""

    @abstractmethod
    def drop_view(self, name: str, version: int) -> None:
        """Remove its rows for good. Fine if there are none."""

    @abstractmethod
    def close(self) -> None: ...
