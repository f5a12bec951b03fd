"""+ - * / % over values that are not null. By zero: `ArithmeticError` for whole numbers and decimals, as in Java."""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable
from typing import Any

from headrace.sql import numeric
from headrace.sql.numeric import EXACT
from headrace.types import BIGINT, DOUBLE, INTEGER, DataType, Decimal

Compute = Callable[[Any, Any], Any]

_WHOLE: dict[str, Compute] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": numeric.divide_integers,
    "%": numeric.remainder_integers,
}
_DOUBLE: dict[str, Compute] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": numeric.divide_doubles,
    "%": numeric.remainder_doubles,
}
_EXACT: dict[str, Compute] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "/": EXACT.divide,
    "%": EXACT.remainder,
}


def arithmetic(symbol: str, type_: DataType) -> Compute:
    """How to compute a result of that type."""
    if type_ == DOUBLE:
        return _DOUBLE[symbol]
    if isinstance(type_, Decimal):
        return _decimal(_EXACT[symbol], type_)
    compute, wrap = _WHOLE[symbol], {INTEGER: numeric.wrap_integer, BIGINT: numeric.wrap_bigint}[type_]
    return lambda left, right: wrap(compute(left, right))


def _decimal(compute: Compute, type_: Decimal) -> Compute:
    def apply(left: Any, right: Any) -> decimal.Decimal | None:
        return numeric.fit_decimal(compute(left, right), type_.precision, type_.scale)

    return apply
