"""Functions over numbers."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from typing import Any

from headrace.sql.functions.function import scalar
from headrace.sql.numeric import EXACT, saturate_bigint, wrap_bigint
from headrace.types import BIGINT, DataType
from headrace.types import Decimal as DecimalType

Number = int | float | Decimal


def _absolute(value: Number) -> Number:
    return value.copy_abs() if isinstance(value, Decimal) else abs(value)


def _towards(rounding: str, of_double: Any) -> Any:
    def apply(value: Number) -> Number:
        if isinstance(value, Decimal):
            scale = Decimal(1).scaleb(value.as_tuple().exponent)  # type: ignore[arg-type]
            return value.quantize(Decimal(1), rounding, EXACT).quantize(scale, context=EXACT)
        if isinstance(value, float):
            return float(of_double(value)) if math.isfinite(value) else value
        return value

    return apply


def _rescale(value: Number, places: int, rounding: str) -> Number:
    """The value at a number of places, which may be negative; a decimal keeps its scale."""
    if isinstance(value, float):
        return float(_quantize(Decimal(repr(value)), places, rounding))
    if isinstance(value, int):
        return wrap_bigint(int(_quantize(Decimal(value), places, rounding)))
    scale = -int(value.as_tuple().exponent)
    return _quantize(_quantize(value, min(places, scale), rounding), scale, rounding)


def _quantize(value: Decimal, places: int, rounding: str) -> Decimal:
    if not value.is_finite():
        raise ValueError("what is not a number has no decimal places")
    places = max(min(places, 60), -60)
    return value.quantize(Decimal(1).scaleb(-places), rounding, EXACT)


def _round(value: Number, places: int | None = None) -> Number:
    # What lies in the middle goes up, towards the larger number: -2.5 becomes -2, as with Java's Math.round.
    half = ROUND_HALF_UP if value > 0 else ROUND_HALF_DOWN
    if places is not None:
        return _rescale(value, places, half)
    if isinstance(value, float):
        return saturate_bigint(math.floor(value + 0.5) if math.isfinite(value) else value)
    return value.quantize(Decimal(1), half, EXACT) if isinstance(value, Decimal) else value


def _truncate(value: Number, places: int | None = None) -> Number:
    if places is not None:
        return _rescale(value, places, ROUND_DOWN)
    if isinstance(value, float):
        return saturate_bigint(math.trunc(value) if math.isfinite(value) else value)
    return value.quantize(Decimal(1), ROUND_DOWN, EXACT) if isinstance(value, Decimal) else value


def _rounded_type(types: tuple[DataType, ...]) -> DataType:
    """Without places a number becomes a BIGINT, a DECIMAL one of scale 0. With places it keeps its type."""
    cut = _cut_type(types)
    if isinstance(cut, DecimalType) and len(types) == 1 and cut != types[0]:
        # One digit more, for 9.9.
        return DecimalType(min(cut.precision + 1, 38), 0)
    return cut


def _cut_type(types: tuple[DataType, ...]) -> DataType:
    first = types[0]
    if len(types) > 1:
        return first
    return DecimalType(max(first.precision - first.scale, 1), 0) if isinstance(first, DecimalType) else BIGINT


def _sign(value: Number) -> int:
    return (value > 0) - (value < 0)


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.inf if base == 0 else math.nan


def _ln(value: float) -> float:
    return math.log(value) if value > 0 else (-math.inf if value == 0 else math.nan)


def _log(base: float, value: float) -> float:
    return math.nan if base <= 0 or base == 1 else _ln(value) / _ln(base)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


_ROUNDING = ("(N) -> N", "(N, INTEGER) -> N")

FUNCTIONS = (
    scalar("ABS", "(N) -> N", _absolute, "Without its sign.", "ABS(-3)"),
    scalar(
        "ROUND",
        _ROUNDING,
        _round,
        "To the nearest whole number, or to a number of decimal places (negative ones are tens); -2.5 to -2.",
        "ROUND(3.14159, 2)",
        type_rule=_rounded_type,
    ),
    scalar(
        "TRUNC",
        _ROUNDING,
        _truncate,
        "Cut to a whole number, or to a number of decimal places.",
        "TRUNC(3.99)",
        type_rule=_cut_type,
    ),
    scalar("CEIL", "(N) -> N", _towards(ROUND_CEILING, math.ceil), "The next whole number up.", "CEIL(3.1)"),
    scalar("FLOOR", "(N) -> N", _towards(ROUND_FLOOR, math.floor), "The next whole number down.", "FLOOR(3.9)"),
    scalar("SIGN", "(N) -> INTEGER", _sign, "-1, 0 or 1.", "SIGN(-7)"),
    scalar(
        "SQRT",
        "(DOUBLE) -> DOUBLE",
        lambda value: math.sqrt(value) if value >= 0 else math.nan,
        "The square root.",
        "SQRT(16)",
    ),
    scalar("POWER", "(DOUBLE, DOUBLE) -> DOUBLE", _power, "The first to the power of the second.", "POWER(2, 10)"),
    scalar("EXP", "(DOUBLE) -> DOUBLE", _exp, "e to that power.", "EXP(1)"),
    scalar("LN", "(DOUBLE) -> DOUBLE", _ln, "The natural logarithm.", "LN(10)"),
    scalar(
        "LOG",
        ("(DOUBLE) -> DOUBLE", "(DOUBLE, DOUBLE) -> DOUBLE"),
        lambda first, second=None: _ln(first) if second is None else _log(first, second),
        "The natural logarithm, or that of the second to the base of the first.",
        "LOG(2, 8)",
    ),
)
