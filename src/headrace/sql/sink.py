"""Where a persistent query writes: its key and value columns, its topic, its formats."""

from __future__ import annotations

import re
from dataclasses import replace

from headrace.sql.coerce import widens
from headrace.sql.declare import default_key_format
from headrace.sql.implicit import convert
from headrace.sql.plan import Limits, Named, Project, is_per_batch
from headrace.sql.properties import (
    INSERT_PROPERTIES,
    KEY_FORMAT_SETTING,
    SINK_PROPERTIES,
    Properties,
    check_formats,
    read_properties,
)
from headrace.sql.relation import Input
from headrace.sql.scope import find_source
from headrace.sql.source import Source, Sources, Window
from headrace.sql.statements import CreateAsSelect, InsertSelect
from headrace.types import Column, display_name

_QUERY_ID = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")


def sink_from(statement: CreateAsSelect, source: Input, root: Project, window: Window | None) -> Source:
    properties = read_properties(statement.script, statement.properties, SINK_PROPERTIES, statement.settings)
    first = source.sources[0]
    key = tuple(named.column for named in root.key)
    value = tuple(named.column for named in root.value)
    value_format = properties.format("VALUE_FORMAT") or first.value_format
    formats = (_key_format(properties, first, key, bool(statement.query.partition_by)), value_format)
    check_formats(statement.script, statement.target, key, value, formats)
    timestamp, timestamp_format = properties.timestamp(key + value)
    details = properties.details(formats, value)
    if first.value_format == "DELIMITED" == value_format:
        details["value_delimiter"] = details["value_delimiter"] or first.value_delimiter
    if first.key_format == "DELIMITED" == formats[0]:
        details["key_delimiter"] = details["key_delimiter"] or first.key_delimiter
    sink = Source(
        name=statement.name,
        kind=statement.kind,
        topic=properties.text("KAFKA_TOPIC") or statement.name,
        key=key,
        value=value,
        key_format=formats[0],
        value_format=value_format,
        timestamp=timestamp,
        timestamp_format=timestamp_format,
        partitions=properties.count("PARTITIONS") or first.partitions,
        window=window,
        classic=any(one.classic for one in source.sources),
        per_batch=statement.kind == "table" and is_per_batch(root),
        statement=statement.text,
        **details,
    )
    return properties.checked(sink)


def limits_from(statement: CreateAsSelect) -> Limits:
    """What WITH says about the query itself."""
    properties = read_properties(statement.script, statement.properties, SINK_PROPERTIES, statement.settings)
    most = 2**63 - 1
    return Limits(
        state_rows=properties.count("MAX_STATE_ROWS", most),
        state_bytes=properties.count("MAX_STATE_BYTES", most),
        batch_rows=properties.count("MAX_BATCH_ROWS", most),
    )


def counts_late(statement: CreateAsSelect, window: Window | None) -> bool:
    """Whether the batch layer is to have what came too late."""
    properties = read_properties(statement.script, statement.properties, SINK_PROPERTIES, statement.settings)
    wanted = bool(properties.flag("BATCH_COUNTS_LATE"))
    if wanted and (window is None or window.kind == "session"):
        message = "nothing comes too late for it" if window is None else "sessions have no batch layer"
        raise properties.wrong("BATCH_COUNTS_LATE", message, "it is for tables with WINDOW TUMBLING or HOPPING")
    return wanted


def _key_format(properties: Properties, source: Source, key: tuple[Column, ...], partitioned: bool) -> str:
    """As asked; else the source's, unless that is one for other keys."""
    asked = properties.format("KEY_FORMAT")
    if partitioned and not key:
        if asked not in (None, "NONE"):
            name = "KEY_FORMAT" if "KEY_FORMAT" in properties.by_name else "FORMAT"
            raise properties.wrong(name, "PARTITION BY NULL gives rows without a key", "KEY_FORMAT='NONE'")
        return "NONE"
    if asked is not None:
        return asked
    if source.key_format not in ("KAFKA", "NONE"):
        return source.key_format
    if not key:
        return source.key_format
    if source.key_format == "NONE" and (default := properties.default_format(KEY_FORMAT_SETTING)):
        return default
    # A new key is said in so many words, and so is its format.
    return "KAFKA" if partitioned else default_key_format(key)


def insert_target(statement: InsertSelect, sources: Sources) -> Source:
    """The stream INSERT INTO writes to."""
    sink = find_source(statement.script, sources, statement.target)
    name, span = display_name(sink.name), statement.target.span
    if sink.kind == "table":
        message = f"`{name}` is a table, and a query can only insert into a stream"
        raise statement.script.error(message, span, "CREATE TABLE … AS SELECT makes a table")
    if sink.read_only:
        raise statement.script.error(f"`{name}` is a SOURCE: nothing is written to it", span)
    if sink.headers:
        raise statement.script.error(f"`{name}` has header columns: nothing can be inserted into it", span)
    return sink


def check_insert(statement: InsertSelect, sink: Source, root: Project, window: Window | None) -> Project:
    """The rows as the sink has them: the same columns, narrower numbers widened."""
    key = _fitting(root.key, sink.key)
    value = _fitting(root.value, sink.value)
    if key is None or value is None or (window is None) != (sink.window is None):
        shown = ", ".join(map(str, (*sink.key, *sink.value)))
        given = ", ".join(str(named.column) for named in (*root.key, *root.value))
        message = f"the rows do not have the columns of `{display_name(sink.name)}`"
        hint = f"it has {shown}; the SELECT gives {given}"
        raise statement.script.error(message, statement.query.span, hint)
    return replace(root, key=key, value=value)


def _fitting(given: tuple[Named, ...], wanted: tuple[Column, ...]) -> tuple[Named, ...] | None:
    if [named.name for named in given] != [column.name for column in wanted]:
        return None
    if not all(widens(named.column.type, column.type) for named, column in zip(given, wanted, strict=True)):
        return None
    return tuple(
        Named(named.name, convert(named.expression, column.type)) for named, column in zip(given, wanted, strict=True)
    )


def insert_query_name(statement: InsertSelect) -> str:
    """What WITH (QUERY_ID='…') calls the query; it is in the names of a folder and a topic too."""
    properties = read_properties(statement.script, statement.properties, INSERT_PROPERTIES, statement.settings)
    wanted = properties.text("QUERY_ID")
    if wanted is not None and not _QUERY_ID.fullmatch(wanted):
        raise properties.wrong("QUERY_ID", f"`{wanted}` cannot be a query's id", "letters, digits and _, at most 100")
    return "INSERTQUERY" if wanted is None else wanted.upper()
