"""The order of rows: nulls first, then values, NaN above all, as in Spark and SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headrace.sql.expressions import OrderItem
from headrace.sql.plan import Ordering
from headrace.store.rows import project_rows

Row: TypeAlias = tuple[Any, ...]


def sort_key(order: Sequence[Ordering | OrderItem], names: Sequence[str]) -> Callable[[Row], Any]:
    """By what a row is ordered among others."""
    compute = project_rows([one.expression for one in order], names)
    kinds = [Descending if one.descending else Ascending for one in order]
    return lambda row: tuple(kind(value) for kind, value in zip(kinds, compute(row), strict=True))


class Ascending:
    __slots__ = ("rank",)

    def __init__(self, value: Any) -> None:
        self.rank = (0, 0) if value is None else (1, value) if value == value else (2, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ascending) and self.rank == other.rank

    def __lt__(self, other: Ascending) -> bool:
        return self.rank < other.rank


class Descending(Ascending):
    __slots__ = ()

    def __lt__(self, other: Ascending) -> bool:
        return other.rank < self.rank


def sort_rows(rows: list[Row], order: Sequence[Ordering | OrderItem], names: Sequence[str]) -> list[Row]:
    """All of them, sorted: column after column, the last first, which is faster than comparing them together."""
    for one in reversed(order):
        compute = project_rows([one.expression], names)
        # Python keeps equals as they came, also in reverse.
        rows = sorted(rows, key=lambda row, value=compute: _rank(value(row)[0]), reverse=one.descending)  # type: ignore[misc]
    return rows


def _rank(value: Any) -> tuple[int, Any]:
    return (0, 0) if value is None else (1, value) if value == value else (2, 0)
