"""Functions over arrays and maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.sql.functions.function import scalar
from headrace.sql.text import value_text


def distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    seen: set[Any] = set()
    for value in values:
        key = hashable(value)
        if key not in seen:
            seen.add(key)
            found.append(value)
    return found


def hashable(value: Any) -> Any:
    """What tells the value from others: equal for equal values, and hashable."""
    if isinstance(value, list):
        return ("array", tuple(hashable(element) for element in value))
    if isinstance(value, dict):
        return ("map", frozenset((key, hashable(element)) for key, element in value.items()))
    return (isinstance(value, bool), value)


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def apply(values: list[Any]) -> Any:
        known = [value for value in values if value is not None]
        return choose(known) if known else None

    return apply


def _join(values: list[Any] | None, delimiter: Any = ",") -> str | None:
    if values is None:
        return None
    return (delimiter or "").join("null" if value is None else value_text(value) for value in values)


def _sort(values: list[Any], direction: str = "ASC") -> list[Any] | None:
    if direction.upper() not in ("ASC", "ASCENDING", "DESC", "DESCENDING"):
        return None
    known = sorted((value for value in values if value is not None), reverse=direction.upper().startswith("D"))
    return known + [None] * (len(values) - len(known))


def _slice(values: list[Any] | None, start: int | None, end: int | None) -> list[Any] | None:
    """A bound that is null is that of the array; one that is outside makes the whole null."""
    if values is None:
        return None
    first, last = 1 if start is None else start, len(values) if end is None else end
    return values[first - 1 : last] if 0 < first <= last + 1 <= len(values) + 1 else None


def _transform(values: Any, first: Callable[..., Any], second: Callable[..., Any] | None = None) -> Any:
    if isinstance(values, dict):
        assert second is not None
        return {first(key, value): second(key, value) for key, value in values.items()}
    return [first(value) for value in values]


def _filter(values: Any, keep: Callable[..., Any]) -> Any:
    if isinstance(values, dict):
        return {key: value for key, value in values.items() if keep(key, value) is True}
    return [value for value in values if keep(value) is True]


def _reduce(values: Any, initial: Any, combine: Callable[..., Any]) -> Any:
    """Over nothing, or null, the initial value."""
    if initial is None:
        return None
    result = initial
    parts = values.items() if isinstance(values, dict) else ((value,) for value in values or ())
    for part in parts:
        result = combine(result, *part)
    return result


FUNCTIONS = (
    scalar(
        "ARRAY_CONTAINS",
        "(ARRAY<T>, T) -> BOOLEAN",
        lambda values, wanted: values is not None and wanted in values,
        "Whether the array has the value.",
        "ARRAY_CONTAINS(ARRAY[1, 2, 3], 2)",
        nulls=True,
    ),
    scalar("ARRAY_LENGTH", "(ARRAY<T>) -> INTEGER", len, "How many elements.", "ARRAY_LENGTH(ARRAY['a', 'b'])"),
    scalar(
        "ARRAY_DISTINCT",
        "(ARRAY<T>) -> ARRAY<T>",
        distinct,
        "Each element once, in the order they first come.",
        "ARRAY_DISTINCT(ARRAY[1, 2, 1])",
    ),
    scalar("ARRAY_MAX", "(ARRAY<C>) -> C", _extreme(max), "The largest element.", "ARRAY_MAX(ARRAY[1, 3, 2])"),
    scalar("ARRAY_MIN", "(ARRAY<C>) -> C", _extreme(min), "The smallest element.", "ARRAY_MIN(ARRAY[1, 3, 2])"),
    scalar(
        "ARRAY_JOIN",
        ("(ARRAY<T>) -> VARCHAR", "(ARRAY<T>, VARCHAR) -> VARCHAR"),
        _join,
        "The elements as text, with a delimiter (a comma) between them.",
        "ARRAY_JOIN(ARRAY['a', 'b'], '-')",
        nulls=True,
    ),
    scalar(
        "ARRAY_SORT",
        ("(ARRAY<C>) -> ARRAY<C>", "(ARRAY<C>, VARCHAR) -> ARRAY<C>"),
        _sort,
        "The elements in order, 'ASC' or 'DESC'; nulls last.",
        "ARRAY_SORT(ARRAY[3, 1, 2], 'DESC')",
    ),
    scalar(
        "SLICE",
        "(ARRAY<T>, INTEGER, INTEGER) -> ARRAY<T>",
        _slice,
        "The elements from one place to another, counted from 1, both included; null if the array has no such places.",
        "SLICE(ARRAY[1, 2, 3, 4], 2, 3)",
        nulls=True,
    ),
    scalar("MAP_KEYS", "(MAP<T, U>) -> ARRAY<T>", list, "The keys.", "MAP_KEYS(MAP('a' := 1))"),
    scalar(
        "MAP_VALUES",
        "(MAP<T, U>) -> ARRAY<U>",
        lambda entries: list(entries.values()),
        "The values.",
        "MAP_VALUES(MAP('a' := 1))",
    ),
    scalar(
        "TRANSFORM",
        ("(ARRAY<T>, T => U) -> ARRAY<U>", "(MAP<T, U>, (T, U) => V, (T, U) => W) -> MAP<V, W>"),
        _transform,
        "Every element changed by a lambda; of a map the keys by one and the values by another.",
        "TRANSFORM(ARRAY[1, 2, 3], x => x * 10)",
    ),
    scalar(
        "FILTER",
        ("(ARRAY<T>, T => BOOLEAN) -> ARRAY<T>", "(MAP<T, U>, (T, U) => BOOLEAN) -> MAP<T, U>"),
        _filter,
        "The elements for which a lambda is true.",
        "FILTER(ARRAY[1, 2, 3], x => x > 1)",
    ),
    scalar(
        "REDUCE",
        ("(ARRAY<T>, U, (U, T) => U) -> U", "(MAP<T, V>, U, (U, T, V) => U) -> U"),
        _reduce,
        "One value from all elements: begins with the second argument, and goes on with a lambda.",
        "REDUCE(ARRAY[1, 2, 3], 0, (sum, x) => sum + x)",
        nulls=True,
    ),
)
