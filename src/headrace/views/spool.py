"""A view's rows in files, by a hash of their key: read in one pass and one transaction of the store, and then a file at
a time, so that a large view costs disk for a moment, not memory."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from headrace.errors import DeadlineExceeded
from headrace.sql.source import WINDOW_COLUMNS, Source
from headrace.store.base import Position, ViewStore
from headrace.store.json_rows import to_json_rows
from headrace.types import Array, Column, DataType, Double, Map, Struct
from headrace.views.compare import has_doubles

PART_ROWS = 50_000
"""About what is in one file: so many rows are in memory at a time."""
MOST_PARTS = 256
"""Each is an open file while rows are written."""
CHUNK = 5_000
SCAN_SECONDS = 600.0
NO_NUMBER = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Doubles that JSON has no number for, by what they are in a spool: as null they would all be the same."""
_NAMES = {str(number): name for name, number in NO_NUMBER.items()}


@dataclass(frozen=True, slots=True)
class Spool:
    """A version's rows at one position."""

    source: Source
    files: tuple[Path, ...]
    position: Position


def parts_of(view: ViewStore) -> int:
    """How many files its rows should go into."""
    try:
        return parts_for(view.count())
    except DeadlineExceeded:
        return MOST_PARTS


def parts_for(rows: int) -> int:
    """How many files so many rows go into.

    >>> parts_for(0), parts_for(50_001), parts_for(10**9)
    (1, 2, 256)
    """
    return max(1, min(MOST_PARTS, -(-rows // PART_ROWS)))


def spool_rows(
    view: ViewStore, folder: Path, parts: int, wanted: Callable[[Position], bool] = lambda _: True
) -> Spool | None:
    """None if the rows are of a position that is not wanted; then none of them is read."""
    source = view.source
    window = WINDOW_COLUMNS if source.window else ()
    columns = (*source.key, *window, *source.value)
    with view.scan([column.name for column in columns], deadline=SCAN_SECONDS) as scan:
        if not wanted(scan.position):
            return None
        folder.mkdir(parents=True, exist_ok=True)
        paths = tuple(folder / f"{number}.rows" for number in range(parts))
        files = [path.open("wb") for path in paths]
        try:
            for chunk in _chunks(scan.rows):
                _write(files, exact_rows(columns, chunk), len(source.key) + len(window))
        finally:
            for file in files:
                file.close()
        return Spool(source, paths, scan.position)


def _chunks(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    chunk: list[tuple[Any, ...]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    yield chunk


def exact_rows(columns: Sequence[Column], rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as JSON, with doubles that it has no number for."""
    shown = to_json_rows(columns, rows)
    doubles = [(place, column.type) for place, column in enumerate(columns) if has_doubles(column.type)]
    for row, json in zip(rows, shown, strict=True) if doubles else ():
        for place, type_ in doubles:
            json[place] = _exact(type_, row[place], json[place])
    return shown


def _exact(type_: DataType, value: Any, json: Any) -> Any:
    """As JSON has it, and with what JSON leaves out."""
    match type_:
        case _ if value is None:
            return json
        case Double():
            return json if math.isfinite(value) else _NAMES[str(value)]
        case Array(element):
            return [_exact(element, *both) for both in zip(value, json, strict=True)]
        case Map(_, inner) if len(value) == len(json):
            return {name: _exact(inner, value[key], json[name]) for key, name in zip(value, json, strict=True)}
        case Struct(fields):
            found = zip(fields, json, strict=True)
            return {name: _exact(inner, value.get(field), json[name]) for (field, inner), name in found}
        case _:
            return json


def _write(files: Sequence[IO[bytes]], rows: Iterable[list[Any]], keys: int) -> None:
    for row in rows:
        key = msgspec.json.encode(row[:keys])
        files[zlib.crc32(key) % len(files)].write(key + b"\n" + msgspec.json.encode(row[keys:]) + b"\n")


def read_part(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values, both JSON: of columns in order, the window's bounds after the key's."""
    with path.open("rb") as file:
        for key in file:
            yield key, file.readline()
