"""Aggregates that keep values as they are: the largest, the first, the last, all of them."""

from __future__ import annotations

from typing import Any

from headrace.sql.functions.arrays import hashable
from headrace.sql.functions.function import Steps, aggregate
from headrace.types import Array, DataType, Struct

# TOPK, TOPKDISTINCT: the largest so far, largest first


def _top(state: tuple[Any, ...], more: tuple[Any, ...], count: int, distinct: bool) -> tuple[Any, ...]:
    """`state` and `more` are (sort value, whole entry); of equals the earlier comes first."""
    entries = state + more
    if distinct:
        entries = tuple({entry[0]: entry for entry in reversed(entries)}.values())[::-1]
    return tuple(sorted(entries, key=lambda entry: entry[0], reverse=True)[:count])


def _topk(distinct: bool) -> Steps:
    def add(state: tuple[int, tuple[Any, ...]], value: Any, *rest: Any) -> tuple[int, tuple[Any, ...]]:
        *others, count = rest
        named = {"sort_col": value, **{f"col{index}": other for index, other in enumerate(others)}}
        return count, _top(state[1], ((value, named if others else value),), count, distinct)

    return Steps(
        init=lambda: (0, ()),
        add=add,
        merge=lambda left, right: (max(left[0], right[0]), _top(left[1], right[1], max(left[0], right[0]), distinct)),
        result=lambda state: [entry for _, entry in state[1]],
    )


def _topk_type(types: tuple[DataType, ...]) -> DataType:
    """With more columns than one, a struct of them."""
    first, *others, _ = types
    if not others:
        return Array(first)
    return Array(Struct((("sort_col", first), *((f"col{index}", type_) for index, type_ in enumerate(others)))))


# LATEST_BY_OFFSET, EARLIEST_BY_OFFSET: (arrival, value) of those that count, by arrival


def _by_offset(latest: bool) -> Steps:
    def keep(entries: tuple[Any, ...], count: int) -> tuple[Any, ...]:
        ordered = tuple(sorted(entries, key=lambda entry: entry[0]))
        return ordered[-count:] if latest else ordered[:count]

    def add(state: Any, arrival: int, value: Any, *options: Any) -> Any:
        several = bool(options) and not isinstance(options[0], bool)
        count = options[0] if several else 1
        ignore = options[-1] if options and isinstance(options[-1], bool) else True
        entries = () if state is None else state[2]
        if value is not None or not ignore:
            entries = keep((*entries, (arrival, value)), count)
        return count, several, entries

    def merge(left: Any, right: Any) -> Any:
        if left is None or right is None:
            return left or right
        return left[0], left[1], keep(left[2] + right[2], left[0])

    def result(state: Any) -> Any:
        if state is None:
            return None
        values = [value for _, value in state[2]]
        return values if state[1] else values[0] if values else None

    return Steps(init=lambda: None, add=add, merge=merge, result=result, nulls=True, ordered=True)


# COLLECT_LIST, COLLECT_SET: (arrival, value), by arrival


def _merge_entries(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(left + right, key=lambda entry: entry[0]))


def _take_away(state: tuple[Any, ...], arrival: int, value: Any) -> tuple[Any, ...]:
    """The last one like it."""
    for index in reversed(range(len(state))):
        if hashable(state[index][1]) == hashable(value):
            return state[:index] + state[index + 1 :]
    return state


_COLLECT_LIST = Steps(
    init=tuple,
    add=lambda state, arrival, value: _merge_entries(state, ((arrival, value),)),
    undo=_take_away,
    merge=_merge_entries,
    result=lambda state: [value for _, value in state],
    nulls=True,
    ordered=True,
)


def _first_ones(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    found: dict[Any, Any] = {}
    for entry in entries:
        found.setdefault(hashable(entry[1]), entry)
    return tuple(found.values())


_COLLECT_SET = Steps(
    init=tuple,
    add=lambda state, arrival, value: _first_ones(_merge_entries(state, ((arrival, value),))),
    merge=lambda left, right: _first_ones(_merge_entries(left, right)),
    result=lambda state: [value for _, value in state],
    nulls=True,
    ordered=True,
)

_BY_OFFSET = ("(T) -> T", "(T, BOOLEAN) -> T", "(T, INTEGER) -> ARRAY<T>", "(T, INTEGER, BOOLEAN) -> ARRAY<T>")

FUNCTIONS = (
    aggregate(
        "TOPK",
        (
            "(C, INTEGER) -> ARRAY<C>",
            "(C, A, INTEGER) -> ARRAY<C>",
            "(C, A, B, INTEGER) -> ARRAY<C>",
            "(C, A, B, D, INTEGER) -> ARRAY<C>",
            "(C, A, B, D, E, INTEGER) -> ARRAY<C>",
        ),
        _topk(distinct=False),
        "The k largest values, largest first. With further columns, structs of `sort_col`, `col0`, `col1`.",
        "TOPK(amount, 3)",
        type_rule=_topk_type,
    ),
    aggregate(
        "TOPKDISTINCT",
        "(C, INTEGER) -> ARRAY<C>",
        _topk(distinct=True),
        "The k largest different values, largest first.",
        "TOPKDISTINCT(amount, 3)",
    ),
    aggregate(
        "LATEST_BY_OFFSET",
        _BY_OFFSET,
        _by_offset(latest=True),
        "The value that arrived last, or the last n as an array; nulls do not count, unless FALSE is given last.",
        "LATEST_BY_OFFSET(product)",
    ),
    aggregate(
        "EARLIEST_BY_OFFSET",
        _BY_OFFSET,
        _by_offset(latest=False),
        "The value that arrived first, or the first n as an array; nulls do not count, unless FALSE is given last.",
        "EARLIEST_BY_OFFSET(product, 2)",
    ),
    aggregate(
        "COLLECT_LIST", "(T) -> ARRAY<T>", _COLLECT_LIST, "All values, as they arrived.", "COLLECT_LIST(product)"
    ),
    aggregate(
        "COLLECT_SET",
        "(T) -> ARRAY<T>",
        _COLLECT_SET,
        "Each different value once, as they first arrived.",
        "COLLECT_SET(product)",
    ),
)
