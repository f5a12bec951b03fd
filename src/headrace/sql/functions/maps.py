"""Functions that combine arrays and maps."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from headrace.sql.functions.arrays import distinct, hashable
from headrace.sql.functions.function import scalar
from headrace.types import VARCHAR, Array, DataType, Map, Struct

_LONGEST_SERIES = 10_000_000


def _except(values: list[Any], unwanted: list[Any]) -> list[Any]:
    gone = {hashable(value) for value in unwanted}
    return [value for value in distinct(values) if hashable(value) not in gone]


def _intersect(left: list[Any], right: list[Any]) -> list[Any]:
    both = {hashable(value) for value in right}
    return [value for value in distinct(left) if hashable(value) in both]


def _concat(left: list[Any] | None, right: list[Any] | None) -> list[Any] | None:
    return None if left is None and right is None else [*(left or []), *(right or [])]


def _remove(values: list[Any] | None, unwanted: Any) -> list[Any] | None:
    return None if values is None else [value for value in values if hashable(value) != hashable(unwanted)]


def _union_maps(left: dict[Any, Any] | None, right: dict[Any, Any] | None) -> dict[Any, Any] | None:
    return None if left is None and right is None else {**(left or {}), **(right or {})}


def _entries(entries: dict[str, Any], ordered: bool) -> list[dict[str, Any]]:
    keys = sorted(entries) if ordered else list(entries)
    return [{"K": key, "V": entries[key]} for key in keys]


def _entries_type(types: tuple[DataType, ...]) -> DataType:
    assert isinstance(types[0], Map)
    return Array(Struct((("K", VARCHAR), ("V", types[0].value))))


def _series(start: int, end: int, step: int | None = None) -> list[int]:
    """Both ends included; downwards if the end is before the start."""
    by = step if step is not None else (1 if start <= end else -1)
    if by == 0 or (end - start) * by < 0:
        raise ValueError("the step does not lead from the start to the end")
    if (end - start) // by >= _LONGEST_SERIES:
        raise ValueError("the series is too long")
    return list(range(start, end + (1 if by > 0 else -1), by))


def _choose(position: int | None, *texts: str | None) -> str | None:
    return texts[position - 1] if position is not None and 1 <= position <= len(texts) else None


def _position(wanted: str | None, *texts: str | None) -> int:
    return texts.index(wanted) + 1 if wanted is not None and wanted in texts else 0


FUNCTIONS = (
    scalar(
        "ARRAY_CONCAT",
        "(ARRAY<T>, ARRAY<T>) -> ARRAY<T>",
        _concat,
        "One array after the other; a null one is as an empty one, unless both are.",
        "ARRAY_CONCAT(ARRAY[1, 2], ARRAY[2, 3])",
        nulls=True,
    ),
    scalar(
        "ARRAY_UNION",
        "(ARRAY<T>, ARRAY<T>) -> ARRAY<T>",
        lambda left, right: distinct(left + right),
        "Each value of either array, once.",
        "ARRAY_UNION(ARRAY[1, 2], ARRAY[2, 3])",
    ),
    scalar(
        "ARRAY_INTERSECT",
        "(ARRAY<T>, ARRAY<T>) -> ARRAY<T>",
        _intersect,
        "Each value that both arrays have, once.",
        "ARRAY_INTERSECT(ARRAY[1, 2], ARRAY[2, 3])",
    ),
    scalar(
        "ARRAY_EXCEPT",
        "(ARRAY<T>, ARRAY<T>) -> ARRAY<T>",
        _except,
        "Each value of the first array that the second has not, once.",
        "ARRAY_EXCEPT(ARRAY[1, 2], ARRAY[2, 3])",
    ),
    scalar(
        "ARRAY_REMOVE",
        "(ARRAY<T>, T) -> ARRAY<T>",
        _remove,
        "The array without a value, which may be null.",
        "ARRAY_REMOVE(ARRAY[1, 2, 1], 1)",
        nulls=True,
    ),
    scalar(
        "AS_MAP",
        "(ARRAY<T>, ARRAY<U>) -> MAP<T, U>",
        lambda keys, values: dict(zip_longest(keys, values[: len(keys)])),
        "A map of an array of keys and one of values; where there are fewer values, the others are null.",
        "AS_MAP(ARRAY['a', 'b'], ARRAY[1, 2])",
    ),
    scalar(
        "MAP_UNION",
        "(MAP<T, U>, MAP<T, U>) -> MAP<T, U>",
        _union_maps,
        "The entries of both maps; the second's where both have a key.",
        "MAP_UNION(MAP('a' := 1), MAP('a' := 2, 'b' := 3))",
        nulls=True,
    ),
    scalar(
        "ENTRIES",
        "(MAP<VARCHAR, T>, BOOLEAN) -> ARRAY<T>",
        _entries,
        "The entries as structs of `K` and `V`; ordered by key if the second is true.",
        "ENTRIES(MAP('b' := 1, 'a' := 2), TRUE)",
        type_rule=_entries_type,
    ),
    scalar(
        "GENERATE_SERIES",
        (
            "(INTEGER, INTEGER) -> ARRAY<INTEGER>",
            "(INTEGER, INTEGER, INTEGER) -> ARRAY<INTEGER>",
            "(BIGINT, BIGINT) -> ARRAY<BIGINT>",
            "(BIGINT, BIGINT, INTEGER) -> ARRAY<BIGINT>",
        ),
        _series,
        "The numbers from one to another, both included, by a step.",
        "GENERATE_SERIES(1, 9, 4)",
    ),
    scalar(
        "ELT",
        "(INTEGER, VARCHAR...) -> VARCHAR",
        _choose,
        "The n-th of the texts, counted from 1.",
        "ELT(2, 'a', 'b')",
        nulls=True,
    ),
    scalar(
        "FIELD",
        "(VARCHAR, VARCHAR...) -> INTEGER",
        _position,
        "Which of the texts is the first one, counted from 1; 0 if none is.",
        "FIELD('b', 'a', 'b')",
        nulls=True,
    ),
)
