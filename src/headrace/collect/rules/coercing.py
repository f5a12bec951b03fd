"""`coerce`: text read as what a field is to be, and numbers written as text, where a collector says so. What cannot be
stays as it is, and the check that follows says why it does not fit."""

from __future__ import annotations

import re
from typing import Any

from headrace.collect.rules.fields import Change
from headrace.collect.rules.hiding import text_of
from headrace.collect.rules.settings import FieldType
from headrace.types import BigInt, Boolean, DataType, Double, Integer, Timestamp, Varchar

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")
_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def field_type(type_: DataType) -> FieldType | None:
    """What a column wants, of the types that text can be read as; None for the others."""
    match type_:
        case Integer() | BigInt():
            return "integer"
        case Double():
            return "number"
        case Boolean():
            return "boolean"
        case Timestamp():
            return "timestamp"
        case Varchar():
            return "string"
        case _:
            return None


def coercion(type_: FieldType) -> Change:
    """
    >>> [coercion("integer")(value) for value in ("12", " 7 ", 3.0, "1.5", "", True)]
    [12, 7, 3, '1.5', None, True]
    >>> coercion("boolean")("Yes"), coercion("string")(12), coercion("timestamp")("1700000000000")
    (True, '12', 1700000000000)
    """
    if type_ == "string":
        return lambda value: text_of(value) if type(value) in (int, float, bool) else value
    read = {"integer": _integer, "number": _number, "boolean": _boolean, "timestamp": _integer}.get(type_)
    if read is None:
        return lambda value: value

    def coerced(value: Any) -> Any:
        # What a form or a spreadsheet sends for a field that was left out.
        if type(value) is str and not value.strip():
            return None
        return read(value)

    return coerced


def _integer(value: Any) -> Any:
    if type(value) is str and _INTEGER.fullmatch(value.strip()):
        return int(value)
    if type(value) is float and value.is_integer():
        return int(value)
    return value


def _number(value: Any) -> Any:
    if type(value) is not str or not _NUMBER.fullmatch(value.strip()):
        return value
    return int(value) if _INTEGER.fullmatch(value.strip()) else float(value)


def _boolean(value: Any) -> Any:
    if type(value) is int and value in (0, 1):
        return bool(value)
    return _BOOLEANS.get(value.strip().casefold(), value) if type(value) is str else value
