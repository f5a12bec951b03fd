"""Types and schemas in ksqlDB's words, as text and as its JSON objects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from headrace.types import Array, Column, DataType, Decimal, Map, Struct, Varchar


def type_text(type_: DataType) -> str:
    """
    >>> type_text(Map(Varchar(), Struct((("a", Decimal(4, 2)),))))
    'MAP<STRING, STRUCT<`a` DECIMAL(4, 2)>>'
    """
    match type_:
        case Varchar():
            return "STRING"
        case Array(element):
            return f"ARRAY<{type_text(element)}>"
        case Map(key, value):
            return f"MAP<{type_text(key)}, {type_text(value)}>"
        case Struct(fields):
            return "STRUCT<" + ", ".join(f"{quoted(name)} {type_text(field)}" for name, field in fields) + ">"
        case _:
            return str(type_)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def schema_text(columns: Sequence[Column], keys: Collection[str] = ()) -> str:
    """The header of an answer."""
    return ", ".join(
        f"{quoted(column.name)} {type_text(column.type)}" + (" KEY" if column.name in keys else "")
        for column in columns
    )


def schema_json(type_: DataType) -> dict[str, Any]:
    """The type of a field in a description."""
    body: dict[str, Any] = {"type": _plain(type_), "fields": None, "memberSchema": None}
    match type_:
        case Array(element):
            body["memberSchema"] = schema_json(element)
        case Map(_, value):
            body["memberSchema"] = schema_json(value)
        case Struct(fields):
            body["fields"] = [{"name": name, "schema": schema_json(field)} for name, field in fields]
        case Decimal(precision, scale):
            body["parameters"] = {"precision": precision, "scale": scale}
    return body


def _plain(type_: DataType) -> str:
    return type_text(type_).partition("<")[0].partition("(")[0]
