"""The stateful operators that Spark lacks, which are Java (`jvm/…/operators`), as functions over DataFrames.

All take and give rows of the same columns: `key` (a struct), `$side` (0 left, 1 right), `$arrival`, `$stream_time`,
`$time`, `$tombstone`, `$left` and `$right` (structs of the plan's columns), and maybe more, which a row gives to those
that it causes. Each gets the rows of a key in the order they arrived, whatever partitions and batches they came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.log.base import ARRIVAL, STREAM_TIME, TIME, TOMBSTONE
from headrace.process.comparable import comparable
from headrace.process.lower.floor import watermark_by_floor
from headrace.process.lower.known import Known
from headrace.process.lower.rows import PLACE, column
from headrace.process.spark_types import spark_type
from headrace.types import Array, DataType, Map, Struct

KEY, SIDE, LEFT, RIGHT = "key", "$side", "$left", "$right"
FROM_LEFT, FROM_RIGHT = 0, 1
_CLOCK, _LAST = "$event", "$last"
_PACKAGE = "dev.headrace.spark.operators"


def as_changes(
    frame: DataFrame,
    key: Column,
    side: int,
    left: Column,
    right: Column,
    tombstone: Column | None = None,
    more: Sequence[Column] = (),
) -> DataFrame:
    """Rows with system columns → rows as operators take them."""
    place = column(PLACE) if PLACE in frame.columns else F.lit(0)
    key_type = stored_type(frame.select(key.alias(KEY)).schema[KEY].dataType)
    return frame.select(
        key.cast(key_type).alias(KEY),
        F.lit(side).alias(SIDE),
        column(ARRIVAL),
        column(STREAM_TIME),
        column(TIME),
        (column(TOMBSTONE) if tombstone is None else tombstone).alias(TOMBSTONE),
        left.alias(LEFT),
        right.alias(RIGHT),
        place.alias(PLACE),
        *more,
    )


def group_key(value: Column, type_: DataType) -> Column:
    """A value as part of an operator's key. Spark's timers cannot read arrays and maps out of a key, so those become
    text; `from_group_key` is the way back."""
    return F.to_json(F.struct(comparable(value, type_).alias("v"))) if _has_array(type_) else value


def from_group_key(value: Column, type_: DataType) -> Column:
    if not _has_array(type_):
        return value
    return F.from_json(value, T.StructType([T.StructField("v", spark_type(type_))])).getField("v")


def _has_array(type_: DataType) -> bool:
    match type_:
        case Array() | Map():
            return True
        case Struct(fields):
            return any(_has_array(field) for _, field in fields)
        case _:
            return False


def stored_type(type_: T.DataType) -> T.DataType:
    """The same type with names that Avro allows, in which Spark describes its state's keys. What is outside the plan's
    own types is named so already."""
    match type_:
        case T.StructType():
            fields = [
                T.StructField(_stored_name(f.name, place), stored_type(f.dataType)) for place, f in enumerate(type_)
            ]
            return T.StructType(fields)
        case T.ArrayType():
            return T.ArrayType(stored_type(type_.elementType), type_.containsNull)
        case T.MapType():
            return T.MapType(stored_type(type_.keyType), stored_type(type_.valueType), type_.valueContainsNull)
        case _:
            return type_


def _stored_name(name: str, place: int) -> str:
    return name if name.isascii() and name.isidentifier() else f"f{place}"


def in_order(changes: DataFrame) -> DataFrame:
    """Sorted by key and arrival within partitions by key: what Spark's state needs, and more. The number of partitions
    is left to Spark, which takes it from the query's checkpoint."""
    sorted_ = changes.repartition(column(KEY)).sortWithinPartitions(column(KEY), column(ARRIVAL), column(PLACE))
    return sorted_.drop(column(PLACE))


def with_clock(
    changes: DataFrame, only: Column | None = None, floor: DataFrame | None = None, known: Known | None = None
) -> DataFrame:
    """Let Spark's watermark be stream time so far, or what `floor` says, for timers. The column it is about is dropped
    again, so no row is ever dropped for being behind it. Rows for which `only` is not true count for the clock and are
    gone after it."""
    if floor is not None:
        return watermark_by_floor(changes, _CLOCK, 0, floor).drop(column(_CLOCK))
    now = _now(changes) if known is None else known.clock()
    stamped = changes.withColumn(_CLOCK, F.timestamp_millis(now)).withWatermark(f"`{_CLOCK}`", "0 seconds")
    if only is not None:
        # It names the clock, or Spark would filter first. No record is older than 1970.
        stamped = stamped.filter(only | (column(_CLOCK) < F.timestamp_millis(F.lit(0))))
    return stamped.drop(column(_CLOCK))


