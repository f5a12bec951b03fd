"""Streams and tables as SQL knows them: the catalog the analyser looks names up in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from headrace.sql.functions.function import Function
from headrace.types import BIGINT, BYTES, INTEGER, VARCHAR, Array, Column, DataType, Struct

# What every source has besides its own columns. ROWTIME is the event time in milliseconds.
PSEUDO_COLUMNS = (
    Column("ROWTIME", BIGINT),
    Column("ROWPARTITION", INTEGER),
    Column("ROWOFFSET", BIGINT),
)
WINDOW_COLUMNS = (Column("WINDOWSTART", BIGINT), Column("WINDOWEND", BIGINT))


ALL_HEADERS = Array(Struct((("KEY", VARCHAR), ("VALUE", BYTES))))


@dataclass(frozen=True, slots=True)
class Header:
    """A column of a source that is not in its value: all headers, or the last one called `key`."""

    name: str
    key: str | None = None

    @property
    def column(self) -> Column:
        return Column(self.name, ALL_HEADERS if self.key is None else BYTES)


@dataclass(frozen=True, slots=True)
class Window:
    """How a GROUP BY cuts time. Milliseconds, with the default grace filled in (see `sql.windows`). A session's
    `size_ms` is its gap; 0 for a source declared WINDOW_TYPE='SESSION', whose gap nobody knows."""

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
    """Set if the key includes a window."""
    headers: tuple[Header, ...] = ()
    key_delimiter: str | None = None
    """What separates DELIMITED columns: one character; None for a comma."""
    value_delimiter: str | None = None
    wrap_single_value: bool | None = None
    """Whether a value of one column is an object with it, or bare; None for what the format does by itself."""
    key_schema_id: int | None = None
    value_schema_id: int | None = None
    key_schema_name: str | None = None
    value_schema_name: str | None = None
    read_only: bool = False
    """CREATE SOURCE STREAM|TABLE: nothing may be written to it, and its topic is not Headrace's to delete."""
    retention_ms: int | None = None
    row_ttl_ms: int | None = None
    """How long a table keeps a row that does not change, by event time; for ever if it is None."""
    classic: bool = False
    """Declared in classic KSQL, with KEY='column', or made from such: the key need not be selected."""
    per_batch: bool = False
    """Of a table: its records are what batches came to, not every change, because an aggregate is somewhere below it.
    What it held in between depends on how the batches were cut."""
    statement: str = ""
    """The SQL that made it, as written."""
    query: str | None = None
    """The query that writes it, for CREATE … AS SELECT."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """What `SELECT *` gives: key columns (and the window's bounds), then values, then headers."""
        window = WINDOW_COLUMNS if self.window else ()
        return self.key + window + self.value + tuple(header.column for header in self.headers)

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """What a name may refer to."""
        return self.columns + PSEUDO_COLUMNS


class Sources(Protocol):
    """What the analyser needs of the catalog."""

    def source(self, name: str) -> Source | None:
        """By its exact (already upper-cased or quoted) name."""

    def sources(self) -> Iterable[Source]: ...

    def types(self) -> Mapping[str, DataType]:
        """Those of CREATE TYPE."""

    def functions(self) -> Mapping[str, Function]:
        """Those written in Python, by their names in upper case; the function table has the others."""
