"""What every codec promises.

A codec turns the key's or the value's columns of a topic into payloads and back, a batch at a time:

- As many rows come out as went in. A row that cannot be read or written is null, and `errors` says why; no row spoils
  another, and nothing is raised for what a payload holds.
- The payloads stay the caller's: what could not be read is still there, to become a dead letter.
- A null payload is a row of nulls (a tombstone, if it is a value); a row is written as null only by `NONE`.
- Memory is bounded by the payloads' own size, whatever they claim.

Columns are found by their name, if need be in another case. Codecs are safe to use from several threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pyarrow as pa

from headrace.log.base import FormatOptions
from headrace.log.schema import arrow_type
from headrace.types import Column

__all__ = [
    "Codec",
    "Decoded",
    "Encoded",
    "FormatOptions",
    "SchemaType",
    "Schemas",
    "Side",
    "WriterSchema",
    "binary",
    "decoded",
    "values_of",
]

Side = Literal["key", "value"]
SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns in their declared order and types, one row per payload."""

    batch: pa.RecordBatch
    errors: Mapping[int, str] = field(default_factory=dict)
    """Row → what is wrong with it."""
    rest: pa.Array | None = None
    """Where the format has them: fields nobody declared, as one JSON object per row (text), or null."""


@dataclass(frozen=True, slots=True)
class Encoded:
    payloads: pa.Array
    """Binary, one per row."""
    errors: Mapping[int, str] = field(default_factory=dict)


class Codec(ABC):
    """One format, for one side of one topic."""

    columns: tuple[Column, ...]

    def prepare(self) -> None:
        """Register the schema it writes with, for formats that have one. `Conflict` if it is incompatible."""
        return

    @abstractmethod
    def decode(self, payloads: pa.Array) -> Decoded:
        """Binary payloads → columns."""

    @abstractmethod
    def encode(self, batch: pa.RecordBatch) -> Encoded:
        """Columns → payloads. `batch` has the codec's columns by name; it may have others, which are not looked at."""


class Schemas(Protocol):
    """What codecs with schemas need of a registry. `NotFound` for an id or a subject nobody registered."""

    def by_id(self, schema_id: int) -> WriterSchema: ...

    def newest(self, subject: str) -> WriterSchema: ...

    def ids(self, subject: str) -> list[int]:
        """The ids of a subject's versions; empty if it has none."""

    def register(self, subject: str, type_: SchemaType, schema: str) -> int:
        """The schema's id; the same one for the same schema. `Conflict` if it is incompatible."""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    id: int
    type: SchemaType
    text: str
    references: Mapping[str, str] = field(default_factory=dict)
    """All schemas it refers to, also through others: name → text, each after those it needs itself."""


def decoded(
    columns: Sequence[Column],
    arrays: Mapping[str, pa.Array],
    rows: int,
    errors: Mapping[int, str] | None = None,
    rest: pa.Array | None = None,
) -> Decoded:
    """The answer of a `decode`: rows with an error are null in all their columns."""
    if not columns:
        # A batch needs a column to have rows; a struct array has them by itself.
        return Decoded(pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([]))), errors or {}, rest)
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])
    batch = pa.RecordBatch.from_arrays([arrays[column.name] for column in columns], schema=schema)
    if errors:
        batch = batch.take(pa.array([None if row in errors else row for row in range(rows)], pa.int64()))
    return Decoded(batch, errors or {}, rest)


def binary(payloads: Sequence[bytes | None]) -> pa.Array:
    return pa.array(payloads, pa.binary())


def values_of(payloads: pa.Array) -> list[Any]:
    """The payloads as bytes; text is taken for its bytes."""
    if pa.types.is_string(payloads.type) or pa.types.is_large_string(payloads.type):
        payloads = payloads.cast(pa.binary())
    values: list[Any] = payloads.to_pylist()
    return values
