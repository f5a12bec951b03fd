"""CAST for columns, as `sql.casting` does it for values. What cannot be converted is null."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.process.spark_types import spark_type
from headrace.process.texts import text_of
from headrace.types import (
    Array,
    BigInt,
    Boolean,
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

BLANK = r"[\s\x1c-\x1f]*"
WHOLE_NUMBER = rf"^{BLANK}[+-]?[0-9]+{BLANK}$"
NUMBER = rf"^{BLANK}[+-]?(?i:[0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+(?:e[+-]?[0-9]+)?|inf|infinity|nan){BLANK}$"
# Spark reads these as we do; without the check it would also take a time alone for a time today.
MOMENT = (
    r"^\s*[0-9]{1,4}(?:-[0-9]{1,2}(?:-[0-9]{1,2})?)?"
    r"(?:[Tt ](?:[0-9]{1,2}(?::[0-9]{1,2}(?::[0-9]{1,2}(?:[.,][0-9]{1,9})?)?)?)?)?"
    r"\s*(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?\s*$"
)
TIME_OF_DAY = r"^\s*([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:[.,]([0-9]{1,9}))?)?)?\s*$"
TRUE = ("t", "tr", "tru", "true", "y", "ye", "yes")
NUMBERS = (Integer, BigInt, Double, Decimal)
DAY_MS = 86_400_000


def lower_cast(value: Column, source: DataType, target: DataType) -> Column:
    if source == target:
        return value
    match source, target:
        case _, Varchar():
            return text_of(value, source)
        case Varchar(), _:
            return _from_text(value, target)
        case Array(a), Array(b):
            return _whole(value, F.transform(value, lambda element: lower_cast(element, a, b)))
        case Map(a, b), Map(c, d):
            return _cast_map(value, (a, b), (c, d))
        case Struct(fields), Struct(others):
            return _cast_struct(value, dict(fields), others)
        case Timestamp(), Time():
            return F.pmod(F.unix_millis(value), F.lit(DAY_MS)).cast("int")
        case (Timestamp(), Date()) | (Date(), Timestamp()):
            return value.cast(spark_type(target))
        case _ if isinstance(source, NUMBERS) and isinstance(target, NUMBERS):
            return value.cast(spark_type(target))
        case _:
            raise UsageError(f"{source} cannot be converted to {target}")


def _from_text(text: Column, target: DataType) -> Column:
    match target:
        case Integer() | BigInt():
            return F.when(text.rlike(WHOLE_NUMBER), text.cast(spark_type(target)))
        case Double():
            return F.when(text.rlike(NUMBER), text.cast("double"))
        case Decimal():
            return text.cast(spark_type(target))
        case Boolean():
            return F.lower(F.trim(text)).isin(*TRUE)
        case Timestamp():
            return _moment(text)
        case Date():
            return _moment(text).cast("date")
        case Time():
            return _time_of_day(text)
        case _:
            raise UsageError(f"VARCHAR cannot be converted to {target}")


def _moment(text: Column) -> Column:
    """ISO 8601 or its beginning, in UTC unless it says otherwise, to the millisecond."""
    # `+0100` is as good as `+01:00`, and so is a comma before the fraction, or a blank before the zone.
    spelled = F.regexp_replace(text, r"(:[0-9]{1,2}(?:[.,][0-9]+)?)\s*([+-][0-9]{2})([0-9]{2})\s*$", "$1$2:$3")
    spelled = F.regexp_replace(spelled, r"(:[0-9]{1,2}),([0-9])", "$1.$2")
    spelled = F.regexp_replace(spelled, r"\s+([+-][0-9:]+|[Zz])\s*$", "$1")
    # Spark wants four digits of a year.
    year = F.lpad(F.regexp_extract(text, r"^\s*([0-9]{1,4})", 1), 4, "0")
    spelled = F.concat(year, F.regexp_replace(spelled, r"^\s*[0-9]{1,4}", ""))
    possible = text.rlike(MOMENT) & (year != "0000")
    return F.timestamp_millis(F.unix_millis(F.when(possible, F.upper(spelled).try_cast("timestamp"))))


def _time_of_day(text: Column) -> Column:
    hour, minute, second = (F.regexp_extract(text, TIME_OF_DAY, group).cast("int") for group in (1, 2, 3))
    minute, second = F.coalesce(minute, F.lit(0)), F.coalesce(second, F.lit(0))
    fraction = F.rpad(F.regexp_extract(text, TIME_OF_DAY, 4), 3, "0").cast("int")
    milliseconds = ((hour * 60 + minute) * 60 + second) * 1000 + fraction
    return F.when((hour < 24) & (minute < 60) & (second < 60), milliseconds)


def _whole(value: Column, converted: Column) -> Column:
    """An array with an element that cannot be converted cannot be converted."""
    nulls_before = F.size(F.filter(value, lambda element: element.isNull()))
    nulls_after = F.size(F.filter(converted, lambda element: element.isNull()))
    return F.when(nulls_before == nulls_after, converted)


def _cast_map(value: Column, source: tuple[DataType, DataType], target: tuple[DataType, DataType]) -> Column:
    keys = _whole(F.map_keys(value), F.transform(F.map_keys(value), lambda k: lower_cast(k, source[0], target[0])))
    values = _whole(
        F.map_values(value), F.transform(F.map_values(value), lambda v: lower_cast(v, source[1], target[1]))
    )
    return F.map_from_arrays(keys, values)


def _cast_struct(value: Column, source: dict[str, DataType], target: tuple[tuple[str, DataType], ...]) -> Column:
    """By name: what the target has not is left out, what the source has not is null."""
    fields = [
        (lower_cast(value.getField(name), source[name], type_) if name in source else F.lit(None))
        .cast(spark_type(type_))
        .alias(name)
        for name, type_ in target
    ]
    return F.when(value.isNotNull(), F.struct(*fields))
