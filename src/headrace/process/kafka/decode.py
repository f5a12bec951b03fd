"""Kafka's bytes → the columns that the local connector gives.

JSON and Kafka's own primitives are read by Spark itself, with the rules of `process.json_fields`; every other format by
its codec, in Python workers, a batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.log.base import (
    ARRIVAL,
    OFFSET,
    PARTITION,
    REST,
    TIME,
    WINDOW_END,
    WINDOW_START,
    TopicSpec,
)
from headrace.log.codecs.base import Codec
from headrace.log.kafka.formats import ID_HEADER, OWN_HEADERS, TIME_ZERO_HEADER, WINDOW_END_HEADER, topic_codecs
from headrace.process.json_fields import json_field, json_fields, json_value
from headrace.process.lower.rows import column
from headrace.process.raw_keys import raw_key
from headrace.process.spark_types import spark_type
from headrace.types import BigInt, Bytes, Column, Integer, Timestamp, Varchar

KEY_FIELDS, VALUE_FIELDS = "$key", "$value"
REACHED = "$reached"
"""The largest event time of a record's partition so far, its own among them."""
_WINDOW_BYTES = {"time": 8, "session": 16}


def decode_topic(frame: DataFrame, topic: TopicSpec, columns: Sequence[str], rank: int = 0) -> DataFrame:
    """`frame` is the source's; `columns` are the topic's and the system's, by name. `rank` says which of a query's
    inputs comes first where records have the same time: the lowest."""
    frame = frame.withColumn(ARRIVAL, arrival(rank))
    if topic.windowed is not None:
        frame = _split_window(frame, topic)
    own = {c.name for c in topic.key + topic.value} if topic.kind == "typed" else set()
    wanted = [name for name in columns if name in own]
    if topic.kind == "typed":
        stamp = [topic.timestamp.column] if topic.timestamp and TIME in columns else []
        frame = _decode_side(frame, topic, "key", [c for c in topic.key if c.name in {*wanted, *stamp}])
        values = [c for c in topic.value if c.name in {*wanted, *stamp}]
        frame = _decode_side(frame, topic, "value", values, REST in columns)
    return frame.select(*(_column(topic, name).alias(name) for name in columns))


def arrival(rank: int) -> SparkColumn:
    """In what order records come, as far as Kafka lets one know: across partitions by how far time had come in theirs,
    within a partition by offset. It depends on nothing but the log (`OrderedCut.java`)."""
    return F.struct(column(REACHED).alias("reached"), F.lit(rank).alias("rank"), F.col("partition"), F.col("offset"))


def _column(topic: TopicSpec, name: str) -> SparkColumn:
    match name:
        case "$partition" | "$offset":
            return F.col({PARTITION: "partition", OFFSET: "offset"}[name])
        case "$stream_time" | "$arrival" | "$window_start" | "$window_end":
            return column(name)
        case "$time":
            return _event_time(topic)
        case "$tombstone":
            return F.col("value").isNull()
        case "$id":
            return _header(ID_HEADER).cast("string")
        case "$headers":
            return _headers()
        case "$rest":
            # Whoever looks for a field here knows that it is not one of the columns.
            return F.col("value").cast("string") if topic.value_format.upper() == "JSON" else F.lit(None).cast("string")
    if topic.kind == "raw":
        return F.col(name.lower())
    side = KEY_FIELDS if any(c.name == name for c in topic.key) else VALUE_FIELDS
    return column(side).getField(name)


def _event_time(topic: TopicSpec) -> SparkColumn:
    """As `log.kafka.decode`: the topic's timestamp column where the record has a usable one, else Kafka's timestamp."""
    kafka = F.greatest(F.unix_millis(F.col("timestamp")), F.lit(0).cast("long"))
    kafka = F.when((kafka == 1) & _header(TIME_ZERO_HEADER).isNotNull(), F.lit(0).cast("long")).otherwise(kafka)
    stamp = topic.timestamp
    types = {c.name: c.type for c in topic.key + topic.value}
    match types.get(stamp.column) if stamp else None:
        case BigInt():
            moment = _column(topic, stamp.column) if stamp else kafka
        case Timestamp():
            moment = F.unix_millis(_column(topic, stamp.column)) if stamp else kafka
        case _:
            # Text is read where the record is collected, which gives the record its time in Kafka too.
            return kafka
    return F.coalesce(F.when(moment >= 0, moment), kafka)


