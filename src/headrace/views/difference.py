"""Two versions of a view, row by row: the same, changed, only in one of them; by column, by window, with samples.

Rows are put into files by a hash of their key while they are read, in one pass and one transaction of the store, and
compared file by file: a large view costs disk for a moment, not memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, Any

import msgspec

from headrace.sql.source import WINDOW_COLUMNS, Source
from headrace.store.base import Position, ViewStore
from headrace.store.cuts import Cut, place_texts
from headrace.store.json_rows import to_json_rows
from headrace.types import BigInt as Big
from headrace.types import Column, DataType, Double, Integer, display_name
from headrace.types import Decimal as Exact
from headrace.views.compare import same

PARTS = 16
SAMPLES = 50
"""Of each kind, so that many of one do not hide another."""
WINDOWS = 100
CHUNK = 5_000
SCAN_SECONDS = 600.0
KINDS = ("same", "changed", "only_old", "only_new")


class Delta(msgspec.Struct, frozen=True):
    """How the numbers of a column differ where they do: new minus old."""

    column: str
    rows: int
    total: float
    largest: float


class Sample(msgspec.Struct, frozen=True):
    key: dict[str, Any]
    old: dict[str, Any] | None
    new: dict[str, Any] | None
    window: dict[str, int] | None = None


class WindowCount(msgspec.Struct, frozen=True):
    start: int
    same: int
    different: int


class Comparison(msgspec.Struct, frozen=True):
    """Of two versions of one view, both with the same records: those below one arrival number (`cut`), or, where there
    are none, before these offsets of the topics that the chain begins with (`inputs`)."""

    view: str
    old: int
    new: int
    cut: int | None
    same: int = 0
    changed: int = 0
    only_old: int = 0
    only_new: int = 0
    columns_added: list[str] = []
    columns_removed: list[str] = []
    deltas: list[Delta] = []
    windows: list[WindowCount] = []
    """The newest that have rows that differ."""
    samples: list[Sample] = []
    inputs: dict[str, dict[str, int]] = {}

    @property
    def different(self) -> int:
        return self.changed + self.only_old + self.only_new

    @property
    def share(self) -> float:
        """Of all rows there are in either, those that differ."""
        return self.different / max(1, self.same + self.different)


@dataclass(frozen=True, slots=True)
class Spool:
    """A version's rows at one position."""

    source: Source
    files: tuple[Path, ...]
    position: Position


def spool_rows(view: ViewStore, folder: Path) -> Spool:
    folder.mkdir(parents=True, exist_ok=True)
    source = view.source
    window = WINDOW_COLUMNS if source.window else ()
    columns = (*source.key, *window, *source.value)
    keys = len(source.key) + len(window)
    paths = tuple(folder / f"{number}.rows" for number in range(PARTS))
    files = [path.open("wb") for path in paths]
    try:
        with view.scan([column.name for column in columns], deadline=SCAN_SECONDS) as scan:
            for chunk in _chunks(scan.rows):
                _write(files, to_json_rows(columns, chunk), keys)
            return Spool(source, paths, scan.position)
    finally:
        for file in files:
            file.close()


