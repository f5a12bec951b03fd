"""Streams and tables as SQL knows them: the catalog the analyser looks names up in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from headrace.types import BIGINT, Column

# What every source has besides its own columns. ROWTIME is the event time in milliseconds.
PSEUDO_COLUMNS = (
    Column("ROWTIME", BIGINT),
    Column("ROWPARTITION", BIGINT),
    Column("ROWOFFSET", BIGINT),
)
WINDOW_COLUMNS = (Column("WINDOWSTART", BIGINT), Column("WINDOWEND", BIGINT))


@dataclass(frozen=True, slots=True)
class Window:
    """How a GROUP BY cuts time. Milliseconds, with the default grace filled in (see `sql.windows`)."""

    kind: Literal["tumbling", "hopping", "session"]
    size_ms: int
    advance_ms: int
    grace_ms: int
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A stream or a table over a topic."""

    name: str
    kind: Literal["stream", "table"]
    topic: str
    key: tuple[Column, ...]
    value: tuple[Column, ...]
    key_format: str = "KAFKA"
    value_format: str = "JSON"
    timestamp: str | None = None
    timestamp_format: str | None = None
    partitions: int = 1
    window: Window | None = None
    """Set for a table whose key includes a window."""
    statement: str = ""
    """The SQL that made it, as written."""
    query: str | None = None
    """The query that writes it, for CREATE … AS SELECT."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """What `SELECT *` gives: key columns (and the window's bounds), then values."""
        window = WINDOW_COLUMNS if self.window else ()
        return self.key + window + self.value

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """What a name may refer to."""
        return self.columns + PSEUDO_COLUMNS


class Sources(Protocol):
    """What the analyser needs of the catalog."""

    def source(self, name: str) -> Source | None:
        """By its exact (already upper-cased or quoted) name."""

    def sources(self) -> Iterable[Source]: ...
