"""The rows that turn one version of a table into another, as records of its public topic.

Each version is read once, in one transaction of its store, into files by a hash of the rows' keys, and these are
compared one after the other: a large table costs disk for a while, not memory.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.log.base import OFFSET, TIME, TOMBSTONE, WINDOW_END, WINDOW_START
from headrace.log.schema import STAMPED
from headrace.log.writing.prepare import nulls
from headrace.sql.source import WINDOW_COLUMNS, Source
from headrace.store.base import Position, ViewStore
from headrace.store.decode import to_arrow
from headrace.types import BIGINT, Column
from headrace.views.spool import SCAN_SECONDS, parts_of

BATCH_ROWS = 10_000
CHECK_ROWS = 1_000

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RowFiles:
    """A version's rows at one position: time, window, key and value, in files by a hash of window and key."""

    source: Source
    files: tuple[Path, ...]
    position: Position

    def rows(self, part: int) -> Iterator[tuple[str, Row]]:
        """What a row is known by, and the row."""
        with self.files[part].open("rb") as file:
            while True:
                try:
                    yield pickle.load(file)
                except EOFError:
                    return


def row_files(view: ViewStore, folder: Path, both: Sequence[ViewStore], check: Callable[[], None]) -> RowFiles:
    """Read a version's rows; of `both` versions the larger one says into how many files. `check` raises to end it."""
    source = view.source
    columns = (Column("ROWTIME", BIGINT), *(WINDOW_COLUMNS if source.window else ()), *source.key, *source.value)
    known = len(columns) - len(source.value)
    folder.mkdir(parents=True)
    paths = tuple(folder / f"{number}.rows" for number in range(max(map(parts_of, both))))
    files = [path.open("wb") for path in paths]
    try:
        with view.scan([column.name for column in columns], deadline=SCAN_SECONDS) as scan:
            for number, row in enumerate(scan.rows):
                if not number % CHECK_ROWS:
                    check()
                name = repr(row[1:known])
                pickle.dump((name, row), files[zlib.crc32(name.encode()) % len(files)])
    finally:
        for file in files:
            file.close()
    return RowFiles(source, paths, scan.position)


def changed_rows(old: RowFiles, new: RowFiles, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of the new version that are not the same in the old one, and tombstones for those that it does not have."""
    waiting: list[dict[str, Any]] = []
    for part in range(len(new.files)):
        before = dict(old.rows(part))
        for name, row in new.rows(part):
            was = before.pop(name, None)
            record = _record(new.source, row)
            if was is None or _values(new.source, record, schema) != _values(
                old.source, _record(old.source, was), schema
            ):
                waiting.append(record)
        waiting += [{**_record(old.source, row), TOMBSTONE: True} for row in before.values()]
        while len(waiting) >= BATCH_ROWS:
            yield _batch(waiting[:BATCH_ROWS], schema, new.source)
            del waiting[:BATCH_ROWS]
    if waiting:
        yield _batch(waiting, schema, new.source)


def _record(source: Source, row: Row) -> dict[str, Any]:
    windows = (WINDOW_START, WINDOW_END) if source.window else ()
    names = (TIME, *windows, *(column.name for column in source.key + source.value))
    return {**dict(zip(names, row, strict=True)), TOMBSTONE: False}


def _values(source: Source, record: Mapping[str, Any], schema: pa.Schema) -> list[Any]:
    own = {column.name for column in source.value}
    return [record[name] for name in schema.names if name in own]


def _batch(records: Sequence[Mapping[str, Any]], schema: pa.Schema, source: Source) -> pa.RecordBatch:
    types = {column.name: column.type for column in source.key + source.value}
    keys = {column.name for column in source.key}
    columns = {}
    for name in written_columns(schema):
        # A tombstone has nothing but its key.
        values = [None if one[TOMBSTONE] and name in types and name not in keys else one.get(name) for one in records]
        type_ = schema.field(name).type
        columns[name] = to_arrow(values, types[name]) if name in types else pa.array(values, type_)
    return pa.record_batch(columns)


def written_columns(schema: pa.Schema) -> list[str]:
    """The columns of a topic's records that are a writer's to give."""
    return [name for name in schema.names if name not in (*STAMPED, OFFSET)]


def fit_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Records of a version's topic with the columns of the public one: nulls where the version has none."""
    rows, has = batch.num_rows, set(batch.schema.names)
    found = {
        name: batch.column(name) if name in has else nulls(rows, schema.field(name).type)
        for name in written_columns(schema)
    }
    return pa.record_batch(found)
