"""Keys of raw topics: bytes in the key's format."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.process.json_fields import json_value
from headrace.types import BigInt, Bytes, Integer, Varchar
from headrace.types import Column as Declared


def raw_key(key: Column, declared: Declared, key_format: str) -> Column:
    """`KAFKA` is text in UTF-8 or a number in network order; a key of another length is null."""
    if key_format.upper() == "JSON":
        return json_value(F.try_parse_json(key.cast("string")), declared.type)
    match declared.type:
        case Varchar():
            return key.cast("string")
        case Bytes():
            return key
        case Integer():
            return F.when(F.octet_length(key) == 4, _number(key).cast("int"))
        case BigInt():
            return F.when(F.octet_length(key) == 8, _number(key))
    raise AssertionError(f"a key of type {declared.type} is read by its codec")


def _number(key: Column) -> Column:
    """The bytes as hexadecimal digits, and those as a number of 64 bits with a sign (the minus before the base)."""
    return F.conv(F.hex(key), 16, -10).cast("long")
