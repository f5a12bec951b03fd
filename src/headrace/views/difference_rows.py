"""The whole difference of two versions in a file: every row that differs, the newest window first, then by key; read a
page at a time, with filters.

Rows come in the order of the spools they were found in. They are sorted in runs of what memory may hold, the runs are
merged, and a SQLite file numbers them: a page goes on from a number, whatever it is filtered by.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import msgspec

from headrace.sql.source import Source
from headrace.store.readers import Readers, translate
from headrace.structs import ready
from headrace.types import Column, Decimal, display_name
from headrace.views.difference import KINDS, Apart, Kind

RUN_ROWS = 50_000
MOST_RUNS = 128
"""Each is an open file while they are merged."""
READERS = 2
MOST_COUNTED = 100
LOOK_S = 20.0
"""How long one look may take, however many rows there are."""

_Line = tuple[int, list[Any], list[int] | None, str | None, str | None, str, float | None]
"""Kind, values of the key's columns (of either version), window, both rows and the deltas as JSON, the largest of
them."""
_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder(ready(_Line))


def key_names(old: Source, new: Source) -> list[str]:
    """The columns of the key, of either version."""
    return list(dict.fromkeys(column.name for source in (old, new) for column in source.key))


def shared_names(old: Source, new: Source) -> list[str]:
    """The columns that both have, as people see them."""
    had = {column.name for column in old.value}
    return [display_name(column.name) for column in new.value if column.name in had]


@dataclass(slots=True)
class DifferenceWriter:
    """Takes rows in any order; `close` makes the file."""

    folder: Path
    old: Source
    new: Source
    rows: int = 0
    _run: list[_Line] = field(default_factory=list)
    _runs: list[Path] = field(default_factory=list)
    _made: int = 0
    _places: dict[str, list[int | None]] = field(init=False)
    _columns: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        names = key_names(self.old, self.new)
        self._places = {side: _places(source, names) for side, source in (("old", self.old), ("new", self.new))}
        # By number: a column's name may be anything, also what SQLite would have to quote.
        self._columns = {name: str(number) for number, name in enumerate(shared_names(self.old, self.new))}

    def add(self, row: Apart) -> None:
        side, source = ("old", self.old) if row.kind == "only_old" else ("new", self.new)
        key = [None if place is None else row.key[place] for place in self._places[side]]
        window = row.key[len(source.key) : len(source.key) + 2] if source.window is not None else None
        deltas = {self._columns[name]: by for name, by in row.deltas.items()}
        old, new = (None if value is None else value.decode() for value in (row.old, row.new))
        largest = max((abs(by) for by in row.deltas.values() if by is not None), default=None)
        self._run.append((KINDS.index(row.kind), key, window, old, new, _encoder.encode(deltas).decode(), largest))
        self.rows += 1
        if len(self._run) >= RUN_ROWS:
            self._end_run()

    def _end_run(self) -> None:
        self._run.sort(key=_order)
        self._write_run(self._run)
        self._run = []
        if len(self._runs) >= MOST_RUNS:
            merged, self._runs = self._runs, []
            self._write_run(_merged(merged))
            for path in merged:
                path.unlink()

    def _write_run(self, lines: Iterable[_Line]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self._made}.run"
        self._made += 1
        with path.open("wb") as file:
            for line in lines:
                file.write(_encoder.encode(line) + b"\n")
        self._runs.append(path)

    def close(self) -> Path:
        self._end_run()
        path = self.folder / "rows.sqlite"
        try:
            _write_rows(path, len(key_names(self.old, self.new)), _merged(self._runs))
        except sqlite3.Error as error:
            raise translate(error) from error
        for run in self._runs:
            run.unlink()
        return path


def _places(source: Source, names: Sequence[str]) -> list[int | None]:
    own = [column.name for column in source.key]
    return [own.index(name) if name in own else None for name in names]


def _order(line: _Line) -> tuple[Any, ...]:
    window = line[2]
    return (0, 0) if window is None else (-window[0], -window[1]), [_rank(value) for value in line[1]]


def _rank(value: Any) -> tuple[int, Any]:
    """Values of whatever types in one order: null, numbers, texts, the rest as JSON."""
    match value:
        case None:
            return 0, 0
        case bool() | int() | float():
            return 1, value
        case str():
            return 2, value
        case _:
            return 3, _encoder.encode(value)


def _merged(runs: Sequence[Path]) -> Iterator[_Line]:
    return heapq.merge(*map(_read_run, runs), key=_order)


def _read_run(path: Path) -> Iterator[_Line]:
    with path.open("rb") as file:
        for line in file:
            yield _decoder.decode(line)


def _write_rows(path: Path, keys: int, lines: Iterator[_Line]) -> None:
    columns = ["kind", "ws", "we", "key", "old", "new", "deltas", "largest", *(f"k{number}" for number in range(keys))]
    marks = ", ".join("?" * (len(columns) + 1))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # What a kill leaves of it is thrown away: nothing has to be synced.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"CREATE TABLE rows (place INTEGER PRIMARY KEY, {', '.join(columns)})")
        connection.execute("BEGIN")
        connection.executemany(
            f"INSERT INTO rows VALUES ({marks})",
            (
                (place, kind, *(window or (None, None)), _encoder.encode(key), old, new, deltas, by, *map(_plain, key))
                for place, (kind, key, window, old, new, deltas, by) in enumerate(lines, 1)
            ),
        )
        connection.execute("COMMIT")


def _plain(value: Any) -> Any:
    return _encoder.encode(value).decode() if isinstance(value, list | dict) else value


class Differing(msgspec.Struct, frozen=True):
    """A row as people see it."""

    kind: Kind
    key: dict[str, Any]
    window: dict[str, int] | None
    old: dict[str, Any] | None
    new: dict[str, Any] | None
    deltas: dict[str, float | None]
    """The columns that differ, new minus old; null where that is no number."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Only rows for which all of these hold."""

    kinds: tuple[Kind, ...] = ()
    key: tuple[tuple[str, Any], ...] = ()
    """Columns of the key, by their own names, and the JSON values they have."""
    prefixes: tuple[tuple[str, str], ...] = ()
    """Columns of the key, and what their texts begin with."""
    window: int | None = None
    """A moment: windows that begin then, or contain it."""
    between: tuple[int | None, int | None] = (None, None)
    """Windows that end at or after the first moment, and begin at or before the second."""
    column: str | None = None
    """One that both versions have, as people see it: rows in which it changed."""
    min_delta: float | None = None
    """Rows in which a number, or that of `column`, changed by this much or more."""


