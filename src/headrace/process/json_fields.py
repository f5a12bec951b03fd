"""Columns out of JSON text: fields of `$rest` that a stream declares, and values of raw topics.

As strict as the collectors (`log.codecs.json_values`): a number is not text and text is not a number; what does not
fit is null.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.process.spark_types import spark_type
from headrace.types import (
    Array,
    BigInt,
    Boolean,
    Bytes,
    DataType,
    Date,
    Decimal,
    Double,
    Integer,
    Map,
    Struct,
    Time,
    Timestamp,
    Varchar,
)
from headrace.types import Column as Declared

WHOLE = "$"
INTEGRAL = ("BIGINT",)
NUMERIC = ("BIGINT", "DECIMAL", "DOUBLE")


def json_fields(text: Column) -> Column:
    """The fields of an object by name; null if the text is not an object."""
    return F.from_json(text, "map<string,variant>")


def json_field(fields: Column, declared: Declared) -> Column:
    """The field that is spelled like the column, in any case."""
    return json_value(field_in_any_case(fields, declared.name), declared.type)


def field_in_any_case(fields: Column, name: str) -> Column:
    alike = F.map_filter(fields, lambda key, _: F.lower(key) == F.lit(name.lower()))
    return F.get(F.map_values(alike), F.lit(0))


def json_value(value: Column, type_: DataType) -> Column:
    kind = F.schema_of_variant(value)
    as_text = F.when(kind == "STRING", F.try_variant_get(value, WHOLE, "string"))
    as_long = F.when(kind == "BIGINT", F.try_variant_get(value, WHOLE, "bigint"))
    match type_:
        case Varchar():
            return as_text
        case Boolean():
            return F.when(kind == "BOOLEAN", F.try_variant_get(value, WHOLE, "boolean"))
        case BigInt():
            return as_long
        case Integer():
            return F.when(kind == "BIGINT", F.try_variant_get(value, WHOLE, "int"))
        case Double():
            return F.when(_is_number(kind), F.try_variant_get(value, WHOLE, "double"))
        case Decimal(precision, scale):
            exact = f"decimal({precision},{scale})"
            number = F.when(_is_number(kind), F.try_variant_get(value, WHOLE, exact))
            return F.coalesce(number, as_text.try_cast(exact))
        case Timestamp():
            return F.coalesce(as_text.try_cast("timestamp"), F.timestamp_millis(as_long))
        case Date():
            return F.coalesce(as_text.try_cast("date"), F.date_from_unix_date(as_long.try_cast("int")))
        case Time():
            return F.coalesce(_time_of_day(as_text), as_long.try_cast("int"))
        case Bytes():
            return F.try_to_binary(as_text, F.lit("base64"))
        case Array(element):
            inner = F.try_variant_get(value, WHOLE, "array<variant>")
            return F.transform(inner, lambda item: json_value(item, element))
        case Map(Varchar(), item):
            entries = F.try_variant_get(value, WHOLE, "map<string,variant>")
            return F.transform_values(entries, lambda _, inner: json_value(inner, item))
        case Map():
            return F.try_variant_get(value, WHOLE, spark_type(type_).simpleString())
        case Struct(fields):
            entries = F.try_variant_get(value, WHOLE, "map<string,variant>")
            inner = [json_field(entries, Declared(name, field)).alias(name) for name, field in fields]
            return F.when(entries.isNotNull(), F.struct(*inner))


def _is_number(kind: Column) -> Column:
    return kind.startswith("BIGINT") | kind.startswith("DECIMAL") | kind.startswith("DOUBLE")


def _time_of_day(text: Column) -> Column:
    """`HH:MM[:SS[.mmm]]` as milliseconds."""
    moment = F.when(text.rlike(r"^\d\d:\d\d"), F.concat(F.lit("1970-01-01 "), text).try_cast("timestamp"))
    return F.unix_millis(moment).cast("int")
