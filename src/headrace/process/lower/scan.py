"""Reading a stream or a table: its declared columns, found in the topic's columns, in `$rest`, or in a raw topic's
bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.log.base import (
    ARRIVAL,
    HEADERS,
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
from headrace.process.lower.known import Known
from headrace.process.lower.rows import Rows, column
from headrace.process.raw_keys import raw_key
from headrace.process.raw_values import decode_by_codec, needs_codec
from headrace.process.spark_types import spark_type
from headrace.sql.plan import Scan
from headrace.sql.source import WINDOW_COLUMNS, Header, Source
from headrace.types import Column

FIELDS, KEY_FIELDS = "$fields", "$key_fields"
RAW_KEY, RAW_VALUE = "KEY", "VALUE"
SYSTEM = (PARTITION, OFFSET, ARRIVAL, STREAM_TIME, TIME, TOMBSTONE)


class Inputs(Protocol):
    """Where scans read: a live stream, or a range of offsets."""

    @property
    def topic(self) -> Callable[[str], TopicSpec]:
        """Finds it by name."""

    def declared(self, topic: TopicSpec, source: Source) -> TopicSpec:
        """The raw topic as a stream declares it, if `read` can decode it; else as it is."""

    @property
    def log_folder(self) -> Path | None:
        """Of the local log, where `declared` leaves raw topics as they are."""

    @property
    def common_time(self) -> bool:
        """Can `read` give stream times of several topics together?"""

    @property
    def in_order(self) -> bool:
        """Is there one order over all that is read, and can what is written be put in it?"""

    def read(
        self, topic: TopicSpec, columns: Sequence[str], min_lag: int | None, clock: Sequence[str] = ()
    ) -> DataFrame:
        """The named columns, system ones too. With `min_lag`, records that lag behind stream time by no more than
        this may be missing. With `clock`, stream time is that of these topics and its own together."""

    @property
    def known(self) -> Known | None:
        """What of the query's results that wait for time is in the log already."""

    def floor(self, topic: TopicSpec, delay_ms: int) -> DataFrame | None:
        """Where stream time is each partition's own: `$floor`, what it has reached in all of them, once a batch. What
        is closed by it is so after another `delay_ms`."""


def lower_scan(
    node: Scan,
    inputs: Inputs,
    needed: Collection[str],
    min_lag: int | None = None,
    clock: Collection[str] = (),
    keep_headers: bool = False,
) -> Rows:
    """Of the source's columns only the `needed` ones: what is not read need not be mapped, copied or planned for. With
    `keep_headers`, and `$headers`."""
    source = node.source
    topic = inputs.topic(source.topic)
    if topic.kind == "raw":
        topic = inputs.declared(topic, source)
    keys = source.key if source.kind == "table" else ()
    declared = [column_ for column_ in source.key + source.value if column_.name in needed or column_ in keys]
    bounds = (WINDOW_START, WINDOW_END) if source.window is not None else ()
    wanted = [header for header in source.headers if header.name in needed]
    headers = (HEADERS,) if (wanted or keep_headers) and topic.has_headers else ()
    others = sorted({other for other in clock if other != topic.name}) if source.kind == "stream" else []
    # Of a table that a stream meets, every row counts.
    least = min_lag if source.kind == "stream" else None
    frame = inputs.read(topic, [*_stored_names(topic, declared), *SYSTEM, *headers, *bounds], least, others)
    if topic.kind == "raw":
        assert inputs.log_folder is not None
        frame = _decode_raw(frame, source, inputs.log_folder)
    elif REST in frame.columns:
        frame = frame.withColumn(FIELDS, json_fields(column(REST)))
    found = [_find(topic, source, column_).alias(column_.name) for column_ in declared]
    found += [_header(header, HEADERS in headers).alias(header.name) for header in wanted]
    found += [column(ours).alias(theirs.name) for ours, theirs in zip(bounds, WINDOW_COLUMNS, strict=False)]
    pseudo = {"ROWTIME": column(TIME), "ROWPARTITION": column(PARTITION).cast("int"), "ROWOFFSET": column(OFFSET)}
    found += [value.alias(name) for name, value in pseudo.items() if name in needed]
    if source.kind == "table":
        # A row without a key is no row of a table.
        for key in source.key:
            frame = frame.filter(_find(topic, source, key).isNotNull())
    return Rows(
        frame.select(*found, *(column(name) for name in (*SYSTEM, *bounds, *(headers if keep_headers else ())))),
        changelog=source.kind == "table",
        tombstones=True,
    )