@dataclass(slots=True)
class DifferenceRows:
    """What `DifferenceWriter` made."""

    path: Path
    old: Source
    new: Source
    keys: list[str] = field(init=False)
    """Columns of the key, by their own names."""
    columns: list[str] = field(init=False)
    """That both versions have, as people see them."""
    _readers: Readers = field(init=False)
    _counted: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys, self.columns = key_names(self.old, self.new), shared_names(self.old, self.new)
        self._readers = Readers(self.path, READERS)

    def count(self, filters: Filters) -> int:
        """All that match; counted once."""
        where, values = self._where(filters)
        # By what SQLite is asked: a key's value may be a list, which nothing can be found by.
        asked = where, *values
        number = self._counted.get(asked)
        if number is None:
            with self._readers.lend(LOOK_S) as connection:
                [number] = connection.execute(f"SELECT count(*) FROM rows WHERE {where}", values).fetchone()
            if len(self._counted) >= MOST_COUNTED:
                self._counted.clear()
            self._counted[asked] = number
        return number

    def page(self, filters: Filters, after: int, limit: int) -> tuple[list[Differing], int | None]:
        """The rows after a place, and the place to go on from; None if these are the last."""
        where, values = self._where(filters)
        sql = f"SELECT place, kind, ws, we, key, old, new, deltas FROM rows WHERE place > ? AND {where} "
        with self._readers.lend(LOOK_S) as connection:
            found = connection.execute(f"{sql}ORDER BY place LIMIT ?", (after, *values, limit + 1)).fetchall()
        rows = [self._row(*row[1:]) for row in found[:limit]]
        return rows, found[limit - 1][0] if len(found) > limit else None

    def each(self, filters: Filters, limit: int = 1000) -> Iterator[list[Differing]]:
        """All that match, some at a time: nothing is held between two of them."""
        after: int | None = 0
        while after is not None:
            rows, after = self.page(filters, after, limit)
            yield rows

    def _row(self, kind: int, start: int | None, end: int | None, *texts: Any) -> Differing:
        decoded: list[Any] = [None if text is None else msgspec.json.decode(text) for text in texts]
        key, old, new, deltas = decoded
        source = self.old if KINDS[kind] == "only_old" else self.new
        values = dict(zip(self.keys, key, strict=True))
        return Differing(
            KINDS[kind],
            _object(source.key, [values[column.name] for column in source.key]),
            None if start is None or end is None else {"start": start, "end": end},
            None if old is None else _object(self.old.value, old),
            None if new is None else _object(self.new.value, new),
            {self.columns[int(number)]: by for number, by in deltas.items()},
        )

    def _where(self, filters: Filters) -> tuple[str, list[Any]]:
        start, end = filters.between
        parts: list[tuple[str, tuple[Any, ...]]] = [("1", ())]
        if filters.kinds:
            numbers = tuple(KINDS.index(kind) for kind in filters.kinds)
            parts.append((f"kind IN ({', '.join('?' * len(numbers))})", numbers))
        parts += [(f"k{self.keys.index(name)} IS ?", (_plain(value),)) for name, value in filters.key]
        parts += [
            (f"substr(CAST(k{self.keys.index(name)} AS TEXT), 1, ?) = ?", (len(text), text))
            for name, text in filters.prefixes
        ]
        if filters.window is not None:
            parts.append(("ws <= ? AND (we > ? OR ws = ?)", (filters.window,) * 3))
        if start is not None:
            parts.append(("we >= ?", (start,)))
        if end is not None:
            parts.append(("ws <= ?", (end,)))
        parts += self._changed(filters)
        return " AND ".join(part for part, _ in parts), [value for _, values in parts for value in values]

    def _changed(self, filters: Filters) -> list[tuple[str, tuple[Any, ...]]]:
        found: list[tuple[str, tuple[Any, ...]]] = []
        place = None if filters.column is None else str(self.columns.index(filters.column))
        if filters.min_delta is not None:
            found.append(("largest >= ?", (filters.min_delta,)))
        if place is not None:
            # The keys are numbers and the values too: what looks like one is one.
            found.append(("instr(deltas, ?) > 0", (f'"{place}":',)))
        if place is not None and filters.min_delta is not None:
            found.append(("abs(json_extract(deltas, ?)) >= ?", (f'$."{place}"', filters.min_delta)))
        return found

    def close(self) -> None:
        self._readers.close()


def _object(columns: Sequence[Column], row: Sequence[Any]) -> dict[str, Any]:
    """By the names people see; a DECIMAL, which a spool has as text, is a number."""
    return {
        display_name(column.name): Number(value) if isinstance(column.type, Decimal) and value is not None else value
        for column, value in zip(columns, row, strict=True)
    }
