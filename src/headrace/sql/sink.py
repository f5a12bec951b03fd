"""Where a persistent query writes: its key and value columns, its topic, its formats."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sql.declare import default_key_format
from headrace.sql.expressions import ColumnRef, Expression
from headrace.sql.plan import Project
from headrace.sql.projection import Item
from headrace.sql.properties import SINK_PROPERTIES, Properties, check_formats, read_properties
from headrace.sql.source import Source, Window
from headrace.sql.statements import CreateAsSelect
from headrace.types import Column, display_name


def keyed_items(
    items: Sequence[Item], keys: Sequence[Expression], statement: CreateAsSelect, shown: Sequence[str] = ()
) -> tuple[list[Item], list[Item]]:
    """The items that are the key, in its order, and the others. Every part of the key must be selected, once."""
    found: list[Item] = []
    for index, key in enumerate(keys):
        matching = [item for item in items if item.expression == key]
        name = shown[index] if shown else key.name if isinstance(key, ColumnRef) else ""
        if not matching:
            hint = f"add `{display_name(name)}` to the SELECT list"
            message = f"the key `{display_name(name)}` is not selected"
            raise statement.script.error(message, statement.query.group_span or statement.query.span, hint)
        if len(matching) > 1:
            hint = f"a copy among the values is written AS_VALUE({display_name(name)})"
            raise statement.script.error(f"the key `{display_name(name)}` is selected twice", matching[1].span, hint)
        found.append(matching[0])
    value = [item for item in items if item not in found]
    if not value:
        hint = "select something beside the key"
        raise statement.script.error("there are no value columns", statement.query.span, hint)
    return found, value


def sink_from(statement: CreateAsSelect, source: Source, root: Project, window: Window | None) -> Source:
    properties = read_properties(statement.script, statement.properties, SINK_PROPERTIES)
    key = tuple(named.column for named in root.key)
    value = tuple(named.column for named in root.value)
    formats = (_key_format(properties, source, key), properties.format("VALUE_FORMAT") or source.value_format)
    check_formats(statement.script, statement.target, key, value, formats)
    timestamp, timestamp_format = properties.timestamp(key + value)
    return Source(
        name=statement.name,
        kind=statement.kind,
        topic=properties.text("KAFKA_TOPIC") or statement.name,
        key=key,
        value=value,
        key_format=formats[0],
        value_format=formats[1],
        timestamp=timestamp,
        timestamp_format=timestamp_format,
        partitions=properties.count("PARTITIONS") or source.partitions,
        window=window,
        statement=statement.text,
    )


def _key_format(properties: Properties, source: Source, key: tuple[Column, ...]) -> str:
    """As asked; else the source's, unless that is one for other keys."""
    asked = properties.format("KEY_FORMAT")
    if asked is not None:
        return asked
    return default_key_format(key) if source.key_format in ("KAFKA", "NONE") else source.key_format