def _stored_names(topic: TopicSpec, declared: Sequence[Column]) -> list[str]:
    """The topic's columns that the declared ones are made of."""
    if topic.kind == "raw":
        return [RAW_KEY, RAW_VALUE]
    stored = [_stored(topic, column_) for column_ in declared]
    rest = [REST] if None in stored and topic.role == "events" else []
    return [*dict.fromkeys(column_.name for column_ in stored if column_ is not None), *rest]


def _stored(topic: TopicSpec, declared: Column) -> Column | None:
    """The topic's column of that name; if none is spelled the same, one that differs only in case."""
    stored = topic.key + topic.value
    exact = [c for c in stored if c.name == declared.name]
    alike = [c for c in stored if c.name.casefold() == declared.name.casefold()]
    return next(iter(exact + alike), None)


def _find(topic: TopicSpec, source: Source, declared: Column) -> SparkColumn:
    if topic.kind == "raw":
        return _find_raw(source, declared)
    stored = _stored(topic, declared)
    if stored is not None:
        value = column(stored.name)
        return value if stored.type == declared.type else lower_cast(value, stored.type, declared.type)
    if topic.role == "events":
        return json_field(column(FIELDS), declared)
    return F.lit(None).cast(spark_type(declared.type))


def _header(header: Header, kept: bool) -> SparkColumn:
    """All headers, none if there are none; or the last one of that name. `kept`: whether the topic has any."""
    if not kept:
        return (F.array() if header.key is None else F.lit(None)).cast(spark_type(header.column.type))
    entries = F.coalesce(F.map_entries(column(HEADERS)), F.array())
    if header.key is None:
        pair = F.transform(entries, lambda entry: F.struct(entry["key"].alias("KEY"), entry["value"].alias("VALUE")))
        return pair.cast(spark_type(header.column.type))
    named = F.filter(entries, lambda entry: entry["key"] == F.lit(header.key))
    return F.try_element_at(F.transform(named, lambda entry: entry["value"]), F.lit(-1))


def _decode_raw(frame: DataFrame, source: Source, folder: Path) -> DataFrame:
    """Adds the value's fields, and the key's if it takes a codec to read them."""
    value = column(RAW_VALUE)
    if needs_codec(source, "key"):
        frame = frame.withColumn(KEY_FIELDS, decode_by_codec(column(RAW_KEY), source, "key", folder))
    by_codec = needs_codec(source, "value")
    fields = decode_by_codec(value, source, "value", folder) if by_codec else json_fields(value.cast("string"))
    # A record that is not a JSON object has no columns, but it is a record.
    return frame.withColumn(FIELDS, fields).withColumn(TOMBSTONE, column(TOMBSTONE) | value.isNull())


def _find_raw(source: Source, declared: Column) -> SparkColumn:
    if declared not in source.key:
        by_codec = needs_codec(source, "value")
        return column(FIELDS).getField(declared.name) if by_codec else json_field(column(FIELDS), declared)
    if needs_codec(source, "key"):
        return column(KEY_FIELDS).getField(declared.name)
    if source.key_format.upper() == "JSON" and len(source.key) > 1:
        return json_field(json_fields(column(RAW_KEY).cast("string")), declared)
    return raw_key(column(RAW_KEY), declared, source.key_format)
