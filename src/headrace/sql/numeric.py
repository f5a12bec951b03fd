"""Numbers as Java, so also KSQL and Spark, has them: integers that wrap at 32 and 64 bits, doubles and their text."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from typing import Any

# Exact within any precision a DECIMAL can reach; rounding is always asked for.
EXACT = decimal.Context(
    prec=100, rounding=decimal.ROUND_HALF_UP, traps=[decimal.InvalidOperation, decimal.DivisionByZero]
)

INTEGER_MIN, INTEGER_MAX = -(2**31), 2**31 - 1
BIGINT_MIN, BIGINT_MAX = -(2**63), 2**63 - 1


def wrap_integer(value: int) -> int:
    """As an int of 32 bits keeps it."""
    return (value + 2**31) % 2**32 - 2**31


def wrap_bigint(value: int) -> int:
    """As a long of 64 bits keeps it."""
    return (value + 2**63) % 2**64 - 2**63


def plus(left: Any, right: Any) -> Any:
    """The sum of two numbers of a kind. Python itself rounds decimals to 28 digits; a DECIMAL has up to 38.

    >>> plus(Decimal("1e30"), Decimal("0.01"))
    Decimal('1000000000000000000000000000000.01')
    """
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return EXACT.add(left, right)
    return left + right


def minus(left: Any, right: Any) -> Any:
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return EXACT.subtract(left, right)
    return left - right


def saturate_integer(value: float) -> int:
    """A double as an int: cut, and the nearest int if it is out of range."""
    return _saturate(value, INTEGER_MIN, INTEGER_MAX)


def saturate_bigint(value: float) -> int:
    return _saturate(value, BIGINT_MIN, BIGINT_MAX)


def _saturate(value: float, low: int, high: int) -> int:
    if math.isnan(value):
        return 0
    return high if value >= high else low if value <= low else int(value)


def divide_integers(left: int, right: int) -> int:
    """Towards zero; `ZeroDivisionError` by zero."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def remainder_integers(left: int, right: int) -> int:
    """With the sign of the left side."""
    return left - right * divide_integers(left, right)


def divide_doubles(left: float, right: float) -> float:
    if right != 0 or math.isnan(right):
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def remainder_doubles(left: float, right: float) -> float:
    return math.nan if right == 0 or math.isinf(left) else math.fmod(left, right)


def double_text(value: float) -> str:
    """
    >>> double_text(1.0), double_text(12345678.9), double_text(0.0001)
    ('1.0', '1.23456789E7', '1.0E-4')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value)) if "e" not in repr(float(value)) else f"{value:f}"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) - 1 + int(exponent)
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def fit_decimal(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """At the scale, rounded half up; None if it has more digits than the precision."""
    if not value.is_finite():
        return None
    fitted = value.quantize(Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP, EXACT)
    return fitted if len(fitted.as_tuple().digits) <= precision or fitted == 0 else None
