"""Kafka's bytes → the columns that the local connector gives.

JSON and Kafka's own primitives are read by Spark itself, with the rules of `process.json_fields`; every other format by
its codec, in Python workers, a batch at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from headrace.log.base import (
    ARRIVAL,
    OFFSET,
    PARTITION,
    TIME,
    WINDOW_END,
    WINDOW_START,
    TopicSpec,
)
from headrace.log.codecs.base import Side
from headrace.log.kafka.formats import ID_HEADER, OWN_HEADERS, TIME_ZERO_HEADER, WINDOW_END_HEADER
from headrace.process.json_fields import field_in_any_case, json_field, json_fields, json_value
from headrace.process.kafka.codecs import ERROR, decode_by_codec
from headrace.process.kafka.schemas import WorkerSchemas
from headrace.process.lower.rows import column
from headrace.process.raw_keys import raw_key
from headrace.types import BigInt, Bytes, Column, Integer, Timestamp, Varchar, display_name

KEY_FIELDS, VALUE_FIELDS = "$key", "$value"
SIDES: tuple[Side, Side] = ("key", "value")
REACHED = "$reached"
"""The largest event time of a record's partition so far, its own among them."""
_WINDOW_BYTES = {"time": 8, "session": 16}


@dataclass(frozen=True, slots=True)
class Decoding:
    """What decoding needs beside the topic: the registry, and where what cannot be decoded goes. Without a box it is
    left out, as it would be with one."""

    schemas: WorkerSchemas | None = None
    box: Any = None


def decode_topic(
    frame: DataFrame, topic: TopicSpec, columns: Sequence[str], rank: int = 0, decoding: Decoding | None = None
) -> DataFrame:
    """`frame` is the source's; `columns` are the topic's and the system's, by name. `rank` says which of a query's
    inputs comes first where records have the same time: the lowest."""
    decoding = decoding or Decoding()
    frame = frame.withColumn(ARRIVAL, arrival(rank))
    if topic.windowed is not None:
        frame = _split_window(frame, topic)
    if topic.kind == "typed":
        stamp = {topic.timestamp.column} if topic.timestamp and TIME in columns else set()
        for side in SIDES:
            frame = _decode_side(frame, topic, side, {*columns, *stamp}, decoding.schemas)
        frame = _without_errors(frame, topic, decoding.box)
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
            return _event_id()
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
    frame: DataFrame, topic: TopicSpec, side: Side, names: Collection[str], schemas: WorkerSchemas | None
) -> DataFrame:
    """Adds a struct of the named columns, and why it could not be made. A record of a topic that others write is looked
    at as a whole: whether it is one of the stream must not depend on which columns a query uses."""
    declared = topic.key if side == "key" else topic.value
    wanted = [c for c in declared if c.name in names]
    checked = declared if topic.role == "events" else wanted
    if not checked:
        return frame
    name, data = (KEY_FIELDS, F.col("key")) if side == "key" else (VALUE_FIELDS, F.col("value"))
    format_ = _format(topic, side)
    if format_ == "JSON" and (len(declared) > 1 or (side == "value" and topic.value_options.wrap_single_value)):
        return _decode_object(frame, name, data, wanted, checked)
    if format_ == "JSON":
        [only] = declared
        value = F.try_parse_json(data.cast("string"))
        return _decode_single(frame, name, data, only, json_value(value, only.type), F.is_variant_null(value))
    if format_ == "KAFKA" and isinstance(declared[0].type, Varchar | Bytes | Integer | BigInt):
        [only] = declared
        return _decode_single(frame, name, data, only, raw_key(data, only, "KAFKA"), F.lit(False))
    decoded = frame.withColumn(name, decode_by_codec(data, topic, side, schemas))
    return decoded.withColumn(f"{name}.error", column(name).getField(ERROR))


def _decode_object(
    frame: DataFrame, name: str, data: SparkColumn, wanted: Sequence[Column], checked: Sequence[Column]
) -> DataFrame:
    text, fields = data.cast("string"), column(f"{name}.json")
    parsed = frame.withColumn(f"{name}.json", json_fields(text))
    no_object = data.isNotNull() & fields.isNull() & (F.trim(text) != "null")
    error = F.when(no_object, F.lit("a JSON object is expected"))
    for c in checked:
        found = field_in_any_case(fields, c.name)
        misfit = found.isNotNull() & ~F.is_variant_null(found) & json_value(found, c.type).isNull()
        error = error.when(misfit, F.lit(_misfit(c)))
    decoded = parsed.withColumn(f"{name}.error", error)
    if not wanted:
        return decoded
    return decoded.withColumn(name, F.struct(*(json_field(fields, c).alias(c.name) for c in wanted)))


def _decode_single(
    frame: DataFrame, name: str, data: SparkColumn, only: Column, value: SparkColumn, null: SparkColumn
) -> DataFrame:
    decoded = frame.withColumn(name, F.struct(value.alias(only.name)))
    there = data.isNotNull() & ~F.coalesce(null, F.lit(False))
    misfit = there & column(name).getField(only.name).isNull()
    return decoded.withColumn(f"{name}.error", F.when(misfit, F.lit(_misfit(only))))


def _misfit(declared: Column) -> str:
    return f"`{display_name(declared.name)}` does not fit {declared.type}"


def _without_errors(frame: DataFrame, topic: TopicSpec, box: Any) -> DataFrame:
    """Contract 10: what could not be decoded is in the box, and not in the query."""
    places = {side: f"{fields}.error" for side, fields in zip(SIDES, (KEY_FIELDS, VALUE_FIELDS), strict=True)}
    reasons = [F.concat(F.lit(f"{side}: "), column(place)) for side, place in places.items() if place in frame.columns]
    if not reasons:
        return frame
    marked = frame.withColumn(ERROR, F.coalesce(*reasons))
    kept = column(ERROR).isNull()
    return marked.filter(kept if box is None else F.when(kept, F.lit(True)).otherwise(_bury(box, topic)))


def _bury(box: Any, topic: TopicSpec) -> SparkColumn:
    """As `DeadLetterBox.java` takes it."""
    what = [F.lit(topic.name), F.col("partition"), F.col("offset"), column(ERROR), F.col("value"), _event_id()]
    made: SparkColumn = ClassicColumn(box.bury(*(cast(Any, one)._jc for one in what)))
    return made


def _event_id() -> SparkColumn:
    return _header(ID_HEADER).cast("string")


def _format(topic: TopicSpec, side: str) -> str:
    """KAFKA holds one column; several are written as JSON (`log.kafka.formats`)."""
    if side == "value":
        return topic.value_format.upper()
    return "JSON" if topic.key_format.upper() == "KAFKA" and len(topic.key) > 1 else topic.key_format.upper()
