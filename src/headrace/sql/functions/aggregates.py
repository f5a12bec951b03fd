"""Aggregates. Each also has the plain meaning others are compared with: its value over a list of one group's values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from headrace.sql.functions.arrays import distinct
from headrace.sql.functions.function import aggregate


def _known(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _sum(values: list[Any]) -> Any:
    known = _known(values)
    return sum(known, Decimal(0) if known and isinstance(known[0], Decimal) else 0)


def _average(values: list[Any]) -> float | None:
    known = _known(values)
    return float(sum(known)) / len(known) if known else None


FUNCTIONS = (
    aggregate(
        "COUNT",
        ("() -> BIGINT", "(T) -> BIGINT"),
        lambda values: len(_known(values)),
        "How many rows, or how many where the argument is not null.",
        "COUNT(*)",
    ),
    aggregate(
        "COUNT_DISTINCT",
        "(T) -> BIGINT",
        lambda values: len(distinct(_known(values))),
        "How many different values.",
        "COUNT_DISTINCT(userid)",
    ),
    aggregate("SUM", "(N) -> N", _sum, "The sum.", "SUM(amount)"),
    aggregate("AVG", "(N) -> DOUBLE", _average, "The mean.", "AVG(amount)"),
    aggregate("MIN", "(C) -> C", lambda values: min(_known(values), default=None), "The smallest.", "MIN(amount)"),
    aggregate("MAX", "(C) -> C", lambda values: max(_known(values), default=None), "The largest.", "MAX(amount)"),
)