def _chunks(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    chunk: list[tuple[Any, ...]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    yield chunk


def _write(files: Sequence[IO[bytes]], rows: Iterable[list[Any]], keys: int) -> None:
    for row in rows:
        key = msgspec.json.encode(row[:keys])
        files[zlib.crc32(key) % PARTS].write(key + b"\n" + msgspec.json.encode(row[keys:]) + b"\n")


def _read(path: Path) -> Iterator[tuple[bytes, list[Any]]]:
    with path.open("rb") as file:
        for key in file:
            yield key, msgspec.json.decode(file.readline())


def compare_spools(old: Spool, new: Spool, versions: tuple[int, int], cut: Cut) -> Comparison:
    tally = _Tally(old.source, new.source)
    for before, now in zip(old.files, new.files, strict=True):
        rows = dict(_read(before))
        for key, value in _read(now):
            tally.add(key, rows.pop(key, None), value)
        for key, value in rows.items():
            tally.add(key, value, None)
    return tally.result(versions, cut)


@dataclass(slots=True)
class _Tally:
    old: Source
    new: Source
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("same", "changed", "only_old", "only_new"), 0)
    )
    deltas: dict[str, tuple[int, Decimal, Decimal]] = field(default_factory=dict)
    windows: dict[int, list[int]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    shared: list[tuple[str, int, int, bool]] = field(init=False)
    """Columns of both: name, place in the old, place in the new, whether it is a number."""

    def __post_init__(self) -> None:
        places = {column.name: place for place, column in enumerate(self.old.value)}
        self.shared = [
            (display_name(column.name), places[column.name], place, _is_number(column.type))
            for place, column in enumerate(self.new.value)
            if column.name in places
        ]

    def add(self, key: bytes, old: list[Any] | None, new: list[Any] | None) -> None:
        if old is not None and new is not None:
            different = [column for column in self.shared if _differ(old[column[1]], new[column[2]])]
            kind = "changed" if different else "same"
            for name, before, now, number in different:
                if number:
                    self._delta(name, old[before], new[now])
        else:
            kind = "only_new" if old is None else "only_old"
        self.counts[kind] += 1
        if self.new.window is not None:
            self._count_window(msgspec.json.decode(key), kind)
        if kind != "same" and self.counts[kind] <= SAMPLES:
            self.samples.append(self._sample(msgspec.json.decode(key), old, new))

    def _delta(self, name: str, old: Any, new: Any) -> None:
        try:
            by = Decimal(str(new or 0)) - Decimal(str(old or 0))
        except InvalidOperation:
            return  # not a number after all: NaN, infinity
        rows, total, largest = self.deltas.get(name, (0, Decimal(0), Decimal(0)))
        self.deltas[name] = (rows + 1, total + by, by if abs(by) > abs(largest) else largest)

    def _count_window(self, key: list[Any], kind: str) -> None:
        counts = self.windows.setdefault(key[len(self.new.key)], [0, 0])
        counts[kind != "same"] += 1

    def _sample(self, key: list[Any], old: list[Any] | None, new: list[Any] | None) -> Sample:
        names = [display_name(column.name) for column in self.new.key]
        window = {"start": key[len(names)], "end": key[len(names) + 1]} if self.new.window else None
        return Sample(
            dict(zip(names, key, strict=False)),
            _object(self.old.value, old),
            _object(self.new.value, new),
            window,
        )

    def result(self, versions: tuple[int, int], cut: Cut) -> Comparison:
        old, new = ({display_name(column.name) for column in source.value} for source in (self.old, self.new))
        differing = sorted((start for start, counts in self.windows.items() if counts[1]), reverse=True)[:WINDOWS]
        return Comparison(
            view=display_name(self.new.name),
            old=versions[0],
            new=versions[1],
            cut=cut if isinstance(cut, int) else None,
            inputs={} if isinstance(cut, int) else place_texts(cut),
            **self.counts,
            columns_added=sorted(new - old),
            columns_removed=sorted(old - new),
            deltas=[
                Delta(name, rows, float(total), float(largest))
                for name, (rows, total, largest) in sorted(self.deltas.items())
            ],
            windows=[WindowCount(start, *self.windows[start]) for start in differing],
            samples=self.samples,
        )


def _differ(old: Any, new: Any) -> bool:
    """A sum of doubles depends on how batches were cut, in its last digits."""
    return bool(old != new) and not same(old, new)


def _is_number(type_: DataType) -> bool:
    return isinstance(type_, Integer | Big | Double | Exact)


def _object(columns: Sequence[Column], row: list[Any] | None) -> dict[str, Any] | None:
    return None if row is None else dict(zip((display_name(column.name) for column in columns), row, strict=True))


def parse_gate(text: str) -> float:
    """`max_changed=0.1%` as a share.

    >>> parse_gate("max_changed=0.1%"), parse_gate("max_changed=0.5")
    (0.001, 0.5)
    """
    name, _, value = text.partition("=")
    number = value.strip().removesuffix("%")
    share = float(number) / (100 if value.strip().endswith("%") else 1)
    if name.strip() != "max_changed" or not 0 <= share <= 1:
        raise ValueError(text)
    return round(share, 12)
