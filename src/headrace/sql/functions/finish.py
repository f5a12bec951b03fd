"""What an aggregate hands out, whoever has kept it: its value as its type can hold it."""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any

from headrace.sql.functions.aggregates import MOST_COLLECTED
from headrace.sql.numeric import fit_decimal, wrap_bigint, wrap_integer
from headrace.types import BigInt, Decimal, Integer

if TYPE_CHECKING:
    from headrace.sql.expressions import Call


def finish(call: Call, value: Any) -> Any:
    """As Spark's own aggregates have it: integers wrap, a sum that has outgrown its DECIMAL is null, lists have an end.
    What a function in Python gives is its own."""
    if call.function is not None:
        return value
    if call.name in ("COLLECT_LIST", "COLLECT_SET") and isinstance(value, list):
        return value[:MOST_COLLECTED]
    match call.type, value:
        case (_, bool()):
            return value
        case (Integer(), int()):
            return wrap_integer(value)
        case (BigInt(), int()):
            return wrap_bigint(value)
        case (Decimal(precision, scale), decimal.Decimal()):
            return fit_decimal(value, precision, scale)
        case _:
            return value
