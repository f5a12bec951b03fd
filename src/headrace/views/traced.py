"""Rows that know which records of the log they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.sql.functions.arrays import hashable

Values: TypeAlias = Mapping[str, Any]
Bounds: TypeAlias = tuple[int, int]
"""A window's start and end, as they are kept: milliseconds."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A record of a topic, as a source reads it."""

    source: str
    topic: str
    partition: int
    offset: int
    arrival: int
    time_ms: int
    values: Values = field(compare=False)
    gone: bool = False
    window: Bounds | None = None


@dataclass(frozen=True, slots=True)
class Traced:
    """A row of a plan's node, with what rows silently carry (see `sql.plan`) and the records it is made of."""

    values: Values
    time: int
    stream_time: int
    arrival: int
    origins: tuple[Origin, ...]
    gone: bool = False
    window: Bounds | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows of a node matter; the others need not be read. Not all that come out have to be wanted: whoever asked
    checks."""

    columns: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    """Column → the values it may have, each made `hashable`."""
    since: int | None = None
    """Event times from here on."""
    until: int | None = None
    """Event times before this."""
    closes: int | None = None
    """Records stamped with this stream time, or a later one, are late, and are wanted only if the ledger has them."""

    def only(self, names: Mapping[str, str]) -> Wanted:
        """The same of a node below, whose column `names[above]` is what is called `above` here."""
        columns = {names[name]: values for name, values in self.columns.items() if name in names}
        return Wanted(columns, self.since, self.until, self.closes)

    def admits(self, values: Values) -> bool:
        return all(name not in values or hashable(values[name]) in some for name, some in self.columns.items())


EVERYTHING = Wanted()


def key_of(values: Values, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(hashable(values[name]) for name in names)


def plain(part: Any) -> Any:
    """The value that `hashable` was given.

    >>> plain(hashable([1, None]))
    [1, None]
    """
    kind, inner = part
    if kind == "array":
        return [plain(element) for element in inner]
    if kind == "map":
        return {key: plain(value) for key, value in inner}
    return inner
