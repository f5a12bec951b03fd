"""Functions about nulls, choices, and columns as they are."""

from __future__ import annotations

from typing import Any

from headrace.sql.functions.function import scalar


def coalesce(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def nullif(value: Any, unwanted: Any) -> Any:
    return None if value == unwanted else value


def greatest(*values: Any) -> Any:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def least(*values: Any) -> Any:
    known = [value for value in values if value is not None]
    return min(known) if known else None


FUNCTIONS = (
    scalar("COALESCE", "(T...) -> T", coalesce, "The first that is not null.", "COALESCE(NULL, 'b')", nulls=True),
    scalar("IFNULL", "(T, T) -> T", coalesce, "The first, or the second if it is null.", "IFNULL(NULL, 0)", nulls=True),
    scalar("NULLIF", "(T, T) -> T", nullif, "The first, or null if both are equal.", "NULLIF('', '')", nulls=True),
    scalar("GREATEST", "(C...) -> C", greatest, "The largest; nulls do not count.", "GREATEST(3, 7, 5)", nulls=True),
    scalar("LEAST", "(C...) -> C", least, "The smallest; nulls do not count.", "LEAST(3, 7, 5)", nulls=True),
    scalar(
        "AS_VALUE",
        "(T) -> T",
        lambda value: value,
        "The column itself: a copy of a key column among the values.",
        "AS_VALUE('key')",
        nulls=True,
    ),
)
