"""CREATE TYPE: names in the place of types, looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from headrace.nearest import did_you_mean
from headrace.sql.clauses import TypeName
from headrace.sql.script import Script
from headrace.types import SIMPLE_TYPES, Array, DataType, Map, Struct

WRITTEN = (*SIMPLE_TYPES, "INT", "STRING", "DECIMAL", "ARRAY", "MAP", "STRUCT")


# What types are called in other SQLs.
ELSEWHERE = {
    "BINARY": "BYTES",
    "BLOB": "BYTES",
    "BOOL": "BOOLEAN",
    "BYTEA": "BYTES",
    "CHAR": "VARCHAR",
    "DATETIME": "TIMESTAMP",
    "FLOAT": "DOUBLE",
    "INT4": "INTEGER",
    "INT8": "BIGINT",
    "JSON": "VARCHAR, with EXTRACTJSONFIELD, or a STRUCT with its fields",
    "JSONB": "VARCHAR, with EXTRACTJSONFIELD, or a STRUCT with its fields",
    "LONG": "BIGINT",
    "NUMBER": "DECIMAL(precision, scale), BIGINT or DOUBLE",
    "NUMERIC": "DECIMAL(precision, scale)",
    "REAL": "DOUBLE",
    "SMALLINT": "INTEGER",
    "TEXT": "VARCHAR",
    "TIMESTAMPTZ": "TIMESTAMP",
    "TINYINT": "INTEGER",
    "UUID": "VARCHAR",
    "VARBINARY": "BYTES",
}


def known_type(type_: DataType, types: Mapping[str, DataType], script: Script) -> DataType:
    """The type with every name replaced by what it stands for; `SqlError` for one that is not there."""
    match type_:
        case Array(element):
            return Array(known_type(element, types, script))
        case Map(key, value):
            return Map(known_type(key, types, script), known_type(value, types, script))
        case Struct(fields):
            return Struct(tuple((name, known_type(field, types, script)) for name, field in fields))
        case _:
            return _looked_up(cast(object, type_), types, script)


def _looked_up(type_: object, types: Mapping[str, DataType], script: Script) -> DataType:
    if not isinstance(type_, TypeName):
        return cast(DataType, type_)
    if type_.name not in types:
        every = (*WRITTEN, *types)
        listed = f"types are {', '.join(every)}"
        elsewhere = ELSEWHERE.get(type_.name)
        hint = f"here it is {elsewhere}" if elsewhere else did_you_mean(type_.name, every, listed)
        raise script.error(f"unknown type `{type_.name}`", type_.span, hint)
    return types[type_.name]