def _headers() -> SparkColumn:
    own = F.filter(F.col("headers"), lambda header: ~header.getField("key").isin(*OWN_HEADERS))
    return F.when(F.size(own) > 0, F.map_from_entries(own))


def _header(name: str) -> SparkColumn:
    found = F.filter(F.col("headers"), lambda header: header.getField("key") == name)
    return F.get(found, F.lit(0)).getField("value")


def _split_window(frame: DataFrame, topic: TopicSpec) -> DataFrame:
    """A windowed key ends with the window's start; before it, for sessions, is the end, which else is a header."""
    size = _WINDOW_BYTES[topic.windowed or "time"]
    start = _number(F.expr("substring(key, -8, 8)"))
    before = F.expr("substring(key, -16, 8)") if topic.windowed == "session" else _header(WINDOW_END_HEADER)
    end = _number(before)
    has_window = F.octet_length("key") >= size
    return (
        frame.withColumn(WINDOW_START, F.when(has_window, start))
        .withColumn(WINDOW_END, F.when(has_window, F.coalesce(end, start)))
        .withColumn("key", F.when(has_window, F.expr(f"substring(key, 1, octet_length(key) - {size})")))
    )


def _number(data: SparkColumn) -> SparkColumn:
    return F.conv(F.hex(data), 16, -10).cast("long")


def _decode_side(
    frame: DataFrame, topic: TopicSpec, side: str, wanted: Sequence[Column], rest: bool = False
) -> DataFrame:
    """Adds a struct of the wanted columns."""
    if not wanted:
        return frame
    name, data = (KEY_FIELDS, F.col("key")) if side == "key" else (VALUE_FIELDS, F.col("value"))
    declared = topic.key if side == "key" else topic.value
    format_ = _format(topic, side)
    if format_ == "JSON" and (side == "value" or len(declared) > 1):
        parsed = frame.withColumn(f"{name}.json", json_fields(data.cast("string")))
        fields = [json_field(column(f"{name}.json"), c).alias(c.name) for c in wanted]
        return parsed.withColumn(name, F.struct(*fields))
    if format_ == "JSON":
        fields = [json_value(F.try_parse_json(data.cast("string")), c.type).alias(c.name) for c in wanted]
        return frame.withColumn(name, F.struct(*fields))
    if format_ == "KAFKA" and all(isinstance(c.type, Varchar | Bytes | Integer | BigInt) for c in wanted):
        return frame.withColumn(name, F.struct(*(raw_key(data, c, "KAFKA").alias(c.name) for c in wanted)))
    codecs = topic_codecs(topic, None)
    return frame.withColumn(name, by_codec(codecs.key if side == "key" else codecs.value)(data))


def _format(topic: TopicSpec, side: str) -> str:
    """KAFKA holds one column; several are written as JSON (`log.kafka.formats`)."""
    if side == "value":
        return topic.value_format.upper()
    return "JSON" if topic.key_format.upper() == "KAFKA" and len(topic.key) > 1 else topic.key_format.upper()


def by_codec(codec: Codec) -> Callable[[SparkColumn], SparkColumn]:
    """A codec as a function from bytes to a struct of its columns, run by Spark's Python workers."""
    types = T.StructType([T.StructField(c.name, spark_type(c.type)) for c in codec.columns])

    def decode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for payloads in batches:
            batch = codec.decode(payloads.cast(pa.binary())).batch
            yield pa.StructArray.from_arrays(batch.columns, names=batch.schema.names)

    made: Any = F.arrow_udf(decode, types)
    wrapped: Callable[[SparkColumn], SparkColumn] = made
    return wrapped
