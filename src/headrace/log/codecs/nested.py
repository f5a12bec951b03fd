"""Types within types: what a column may hold somewhere inside."""

from __future__ import annotations

from typing import Any

from headrace.types import Array, DataType, Decimal, Map, Struct


def has_struct(type_: DataType) -> bool:
    match type_:
        case Struct():
            return True
        case Array(element):
            return has_struct(element)
        case Map(_, value):
            return has_struct(value)
        case _:
            return False


def has_decimal(type_: DataType) -> bool:
    match type_:
        case Decimal():
            return True
        case Array(element):
            return has_decimal(element)
        case Map(key, value):
            return has_decimal(key) or has_decimal(value)
        case Struct(fields):
            return any(has_decimal(inner) for _, inner in fields)
        case _:
            return False


def undeclared(value: Any, type_: DataType) -> bool:
    """Does a value that fits hold fields its type does not declare?"""
    match type_:
        case Array(element) if isinstance(value, list):
            return any(undeclared(inner, element) for inner in value)
        case Map(_, inner_type) if isinstance(value, dict):
            return any(undeclared(inner, inner_type) for inner in value.values())
        case Struct(fields) if isinstance(value, dict):
            declared = {name.casefold(): inner for name, inner in fields}
            return any(
                name.casefold() not in declared or undeclared(inner, declared[name.casefold()])
                for name, inner in value.items()
            )
        case _:
            return False
