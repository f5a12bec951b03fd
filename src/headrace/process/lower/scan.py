"""Reading a stream or a table: its declared columns, found in the topic's columns, in `$rest`, or in a raw topic's
bytes."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.errors import UsageError
from headrace.log.base import (
    ARRIVAL,
    OFFSET,
    PARTITION,
    REST,
    STREAM_TIME,
    TIME,
    TOMBSTONE,
    WINDOW_END,
    WINDOW_START,
    TopicSpec,
)
from headrace.process.casts import lower_cast
from headrace.process.json_fields import json_field, json_fields
from headrace.process.lower.rows import Rows, column
from headrace.process.raw_keys import raw_key
from headrace.process.spark_types import spark_type
from headrace.sql.plan import Scan
from headrace.sql.source import WINDOW_COLUMNS, Source
from headrace.types import Column, display_name

FIELDS = "$fields"
RAW_KEY, RAW_VALUE = "KEY", "VALUE"


class Inputs(Protocol):
    """Where scans read: a live stream, or a range of offsets."""

    def topic(self, name: str) -> TopicSpec: ...

    def read(self, topic: TopicSpec, min_lag: int | None) -> DataFrame:
        """The topic's columns and all its system columns, `$partition` and `$offset` too. With `min_lag`, records
        that lag behind stream time by no more than this may be missing."""


def lower_scan(node: Scan, inputs: Inputs, min_lag: int | None = None) -> Rows:
    source = node.source
    topic = inputs.topic(source.topic)
    frame = inputs.read(topic, min_lag)
    if topic.kind == "raw":
        frame = _decode_raw(frame, source)
    elif any(_stored(topic, declared) is None for declared in source.key + source.value):
        frame = frame.withColumn(FIELDS, json_fields(column(REST)) if REST in frame.columns else F.lit(None))
    found = [_find(topic, source, declared, frame).alias(declared.name) for declared in source.key + source.value]
    system = [column(PARTITION), column(OFFSET), column(ARRIVAL), column(TOMBSTONE)]
    if source.window is not None:
        bounds = (WINDOW_START, WINDOW_END)
        found += [column(ours).alias(theirs.name) for ours, theirs in zip(bounds, WINDOW_COLUMNS, strict=True)]
        system += [column(bound) for bound in bounds]
    pseudo = {"ROWTIME": column(TIME), "ROWPARTITION": column(PARTITION).cast("long"), "ROWOFFSET": column(OFFSET)}
    system += [value.alias(name) for name, value in pseudo.items()]
    return Rows(
        frame.select(*found, *system, column(TIME), column(STREAM_TIME)),
        changelog=source.kind == "table",
        tombstones=True,
    )


def _stored(topic: TopicSpec, declared: Column) -> Column | None:
    """The topic's column of that name; if none is spelled the same, one that differs only in case."""
    stored = topic.key + topic.value
    exact = [c for c in stored if c.name == declared.name]
    alike = [c for c in stored if c.name.casefold() == declared.name.casefold()]
    return next(iter(exact + alike), None)


def _find(topic: TopicSpec, source: Source, declared: Column, frame: DataFrame) -> SparkColumn:
    if topic.kind == "raw":
        return _find_raw(source, declared)
    stored = _stored(topic, declared)
    if stored is not None:
        value = column(stored.name)
        return value if stored.type == declared.type else lower_cast(value, stored.type, declared.type)
    if REST in frame.columns:
        return json_field(column(FIELDS), declared)
    return F.lit(None).cast(spark_type(declared.type))


def _decode_raw(frame: DataFrame, source: Source) -> DataFrame:
    if source.value_format.upper() != "JSON":
        raise UsageError(
            f"`{display_name(source.name)}`: format `{source.value_format}` cannot be read from a raw topic yet",
            hint="VALUE_FORMAT='JSON' can",
        )
    fields = json_fields(column(RAW_VALUE).cast("string"))
    # A record that is not a JSON object has no columns, but it is a record.
    return frame.withColumn(FIELDS, fields).withColumn(TOMBSTONE, column(TOMBSTONE) | column(RAW_VALUE).isNull())


def _find_raw(source: Source, declared: Column) -> SparkColumn:
    if declared not in source.key:
        return json_field(column(FIELDS), declared)
    if source.key_format.upper() == "JSON" and len(source.key) > 1:
        return json_field(json_fields(column(RAW_KEY).cast("string")), declared)
    return raw_key(column(RAW_KEY), declared, source.key_format)
