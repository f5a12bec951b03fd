"""Values as text, as CAST(… AS VARCHAR) gives it: `sql.text` and `sql.datetimes` for columns."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.types import Array, DataType, Decimal, Map, Struct, Time, Timestamp

# BigDecimal writes smaller fractions with an exponent.
PLAIN_SCALE = 6


def text_of(value: Column, type_: DataType) -> Column:
    match type_:
        case Decimal(_, scale) if scale > PLAIN_SCALE:
            return F.format_string(f"%.{scale}f", value)
        case Timestamp():
            return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSS")
        case Time():
            return _time_text(value)
        case Array(element):
            return F.concat(F.lit("["), _joined(F.transform(value, lambda item: text_of(item, element))), F.lit("]"))
        case Map(key, item):
            entries = F.transform(
                F.map_entries(value),
                lambda entry: _pair(text_of(entry.getField("key"), key), text_of(entry.getField("value"), item)),
            )
            return F.concat(F.lit("{"), _joined(entries), F.lit("}"))
        case Struct(fields):
            # Fields that are null are left out: `concat` of a null is null, and `concat_ws` passes over it.
            pairs = [F.concat(F.lit(f"{name}="), text_of(value.getField(name), field)) for name, field in fields]
            return F.when(value.isNotNull(), F.concat(F.lit("Struct{"), F.concat_ws(",", *pairs), F.lit("}")))
        case _:
            return value.cast("string")


def _joined(texts: Column) -> Column:
    return F.array_join(texts, ", ", "null")


def _pair(name: Column, value: Column) -> Column:
    return F.concat(name, F.lit("="), F.coalesce(value, F.lit("null")))


def _time_text(value: Column) -> Column:
    """Hours and minutes; seconds and milliseconds only if there are any."""
    moment = F.timestamp_millis(F.pmod(value.cast("long"), F.lit(86_400_000)))
    return (
        F.when(value % 1000 != 0, F.date_format(moment, "HH:mm:ss.SSS"))
        .when(value % 60_000 != 0, F.date_format(moment, "HH:mm:ss"))
        .otherwise(F.date_format(moment, "HH:mm"))
    )
