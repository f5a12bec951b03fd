"""Aggregates of questions over lists of values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from headrace.deliver.ask.folds import fold_of
from headrace.sql.expressions import Call, ColumnRef
from headrace.types import BIGINT, DOUBLE, INTEGER, DataType
from headrace.types import Decimal as DecimalType

LARGE, SMALL = Decimal("1234567890123456789012345678901234.56"), Decimal("0.01")


@pytest.mark.parametrize(
    ("name", "type_", "values", "result"),
    [
        ("SUM", DecimalType(38, 2), [LARGE, None, SMALL], Decimal("1234567890123456789012345678901234.57")),
        ("SUM", DecimalType(4, 2), [Decimal("99.99"), SMALL], None),
        ("SUM", BIGINT, [2**63 - 1, 2], -(2**63) + 1),
        ("SUM", INTEGER, [2_000_000_000] * 3, 6_000_000_000 - 2**32),
        ("AVG", DOUBLE, [LARGE, LARGE.copy_negate(), SMALL, SMALL], 0.005),
    ],
)
def test_sums_are_exact_and_what_their_type_holds(name: str, type_: DataType, values: list[Any], result: Any) -> None:
    make = fold_of(Call(name, (ColumnRef("X", type=type_),), type=type_))
    together, apart = make(), make()
    together.add([(value,) for value in values], 0)
    for number, value in enumerate(values):
        apart.add([(value,)], number)
    assert together.result() == apart.result() == result
