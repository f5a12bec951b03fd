"""CREATE STREAM|TABLE name (…) WITH (…) → a Source."""

from __future__ import annotations

from headrace.sql.properties import SOURCE_PROPERTIES, Properties, check_formats, format_problem, read_properties
from headrace.sql.scope import SYSTEM_COLUMNS
from headrace.sql.source import Source, Sources
from headrace.sql.statements import CreateSource, Element
from headrace.types import Column, display_name


def source_from(statement: CreateSource, sources: Sources | None = None) -> Source:
    """The stream or table a statement declares, checked. Whether its name is taken is the catalog's to say; `sources`
    is for what a declaration may refer to, which is nothing yet."""
    properties = read_properties(statement.script, statement.properties, SOURCE_PROPERTIES)
    if not statement.elements:
        hint = f"CREATE {statement.kind.upper()} {statement.name} (userid VARCHAR KEY, …) WITH (…)"
        raise statement.script.error("a column list is needed", statement.target.span, hint)
    for index, element in enumerate(statement.elements):
        _check_element(statement, element, statement.elements[:index])
    key, value = _key_and_value(statement, properties)
    columns = key + value
    key_format, value_format = properties.format("KEY_FORMAT"), properties.format("VALUE_FORMAT")
    formats = (key_format or default_key_format(key), value_format or "JSON")
    check_formats(statement.script, statement.target, key, value, formats)
    timestamp, timestamp_format = properties.timestamp(columns)
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
        partitions=properties.count("PARTITIONS") or 1,
        statement=statement.text,
    )


def default_key_format(key: tuple[Column, ...]) -> str:
    """KAFKA where it can hold the key, else JSON. ksqlDB would insist on being told."""
    return "JSON" if format_problem(key, "KAFKA") else "KAFKA"


def _check_element(statement: CreateSource, element: Element, before: tuple[Element, ...]) -> None:
    name, span = element.column.name, element.column.span
    script, table = statement.script, statement.kind == "table"
    if name in SYSTEM_COLUMNS:
        raise script.error(f"`{name}` is a column every stream and table has already", span, "choose another name")
    if any(other.column.name == name for other in before):
        raise script.error(f"column `{display_name(name)}` is there twice", span)
    if element.role == "key" and table:
        raise script.error(f"`{display_name(name)}`: a table's key is a PRIMARY KEY", span, "write PRIMARY KEY")
    if element.role == "primary" and not table:
        raise script.error(f"`{display_name(name)}`: a stream's key is not PRIMARY", span, "write KEY")


def _key_and_value(statement: CreateSource, properties: Properties) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    columns = [(Column(element.column.name, element.type), element.role) for element in statement.elements]
    key = tuple(column for column, role in columns if role)
    classic = properties.column("KEY", [column for column, _ in columns])
    if classic is not None:
        if key and key != (classic,):
            raise properties.wrong("KEY", "the key is marked in the columns already", "leave out KEY='…'")
        key = (classic,)
    if statement.kind == "table" and not key:
        hint = "mark a column as PRIMARY KEY, or name it with KEY='column' in WITH"
        raise statement.script.error("a table needs a primary key", statement.target.span, hint)
    return key, tuple(column for column, _ in columns if column not in key)
