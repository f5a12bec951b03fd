"""Which topics a statement needs: made if they are absent, checked if they are there."""

from __future__ import annotations

from typing import Literal

from headrace.coordinate.base import late_topic
from headrace.errors import Conflict, NotFound, UsageError
from headrace.log.base import TIME, Log, TimestampColumn, Topic, TopicConfig, TopicSpec
from headrace.log.codecs.of_source import source_options
from headrace.log.schema import is_topic_name
from headrace.process.base import LATE_COLUMNS
from headrace.sql.source import Source
from headrace.types import Column, display_name


def declared_spec(source: Source) -> TopicSpec:
    """The topic that CREATE STREAM or CREATE TABLE makes when there is none."""
    timestamp = TimestampColumn(source.timestamp, source.timestamp_format) if source.timestamp else None
    return TopicSpec(
        name=source.topic,
        key=source.key,
        value=source.value,
        partitions=source.partitions,
        role="events",
        key_format=source.key_format,
        value_format=source.value_format,
        timestamp=timestamp,
        windowed=_windowed(source),
        config=TopicConfig(retention_ms=source.retention_ms or 0),
        key_options=source_options(source, "key"),
        value_options=source_options(source, "value"),
    )


def sink_spec(sink: Source, headers: bool = False) -> TopicSpec:
    """The topic that a query writes: a stream's records or a table's changes; with the headers of the records that
    they were made of, or without."""
    return TopicSpec(
        name=sink.topic,
        key=sink.key,
        value=sink.value,
        partitions=sink.partitions,
        role="derived",
        key_format=sink.key_format,
        value_format=sink.value_format,
        windowed=_windowed(sink),
        config=TopicConfig(retention_ms=sink.retention_ms or 0),
        key_options=source_options(sink, "key"),
        value_options=source_options(sink, "value"),
        headers=headers,
    )


def _windowed(source: Source) -> Literal["time", "session"] | None:
    if source.window is None:
        return None
    return "session" if source.window.kind == "session" else "time"


def late_spec(query_id: str) -> TopicSpec:
    return TopicSpec(late_topic(query_id), value=LATE_COLUMNS, role="derived")


def find_topic(log: Log, name: str) -> Topic | None:
    try:
        return log.topic(name)
    except NotFound:
        return None


def ensure_declared(log: Log, source: Source, partitions_given: bool) -> Topic:
    """The topic under a declared stream or table, made or found fitting."""
    existing = find_topic(log, source.topic)
    if existing is None:
        _refuse_internal(source.topic)
        return log.create_topic(declared_spec(source))
    if partitions_given and source.partitions != existing.spec.partitions:
        raise Conflict(
            f"topic `{source.topic}` has {existing.spec.partitions} partitions, not {source.partitions}",
            hint="leave PARTITIONS out, or name another KAFKA_TOPIC",
        )
    if existing.spec.kind == "typed":
        check_columns(source, existing.spec)
        check_timestamp(source, existing.spec)
    return existing


def check_columns(source: Source, topic: TopicSpec) -> None:
    """Columns the topic has must be of the same type. Others are read from what events carry beside them, if it keeps
    that."""
    known = {column.name: column for column in topic.key + topic.value}
    keys = {column.name for column in topic.key}
    for column in source.key + source.value:
        found = known.get(column.name)
        if found is None:
            if topic.role != "events":
                raise _absent(column, topic)
        elif found.type != column.type:
            raise UsageError(
                f"`{display_name(column.name)}` is {found.type} in topic `{topic.name}`, not {column.type}",
                hint=f"declare it as {found.type}, or name another KAFKA_TOPIC",
            )
    for column in source.key:
        if column.name in known and column.name not in keys:
            raise UsageError(
                f"`{display_name(column.name)}` is not a key of topic `{topic.name}`",
                detail=f"its key is ({', '.join(display_name(name) for name in sorted(keys)) or 'nothing'})",
                hint="leave KEY out, or name another KAFKA_TOPIC",
            )


def check_timestamp(source: Source, topic: TopicSpec) -> None:
    """Event time is stamped once, when a record arrives, so all streams over a topic share it."""
    theirs = topic.timestamp
    if source.timestamp is None or (theirs and theirs.column == source.timestamp):
        return
    stamped = f"from `{display_name(theirs.column)}`" if theirs else "when they arrive"
    raise UsageError(
        f"records of topic `{topic.name}` get their time {stamped}, not from `{display_name(source.timestamp)}`",
        hint="leave TIMESTAMP out, or name another KAFKA_TOPIC",
    )


def ensure_sink(log: Log, sink: Source, headers: bool) -> Topic:
    """A query's own topic, new or left over empty from a statement that was cut short. `headers` as in `sink_spec`."""
    existing = check_sink(log, sink)
    wanted = sink_spec(sink, headers)
    if existing is None:
        return log.create_topic(wanted)
    if existing.spec != wanted:
        log.delete_topic(sink.topic)
        return log.create_topic(wanted)
    return existing


def check_sink(log: Log, sink: Source) -> Topic | None:
    """The topic that a query is to write, if it is there and may be written."""
    _refuse_internal(sink.topic)
    if not is_topic_name(sink.topic):
        raise UsageError(f"`{sink.topic}` is not a topic name", hint="name one:  WITH (KAFKA_TOPIC='…')")
    existing = find_topic(log, sink.topic)
    if existing is None:
        return None
    if existing.spec.role != "derived":
        raise Conflict(
            f"topic `{sink.topic}` takes events from outside: a query cannot write to it",
            hint="give the query a topic of its own:  WITH (KAFKA_TOPIC='…')",
        )
    if not is_empty(log, existing):
        raise Conflict(
            f"topic `{sink.topic}` holds records of an earlier query",
            hint=f"name another:  WITH (KAFKA_TOPIC='…')      or give them up:  headrace topic delete {sink.topic}",
        )
    return existing


def is_empty(log: Log, topic: Topic) -> bool:
    """Whether there is no record: on Kafka offsets do not tell, an aborted transaction has some too."""
    ends = log.snapshot().ends.get(topic.name, ())
    return not any(
        records.batch.num_rows
        for number, end in enumerate(ends)
        for records in log.read(topic.name, number, end.start, end.end, [TIME])
    )


def _refuse_internal(name: str) -> None:
    if name.startswith("_"):
        raise UsageError(f"topic `{name}` would be one of Headrace's own", hint="take a name without a leading `_`")


def _absent(column: Column, topic: TopicSpec) -> UsageError:
    names = ", ".join(display_name(known.name) for known in topic.key + topic.value)
    return UsageError(
        f"topic `{topic.name}` has no column `{display_name(column.name)}`",
        detail=f"it has {names}",
        hint="a query writes it, so it holds nothing else",
    )
