"""SQL types as Spark's."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T

from headrace.types import (
    Array,
    BigInt,
    Boolean,
    Bytes,
    Column,
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


def spark_type(type_: DataType) -> T.DataType:
    match type_:
        case Boolean():
            return T.BooleanType()
        case Integer():
            return T.IntegerType()
        case BigInt():
            return T.LongType()
        case Double():
            return T.DoubleType()
        case Decimal(precision, scale):
            return T.DecimalType(precision, scale)
        case Varchar():
            return T.StringType()
        case Bytes():
            return T.BinaryType()
        case Date():
            return T.DateType()
        case Time():
            # Milliseconds of the day, as in the log: Spark's own TIME has no Arrow form that the log shares.
            return T.IntegerType()
        case Timestamp():
            return T.TimestampType()
        case Array(element):
            return T.ArrayType(spark_type(element))
        case Map(key, value):
            return T.MapType(spark_type(key), spark_type(value))
        case Struct(fields):
            return T.StructType([T.StructField(name, spark_type(field)) for name, field in fields])


def spark_schema(columns: Iterable[Column]) -> T.StructType:
    return T.StructType([T.StructField(column.name, spark_type(column.type)) for column in columns])
