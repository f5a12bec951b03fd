"""Values beside Kafka Connect's schema → values as SQL has them: dates, times, decimals that JSON has no words for."""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
from typing import Any

from headrace.collect.translate import iso

_EPOCH = datetime.date(1970, 1, 1)
_DAY_MS = 86_400_000
_FIRST_MS, _LATEST_MS = -62_135_596_800_000, 253_402_300_800_000
"""The years 1 to 9999, which are those that ISO 8601 has without agreement."""
MAX_DEPTH = 64
MAX_DECIMAL = 400
"""Characters of a decimal's bytes in base64; no database has longer ones, and making them takes long."""


def convert(value: Any, schema: Any, depth: int = 0) -> Any:
    """As the schema says; what does not fit it stays as it is, and is the topic's to judge.

    >>> convert(19000, {"type": "int32", "name": "io.debezium.time.Date"})
    '2022-01-08'
    >>> number = "org.apache.kafka.connect.data.Decimal"
    >>> convert("AGQ=", {"type": "bytes", "name": number, "parameters": {"scale": "1"}})
    Decimal('10.0')
    """
    if value is None or type(schema) is not dict or depth > MAX_DEPTH:
        return value
    logical = schema.get("name")
    if type(logical) is str and (made := _logical(value, logical, schema.get("parameters"))) is not None:
        return made
    match schema.get("type"):
        case "struct" if type(value) is dict:
            fields = schema.get("fields")
            shapes = {each.get("field"): each for each in fields if type(each) is dict} if type(fields) is list else {}
            return {name: convert(inner, shapes.get(name), depth + 1) for name, inner in value.items()}
        case "array" if type(value) is list:
            return [convert(inner, schema.get("items"), depth + 1) for inner in value]
        case "map" if type(value) is dict:
            return {name: convert(inner, schema.get("values"), depth + 1) for name, inner in value.items()}
        case _:
            return value


def _logical(value: Any, name: str, parameters: Any) -> Any:
    if type(value) is int:
        match name.rpartition(".")[2]:
            case "Date" if abs(value) < 700_000:
                return (_EPOCH + datetime.timedelta(days=value)).isoformat()
            case "Timestamp":
                return _moment(value, 1)
            case "MicroTimestamp":
                return _moment(value, 1_000)
            case "NanoTimestamp":
                return _moment(value, 1_000_000)
            case "Time":
                return _time_of_day(value, 1)
            case "MicroTime":
                return _time_of_day(value, 1_000)
            case "NanoTime":
                return _time_of_day(value, 1_000_000)
            case _:
                return None
    if name == "io.debezium.time.ZonedTime" and type(value) is str:
        return value.removesuffix("Z")  # Debezium has made it UTC, which SQL's times are
    if name == "org.apache.kafka.connect.data.Decimal" and type(parameters) is dict:
        return _decimal(value, parameters.get("scale"))
    if name == "io.debezium.data.VariableScaleDecimal" and type(value) is dict:
        return _decimal(value.get("value"), value.get("scale"))
    return None


def _moment(value: int, per_ms: int) -> str | None:
    time_ms, rest = divmod(value, per_ms)
    if not _FIRST_MS <= time_ms < _LATEST_MS:
        return None
    micros = rest * 1000 // per_ms
    return iso(time_ms) if not micros else f"{iso(time_ms)[:-1]}{micros:03d}Z"


def _time_of_day(value: int, per_ms: int) -> str | None:
    return moment[11:-1] if 0 <= value < _DAY_MS * per_ms and (moment := _moment(value, per_ms)) else None


def _decimal(encoded: Any, scale: Any) -> decimal.Decimal | None:
    if type(encoded) is not str or len(encoded) > MAX_DECIMAL:
        return None
    try:
        unscaled = int.from_bytes(base64.b64decode(encoded, validate=True), "big", signed=True)
        digits = int(scale)
    except (binascii.Error, ValueError, TypeError):
        return None
    if abs(digits) > 1000:
        return None
    return decimal.Decimal(unscaled).scaleb(-digits, decimal.Context(prec=2000))
