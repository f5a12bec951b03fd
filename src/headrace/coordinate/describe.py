"""A topic in the words of the HTTP API, and back: what somebody wants of a topic → its definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Literal

from headrace.coordinate.catalog import Catalog
from headrace.errors import Conflict, Refused, UsageError
from headrace.log.base import Log, PartitionEnds, Topic, TopicConfig, TopicSpec
from headrace.log.queues import Queues
from headrace.sql.api import parse_columns
from headrace.types import Column, display_name

CONFIG = tuple(field.name for field in fields(TopicConfig))


def describe_topic(log: Log, catalog: Catalog, topic: Topic, rate: float, dead_letters: int) -> dict[str, Any]:
    """The API's Topic."""
    stats, spec = log.stats(topic.name), topic.spec
    keyed = [(column, True) for column in spec.key] + [(column, False) for column in spec.value]
    return {
        "name": topic.name,
        "kind": spec.kind,
        "role": spec.role,
        "partitions": [
            {"partition": number, "start": ends.start, "end": ends.end} for number, ends in enumerate(stats.partitions)
        ],
        "records": stats.records,
        "counts": counts(log),
        "bytes": stats.bytes,
        "segments": stats.segments,
        "stream_time_ms": stats.stream_time if stats.stream_time >= 0 else None,
        "columns": [{"name": display_name(column.name), "type": str(column.type), "key": key} for column, key in keyed],
        "timestamp": display_name(spec.timestamp.column) if spec.timestamp else None,
        "retention_ms": spec.config.retention_ms,
        "retention_bytes": spec.config.retention_bytes,
        "config": asdict(spec.config),
        "key_format": spec.key_format,
        "value_format": spec.value_format,
        "schema_versions": len(topic.schemas),
        "internal": topic.internal,
        "sources": [display_name(source.name) for source in catalog.over_topic(topic.name)],
        "rate": rate,
        "dead_letters": dead_letters,
    }


def counts(log: Log) -> Literal["records", "offsets"]:
    """What numbers of records are numbers of, on this log."""
    return "records" if "counted" in log.capabilities else "offsets"


def new_topic(name: str, columns: str, partitions: int, kind: str, config: Mapping[str, Any]) -> TopicSpec:
    """`columns` as in CREATE STREAM."""
    if name.startswith("_"):
        raise Refused(f"`{name}`: names that begin with `_` are Headrace's own")
    if kind == "raw" and columns:
        raise UsageError("a raw topic has no columns: its records are bytes")
    parsed = _columns(columns)
    return TopicSpec(
        name=name,
        key=tuple(column for column, key in parsed if key),
        value=tuple(column for column, key in parsed if not key),
        partitions=partitions,
        kind="raw" if kind == "raw" else "typed",
        config=TopicConfig(**config),
    )


def altered_topic(topic: Topic, add_columns: str, config: Mapping[str, Any]) -> TopicSpec:
    """The definition with more columns and other settings."""
    refuse_internal(topic)
    added = _columns(add_columns)
    if any(key for _, key in added):
        raise UsageError("a topic's key stays as it is", hint="leave out KEY")
    if added and (topic.spec.kind == "raw" or topic.spec.role != "events"):
        whose = "a raw topic has no columns" if topic.spec.kind == "raw" else "a query writes it"
        raise UsageError(f"topic `{topic.name}` takes no more columns: {whose}")
    value = topic.spec.value + tuple(column for column, _ in added)
    return replace(topic.spec, value=value, config=replace(topic.spec.config, **config))


def _columns(text: str) -> list[tuple[Column, bool]]:
    elements = parse_columns(text) if text else ()
    return [(Column(element.column.name, element.type), element.role is not None) for element in elements]


def refuse_internal(topic: Topic) -> None:
    if topic.internal:
        raise Refused(f"topic `{topic.name}` is Headrace's own")


def check_unused(topic: Topic, catalog: Catalog, queues: Queues | None) -> None:
    """`Conflict` if something would miss the topic."""
    refuse_internal(topic)
    over = [display_name(source.name) for source in catalog.over_topic(topic.name)]
    if over:
        raise Conflict(
            f"topic `{topic.name}` is in use by {', '.join(f'`{source}`' for source in over)}", hint="drop those first"
        )
    if queues is not None and (found := queues.over_topic(topic.name)):
        raise Conflict(f"topic `{topic.name}` has the queue `{found[0]}`", hint="delete that first")


def delete_records(log: Log, topic: Topic, partition: int | None, before: int | None) -> tuple[PartitionEnds, ...]:
    """Forget what is before an offset of a partition, or all there is now; what is left."""
    refuse_internal(topic)
    if topic.spec.role != "events":
        raise Conflict(f"topic `{topic.name}` is written by a query", hint="a view is made of all its records")
    ends = log.stats(topic.name).partitions
    if partition is not None and not 0 <= partition < len(ends):
        raise UsageError(f"there is no partition `{partition}`", hint=f"partitions are 0 to {len(ends) - 1}")
    if before is not None and partition is None and len(ends) > 1:
        raise UsageError(f"an offset needs a partition: `{topic.name}` has {len(ends)}", hint="name one, such as 0")
    for number in range(len(ends)) if partition is None else [partition]:
        log.delete_records(topic.name, number, ends[number].end if before is None else before)
    return log.stats(topic.name).partitions
