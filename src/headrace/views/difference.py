"""Two versions of a view, row by row: the same, changed, only in one of them; by column, by window, with samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from headrace.sql.source import Source
from headrace.store.cuts import Cut, place_texts
from headrace.types import BigInt as Big
from headrace.types import Column, DataType, Double, Integer, display_name
from headrace.types import Decimal as Exact
from headrace.views.compare import same
from headrace.views.spool import NO_NUMBER, Spool, read_part

SAMPLES = 50
"""Of each kind, so that many of one do not hide another."""
WINDOWS = 100

Kind: TypeAlias = Literal["changed", "only_old", "only_new"]
KINDS: tuple[Kind, ...] = ("changed", "only_old", "only_new")


class Apart(NamedTuple):
    """One row that differs. Both rows are JSON as a spool has them; the key is that of the version the row is of."""

    kind: Kind
    key: list[Any]
    old: bytes | None
    new: bytes | None
    deltas: dict[str, float | None]
    """Of a row that changed, the columns that differ: by how much, or None where that is no number."""


Keep: TypeAlias = Callable[[Apart], None]


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


def compare_spools(
    old: Spool,
    new: Spool,
    versions: tuple[int, int],
    cut: Cut,
    summed: frozenset[str] = frozenset(),
    keep: Keep | None = None,
) -> Comparison:
    """`summed` are the columns whose last digits depend on how batches were cut. `keep` is handed every row that
    differs."""
    tally = _Tally(old.source, new.source, summed, keep)
    if _layout(old.source) == _layout(new.source):
        for before, now in zip(old.files, new.files, strict=True):
            rows = dict(read_part(before))
            for key, value in read_part(now):
                tally.add(key, rows.pop(key, None), value)
            for key, value in rows.items():
                tally.add(key, value, None)
    else:
        # Keys of other columns may look the same, and are not.
        for path in old.files:
            for key, value in read_part(path):
                tally.add(key, value, None)
        for path in new.files:
            for key, value in read_part(path):
                tally.add(key, None, value)
    return tally.result(versions, cut, _rows_by_window(new, tally.windows.newest()))


def _layout(source: Source) -> tuple[list[str], bool]:
    """What a key is made of."""
    return [column.name for column in source.key], source.window is not None


def _rows_by_window(spool: Spool, starts: Sequence[int]) -> dict[int, int]:
    """How many rows these windows have. They are known only once all rows were compared, so it is another pass."""
    found = dict.fromkeys(starts, 0)
    if found and spool.source.window is not None:
        for path in spool.files:
            for key, _ in read_part(path):
                start = _start(spool.source, msgspec.json.decode(key))
                if start in found:
                    found[start] += 1
    return found


def _start(source: Source, key: list[Any]) -> int:
    start: int = key[len(source.key)]
    return start


@dataclass(slots=True)
class _Windows:
    """The newest that have rows that differ, and how many: of those in the new version, and of those that are only in
    the old one. Sessions may be as many as rows, so no more are kept than are shown."""

    counts: dict[int, list[int]] = field(default_factory=dict)
    below: int | None = None
    """Those up to here were given up for newer ones."""

    def add(self, start: int, only_old: bool) -> None:
        if self.below is not None and start <= self.below:
            return
        self.counts.setdefault(start, [0, 0])[only_old] += 1
        if len(self.counts) >= 2 * WINDOWS:
            self.below = sorted(self.counts)[-WINDOWS - 1]
            self.counts = {kept: counts for kept, counts in self.counts.items() if kept > self.below}

    def newest(self) -> list[int]:
        return sorted(self.counts, reverse=True)[:WINDOWS]


@dataclass(slots=True)
class _Tally:
    old: Source
    new: Source
    summed: frozenset[str] = frozenset()
    keep: Keep | None = None
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("same", "changed", "only_old", "only_new"), 0)
    )
    deltas: dict[str, tuple[int, Decimal, Decimal]] = field(default_factory=dict)
    windows: _Windows = field(default_factory=_Windows)
    samples: list[Sample] = field(default_factory=list)
    shared: list[tuple[str, int, int, bool, bool]] = field(init=False)
    """Columns of both: name, place in the old, place in the new, whether it is a number in both, whether it was summed
    up."""

    def __post_init__(self) -> None:
        # What is a number in one of them may be any text in the other, also `NaN`.
        places = {column.name: (place, column.type) for place, column in enumerate(self.old.value)}
        self.shared = [
            (
                display_name(column.name),
                places[column.name][0],
                place,
                _is_number(column.type) and _is_number(places[column.name][1]),
                column.name in self.summed,
            )
            for place, column in enumerate(self.new.value)
            if column.name in places
        ]

    def add(self, key: bytes, before: bytes | None, now: bytes | None) -> None:
        if before == now and self.old.value == self.new.value:
            self.counts["same"] += 1
            return
        old, new = (None if row is None else msgspec.json.decode(row) for row in (before, now))
        deltas = {} if old is None or new is None else self._differing(old, new)
        kind: Kind = "only_new" if old is None else "only_old" if new is None else "changed"
        if kind == "changed" and not deltas:
            self.counts["same"] += 1
            return
        self.counts[kind] += 1
        source, place = self.old if new is None else self.new, msgspec.json.decode(key)
        if source.window is not None:
            self.windows.add(_start(source, place), kind == "only_old")
        if self.counts[kind] <= SAMPLES:
            self.samples.append(self._sample(source, place, old, new))
        if self.keep is not None:
            self.keep(Apart(kind, place, before, now, deltas))

    def _differing(self, old: list[Any], new: list[Any]) -> dict[str, float | None]:
        """The columns that differ, and by how much."""
        return {
            name: self._delta(name, old[before], new[now]) if number else None
            for name, before, now, number, summed in self.shared
            if not self._is_same(old[before], new[now], number, summed)
        }

    @staticmethod
    def _is_same(old: Any, new: Any, number: bool, summed: bool) -> bool:
        """A decimal is text in a spool, with as many digits as its column has."""
        if number:
            old, new = (_number(value) if isinstance(value, str) else value for value in (old, new))
        return same(old, new, summed=summed)

    def _delta(self, name: str, old: Any, new: Any) -> float | None:
        """None if one of them is no number, which adds nothing to the sum of the others."""
        finite = old not in NO_NUMBER and new not in NO_NUMBER
        by = Decimal(str(new or 0)) - Decimal(str(old or 0)) if finite else Decimal(0)
        rows, total, largest = self.deltas.get(name, (0, Decimal(0), Decimal(0)))
        self.deltas[name] = (rows + 1, total + by, by if abs(by) > abs(largest) else largest)
        return float(by) if finite and math.isfinite(by) else None

    def _sample(self, source: Source, key: list[Any], old: list[Any] | None, new: list[Any] | None) -> Sample:
        """With the key as the version has it that the row is of: the other one's may have other columns."""
        names = [display_name(column.name) for column in source.key]
        window = {"start": key[len(names)], "end": key[len(names) + 1]} if source.window else None
        return Sample(
            dict(zip(names, key, strict=False)),
            _object(self.old.value, old),
            _object(self.new.value, new),
            window,
        )

    def result(self, versions: tuple[int, int], cut: Cut, rows: dict[int, int]) -> Comparison:
        """`rows` are how many the windows that differ have in the new version."""
        old, new = ({display_name(column.name) for column in source.value} for source in (self.old, self.new))
        windows = [(start, *self.windows.counts[start]) for start in self.windows.newest()]
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
            windows=[WindowCount(start, max(0, rows[start] - now), now + gone) for start, now, gone in windows],
            samples=self.samples,
        )


def _number(text: str) -> float | Decimal:
    return NO_NUMBER[text] if text in NO_NUMBER else Decimal(text)


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
