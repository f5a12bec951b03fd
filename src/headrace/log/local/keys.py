"""Keys as compaction compares them: exactly, never by a hash that could make two keys one."""

from __future__ import annotations

from functools import reduce
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.base import WINDOW_END, WINDOW_START, TopicSpec
from headrace.log.codecs.constants import constant

_encode = msgspec.msgpack.Encoder(decimal_format="string").encode
_COLON, _NOTHING, _NULL = (constant(text) for text in (b":", b"", b"n"))


def key_names(spec: TopicSpec) -> list[str]:
    """The columns that make records replace one another. A windowed table has a row per key and window."""
    windows = [WINDOW_START, WINDOW_END] if spec.windowed else []
    return [column.name for column in spec.key] + windows


def key_column(batch: pa.RecordBatch, spec: TopicSpec) -> pa.Array:
    """The key of every row as one value, equal exactly if the keys are; null for a record without one."""
    columns = [_comparable(batch.column(name)) for name in key_names(spec)]
    if len(columns) == 1:
        return columns[0]
    joined = pc.binary_join_element_wise(*[_part(column) for column in columns], _NOTHING)
    missing = reduce(pc.and_, [pc.is_null(column) for column in columns[: len(spec.key)]])
    return pc.if_else(missing, pa.scalar(None, pa.binary()), joined)


def _comparable(column: pa.Array) -> pa.Array:
    """Bytes or an int64, by what is stored: a NaN is a key like any other."""
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return column.cast(pa.binary())
    if pa.types.is_float64(type_):
        return column.view(pa.int64())
    if pa.types.is_date32(type_) or pa.types.is_boolean(type_):
        return column.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_integer(type_) or pa.types.is_timestamp(type_):
        return column.cast(pa.int64())
    values = column.to_pylist()
    return pa.array([None if value is None else _encode(value) for value in values], pa.binary())


def _part(column: pa.Array) -> pa.Array:
    """One of several columns, with its length, so that no two keys look alike when joined."""
    text = column if pa.types.is_binary(column.type) else column.cast(pa.utf8()).cast(pa.binary())
    length = pc.binary_length(text).cast(pa.utf8()).cast(pa.binary())
    return pc.coalesce(pc.binary_join_element_wise(length, _COLON, text, _NOTHING), _NULL)


class NewestOffsets:
    """The newest offset of each key that was added. As large as the keys themselves and 8 bytes for each."""

    def __init__(self) -> None:
        self._table: pa.Table | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self._table is None else int(self._table.nbytes)

    def add(self, keys: list[pa.Array], offsets: list[Any]) -> None:
        if not keys:
            return
        added = pa.table({"key": pa.chunked_array(keys), "offset": np.concatenate(offsets)})
        added = added.filter(pc.is_valid(added["key"]))
        if self._table is not None:
            added = pa.concat_tables([self._table, added])
        newest = added.group_by("key", use_threads=False).aggregate([("offset", "max")])
        self._table = newest.select(["key", "offset_max"]).rename_columns(["key", "offset"]).combine_chunks()

    def is_newest(self, keys: list[pa.Array], offsets: Any) -> Any:
        """For each record, whether nothing newer was added for its key. Records without a key replace nothing."""
        if self._table is None or not self._table.num_rows:
            return np.ones(len(offsets), np.bool_)
        places = pc.index_in(pa.chunked_array(keys), value_set=self._table["key"].combine_chunks())
        places = places.combine_chunks() if isinstance(places, pa.ChunkedArray) else places
        known = pc.is_valid(places).to_numpy(zero_copy_only=False)
        newest = self._table["offset"].to_numpy()[places.fill_null(0).to_numpy()]
        nulls = np.concatenate([pc.is_null(part).to_numpy(zero_copy_only=False) for part in keys])
        return ~known | nulls | (newest <= offsets)
