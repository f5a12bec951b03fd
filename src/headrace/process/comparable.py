"""Values that Spark can compare, hash and sort: maps are not, so they become sorted entries."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.types import Array, DataType, Map, Struct


def has_map(type_: DataType) -> bool:
    match type_:
        case Map():
            return True
        case Array(element):
            return has_map(element)
        case Struct(fields):
            return any(has_map(field) for _, field in fields)
        case _:
            return False


def comparable(value: Column, type_: DataType) -> Column:
    """The value itself, unless there is a map in it. Equal values stay equal, others different."""
    if not has_map(type_):
        return value
    match type_:
        case Map(_, item):
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    entry.getField("key").alias("key"), comparable(entry.getField("value"), item).alias("value")
                ),
            )
            return F.array_sort(entries)
        case Array(element):
            return F.transform(value, lambda inner: comparable(inner, element))
        case Struct(fields):
            inner = [comparable(value.getField(name), field).alias(name) for name, field in fields]
            return F.when(value.isNotNull(), F.struct(*inner))
        case _:
            return value
