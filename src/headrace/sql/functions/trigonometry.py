"""Functions of angles, and what else is computed from doubles."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from headrace.sql.functions.function import Function, scalar

_KILOMETERS = ("", "km", "kilometer", "kilometers", "kilometre", "kilometres")
_RADIUS = dict.fromkeys(_KILOMETERS, 6371.0) | dict.fromkeys(("mi", "mile", "miles"), 3959.0)


def _or_nan(compute: Callable[[float], float]) -> Callable[[float], float]:
    """Not a number where Python raises, as in Java; too large is infinite."""

    def apply(value: float) -> float:
        try:
            return compute(value)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.copysign(math.inf, compute(math.copysign(1.0, value)))

    return apply


def _cotangent(value: float) -> float:
    tangent = math.tan(value)
    return math.copysign(math.inf, tangent) if tangent == 0 else 1 / tangent


def _cube_root(value: float) -> float:
    """Exact where there is an exact one, which not every C library gives."""
    root = math.cbrt(value)
    whole = float(round(root)) if math.isfinite(root) else root
    return whole if whole**3 == value else root


def geo_distance(
    lat1: float | None, lon1: float | None, lat2: float | None, lon2: float | None, unit: str | None = None
) -> float | None:
    """By the haversine formula on a sphere, in kilometers unless another unit is given."""
    if lat1 is None or lon1 is None or lat2 is None or lon2 is None:
        return None
    if not (-90 <= lat1 <= 90 and -90 <= lat2 <= 90 and -180 <= lon1 <= 180 and -180 <= lon2 <= 180):
        raise ValueError("latitudes go from -90 to 90, longitudes from -180 to 180")
    north, east = math.radians(lat2 - lat1), math.radians(lon2 - lon1)
    chord = math.sin(north / 2) ** 2
    chord += math.sin(east / 2) ** 2 * math.cos(math.radians(lat1)) * math.cos(math.radians(lat2))
    return _RADIUS[(unit or "").strip().lower()] * 2 * math.asin(min(math.sqrt(chord), 1.0))


def _of_angle(name: str, compute: Callable[[float], float], summary: str, argument: str = "1") -> Function:
    return scalar(name, "(DOUBLE) -> DOUBLE", _or_nan(compute), summary, f"{name}({argument})")


FUNCTIONS = (
    _of_angle("SIN", math.sin, "The sine of an angle in radians."),
    _of_angle("COS", math.cos, "The cosine."),
    _of_angle("TAN", math.tan, "The tangent."),
    _of_angle("COT", _cotangent, "The cotangent; infinite of 0."),
    _of_angle("ASIN", math.asin, "The angle whose sine it is."),
    _of_angle("ACOS", math.acos, "The angle whose cosine it is."),
    _of_angle("ATAN", math.atan, "The angle whose tangent it is."),
    scalar("ATAN2", "(DOUBLE, DOUBLE) -> DOUBLE", math.atan2, "The angle of the point (x, y), y first.", "ATAN2(1, 1)"),
    _of_angle("SINH", math.sinh, "The hyperbolic sine."),
    _of_angle("COSH", math.cosh, "The hyperbolic cosine."),
    _of_angle("TANH", math.tanh, "The hyperbolic tangent."),
    _of_angle("DEGREES", math.degrees, "An angle in degrees instead of radians.", "PI()"),
    _of_angle("RADIANS", math.radians, "An angle in radians instead of degrees.", "180"),
    scalar("PI", "() -> DOUBLE", lambda: math.pi, "The ratio of a circle's circumference to its diameter.", "PI()"),
    _of_angle("CBRT", _cube_root, "The cube root.", "27"),
    scalar(
        "RANDOM", "() -> DOUBLE", random.random, "A random number from 0 up to, but not including, 1.", "RANDOM() < 1"
    ),
    scalar(
        "GEO_DISTANCE",
        ("(DOUBLE, DOUBLE, DOUBLE, DOUBLE) -> DOUBLE", "(DOUBLE, DOUBLE, DOUBLE, DOUBLE, VARCHAR) -> DOUBLE"),
        geo_distance,
        "How far apart two points on earth are, each as latitude and longitude, in 'KM' or 'MILES'.",
        "GEO_DISTANCE(0, 0, 0, 90)",
        nulls=True,
    ),
)