def _now(rows: DataFrame) -> Column:
    """Stream time when a row has come. Where rows are stamped with it, those that were left out before it count too."""
    return F.greatest(column(TIME), column(STREAM_TIME)) if STREAM_TIME in rows.columns else column(TIME)


def until_now(found: DataFrame, changes: DataFrame) -> DataFrame:
    """Over a range of offsets, operators let out whatever waits for time to pass, with the moment it waits for as its
    stream time. This drops what has not come by the last row's time. A stream's watermark sees to it."""
    if changes.isStreaming:
        return found
    last = changes.agg(F.max(_now(changes)).alias(_LAST))
    return found.crossJoin(F.broadcast(last)).filter(column(STREAM_TIME) <= column(_LAST)).drop(column(_LAST))


def stream_table_join(changes: DataFrame, outer: bool) -> DataFrame:
    return _call("StreamTableJoin", "join", in_order(changes), outer)


def table_table_join(changes: DataFrame, keep_left: bool, keep_right: bool) -> DataFrame:
    return _call("TableTableJoin", "join", in_order(changes), keep_left, keep_right)


def foreign_key_join(changes: DataFrame, keep_left: bool) -> DataFrame:
    """The left part begins with `action` (put, move, drop) and the left's primary key; rows come out by arrival only
    after being sorted."""
    return _call("ForeignKeyJoin", "join", in_order(changes), keep_left)


def table_changes(changes: DataFrame) -> DataFrame:
    """The row before in the left part, the row after in the right one."""
    return _call("TableChanges", "of", in_order(changes))


def stream_stream_join(
    changes: DataFrame, before_ms: int, after_ms: int, grace_ms: int, eager: bool, keep_left: bool, keep_right: bool
) -> DataFrame:
    """Late rows come out with `$tombstone`. Its timers go by the inputs' clocks (`with_clock`)."""
    prepared = in_order(changes.withColumn(PLACE, F.lit(0)))
    reach = (before_ms, after_ms, grace_ms)
    return _call("StreamStreamJoin", "join", prepared, *reach, eager, keep_left, keep_right, not changes.isStreaming)


def common_stream_time(changes: DataFrame) -> DataFrame:
    """`$stream_time` over both inputs, instead of each row's own topic's."""
    keyed = changes.withColumn(_CLOCK, column(KEY)).withColumn(KEY, F.struct(F.lit(0).alias("all")))
    packed = keyed.withColumn(LEFT, F.struct(column(_CLOCK).alias("key"), column(LEFT).alias("row"))).drop(
        column(_CLOCK)
    )
    stamped = _call("StreamClock", "stamp", in_order(packed))
    return stamped.withColumn(KEY, column(LEFT).getField("key")).withColumn(LEFT, column(LEFT).getField("row"))


def sessions(changes: DataFrame, gap_ms: int, grace_ms: int, finals: bool, kinds: Sequence[str]) -> DataFrame:
    """The bounds in the left part, merged partial results in the right one; late rows come out with side 1. Its timers
    go by the rows' clock."""
    prepared = in_order(changes)
    return _call("Sessions", "of", prepared, gap_ms, grace_ms, finals, not changes.isStreaming, list(kinds))


def merged(value: Column, type_: T.DataType, kind: str) -> Column:
    """All rows' values merged as sessions merge them (`Partials`), as an aggregate."""
    context: Any = SparkContext._active_spark_context
    java = context._jvm.dev.headrace.spark.operators.Merged.of(value._jc, type_.json(), kind)
    return Column(java)


def _call(operator: str, method: str, frame: DataFrame, *arguments: Any) -> DataFrame:
    spark: Any = frame.sparkSession
    operators = spark._jvm
    for name in f"{_PACKAGE}.{operator}".split("."):
        operators = getattr(operators, name)
    java = [_java(spark, argument) for argument in arguments]
    made: DataFrame = type(frame)(getattr(operators, method)(frame._jdf, *java), spark)
    return made


def _java(spark: Any, argument: Any) -> Any:
    """py4j would take a small int for an Integer, which a method that wants a long refuses to find."""
    if isinstance(argument, list):
        converted = spark._jvm.java.util.ArrayList()
        for item in argument:
            converted.add(item)
        return converted
    if isinstance(argument, int) and not isinstance(argument, bool):
        return spark._jvm.java.lang.Long.valueOf(str(argument))
    return argument
