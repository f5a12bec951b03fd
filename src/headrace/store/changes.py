"""The net effect of a stretch of a changelog: the last record of each key, upsert or deletion.

Of a thousand updates of one key only the last is converted and written, so cost follows the keys that changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.log.base import TOMBSTONE
from headrace.sql.source import Source
from headrace.store.base import Key
from headrace.store.columns import batch_column, python_values
from headrace.store.sqlite_values import encoder
from headrace.types import Column


@dataclass(frozen=True, slots=True)
class NetChanges:
    keys: list[Key]
    """Of `batch`, row by row; hashable, in the form SQLite keeps them."""
    batch: pa.RecordBatch
    """The upserts."""
    deleted: list[Key]

    @property
    def count(self) -> int:
        return len(self.keys) + len(self.deleted)


def net_changes(batch: pa.RecordBatch, source: Source, key: Sequence[Column]) -> NetChanges:
    """`batch` is in order of arrival."""
    keys = keys_of(batch, source, key)
    last = dict(zip(keys, range(len(keys)), strict=True))
    if len(last) < len(keys):
        batch, keys = batch.take(pa.array(last.values(), pa.int64())), list(last)
    tombstones = batch.column(TOMBSTONE)
    if not tombstones.true_count:
        return NetChanges(keys, batch, [])
    dead = tombstones.to_pylist()
    return NetChanges(
        [key for key, gone in zip(keys, dead, strict=True) if not gone],
        batch.filter(pa.array([not gone for gone in dead])),
        [key for key, gone in zip(keys, dead, strict=True) if gone],
    )


def keys_of(batch: pa.RecordBatch, source: Source, key: Sequence[Column]) -> list[Key]:
    return list(zip(*(encoded_values(batch, source, column) for column in key), strict=True))


def encoded_values(batch: pa.RecordBatch, source: Source, column: Column) -> list[Any]:
    """A column in the form in which SQLite keeps it."""
    values = python_values(batch.column(batch_column(source, column.name)), column.type)
    convert = encoder(column.type)
    return values if convert is None else [None if value is None else convert(value) for value in values]
