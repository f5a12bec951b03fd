"""CREATE STREAM|TABLE name (…) WITH (…) → a Source."""

from __future__ import annotations

from dataclasses import replace

from headrace.sql.clauses import Element
from headrace.sql.named_types import WRITTEN, known_type
from headrace.sql.properties import (
    KEY_FORMAT_SETTING,
    SOURCE_PROPERTIES,
    VALUE_FORMAT_SETTING,
    Properties,
    check_formats,
    format_problem,
    read_properties,
)
from headrace.sql.scope import SYSTEM_COLUMNS, find_source
from headrace.sql.source import Header, Source, Sources
from headrace.sql.statements import AlterSource, AssertSource, CreateSource, CreateType
from headrace.types import Column, DataType, display_name


def source_from(statement: CreateSource, sources: Sources) -> Source:
    """The stream or table a statement declares, checked. Whether its name is taken is the catalog's to say; `sources`
    is for the types a declaration may refer to, and for who else has its topic."""
    properties = read_properties(statement.script, statement.properties, SOURCE_PROPERTIES, statement.settings)
    if not statement.elements:
        hint = f"CREATE {statement.kind.upper()} {statement.name} (userid VARCHAR KEY, …) WITH (…)"
        raise statement.script.error("a column list is needed", statement.target.span, hint)
    _check_schema_ids(properties, statement.elements)
    elements = _known_elements(statement, sources)
    headers = _headers(statement, elements)
    key, value = _key_and_value(statement, elements, properties)
    columns = key + value
    key_format = properties.format("KEY_FORMAT") or properties.default_format(KEY_FORMAT_SETTING)
    value_format = properties.format("VALUE_FORMAT") or properties.default_format(VALUE_FORMAT_SETTING)
    formats = (key_format or default_key_format(key), value_format or "JSON")
    check_formats(statement.script, statement.target, key, value, formats)
    timestamp, timestamp_format = properties.timestamp(columns)
    topic = properties.text("KAFKA_TOPIC") or statement.name
    source = Source(
        name=statement.name,
        kind=statement.kind,
        topic=topic,
        key=key,
        value=value,
        key_format=formats[0],
        value_format=formats[1],
        timestamp=timestamp,
        timestamp_format=timestamp_format,
        partitions=properties.count("PARTITIONS") or 1,
        window=properties.window(key),
        headers=headers,
        read_only=statement.read_only,
        classic="KEY" in properties.by_name,
        per_batch=statement.kind == "table" and any(one.per_batch for one in sources.sources() if one.topic == topic),
        statement=statement.text,
        **properties.details(formats, value),
    )
    return properties.checked(source)


def _check_schema_ids(properties: Properties, elements: tuple[Element, ...]) -> None:
    """A schema's number stands for columns, so they are not written too."""
    for name, roles in (("KEY_SCHEMA_ID", ("key", "primary")), ("VALUE_SCHEMA_ID", (None,))):
        if name in properties.by_name and any(element.role in roles for element in elements):
            raise properties.wrong(name, f"{name} and columns cannot both be there", "leave out one of them")


def _known_elements(statement: CreateSource, sources: Sources) -> tuple[Element, ...]:
    """The columns with their types looked up, each checked."""
    types = sources.types()
    elements = tuple(
        replace(element, type=known_type(element.type, types, statement.script)) for element in statement.elements
    )
    for index, element in enumerate(elements):
        _check_element(statement, element, elements[:index])
    return elements


def _headers(statement: CreateSource, elements: tuple[Element, ...]) -> tuple[Header, ...]:
    found: list[Header] = []
    for element in elements:
        if element.role != "headers":
            continue
        header, span = Header(element.column.name, element.header), element.column.span
        if header.column.type != element.type:
            message = f"`{display_name(header.name)}` is {element.type}, but headers are {header.column.type}"
            raise statement.script.error(message, span)
        if found and (header.key is None or any(other.key in (None, header.key) for other in found)):
            message = "a source has one column of all HEADERS, or one per HEADER('…')"
            raise statement.script.error(message, span)
        found.append(header)
    return tuple(found)


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


def _key_and_value(
    statement: CreateSource, elements: tuple[Element, ...], properties: Properties
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    columns = [(Column(one.column.name, one.type), one.role) for one in elements if one.role != "headers"]
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


def type_from(statement: CreateType, sources: Sources) -> DataType:
    """What a CREATE TYPE names; `SqlError` if the name is taken."""
    if statement.name in WRITTEN:
        raise statement.script.error(f"`{statement.name}` is a type already", statement.target.span)
    if statement.name in sources.types() and not statement.if_not_exists:
        hint = f"CREATE TYPE IF NOT EXISTS, or first DROP TYPE {statement.name};"
        message = f"type `{display_name(statement.name)}` exists already"
        raise statement.script.error(message, statement.target.span, hint)
    return known_type(statement.type, sources.types(), statement.script)


def altered_source(statement: AlterSource, sources: Sources) -> Source:
    """The source with more columns; `SqlError` where that cannot be."""
    source, script = find_source(statement.script, sources, statement.target), statement.script
    name = display_name(source.name)
    if source.kind != statement.kind:
        hint = f"ALTER {source.kind.upper()} {name} …"
        raise script.error(f"`{name}` is a {source.kind}", statement.target.span, hint)
    if source.read_only:
        raise script.error(f"`{name}` is a SOURCE: it cannot be altered", statement.target.span)
    if source.query is not None:
        message = f"`{name}` is made by a query, and has the columns that gives"
        raise script.error(message, statement.target.span, "CREATE OR REPLACE it with another SELECT")
    added: list[Column] = []
    taken = {column.name for column in source.columns} | SYSTEM_COLUMNS
    for element in statement.elements:
        if element.column.name in taken:
            raise script.error(f"column `{display_name(element.column.name)}` is there already", element.column.span)
        taken.add(element.column.name)
        added.append(Column(element.column.name, known_type(element.type, sources.types(), script)))
    value = source.value + tuple(added)
    check_formats(script, statement.target, source.key, value, (source.key_format, source.value_format))
    return replace(source, value=value)


def check_assert(statement: AssertSource, sources: Sources) -> None:
    """ASSERT STREAM|TABLE: `SqlError` saying what is different."""
    found, script = find_source(statement.script, sources, statement.target), statement.script
    if found.kind != statement.kind:
        raise script.error(f"`{display_name(found.name)}` is a {found.kind}", statement.target.span)
    if not statement.elements and not statement.properties:
        return
    declared = CreateSource(
        statement.kind, statement.target, statement.elements, statement.properties, script=statement.script
    )
    wanted = source_from(declared, sources) if statement.elements else None
    if wanted is not None and (wanted.key, wanted.value, wanted.headers) != (found.key, found.value, found.headers):
        has = ", ".join(map(str, (*found.key, *found.value)))
        raise script.error(f"`{display_name(found.name)}` has other columns", statement.target.span, f"it has {has}")
    if wanted is None:
        return
    given = {one.name for one in statement.properties}
    for name, field in _ASSERTED.items():
        if name in given and getattr(wanted, field) != getattr(found, field):
            message = f"{name} of `{display_name(found.name)}` is `{getattr(found, field)}`"
            raise script.error(message, statement.target.span)


# The properties ASSERT compares, and where a source has them.
_ASSERTED = {
    "KAFKA_TOPIC": "topic",
    "VALUE_FORMAT": "value_format",
    "KEY_FORMAT": "key_format",
    "PARTITIONS": "partitions",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_FORMAT": "timestamp_format",
    "WRAP_SINGLE_VALUE": "wrap_single_value",
    "VALUE_DELIMITER": "value_delimiter",
    "KEY_DELIMITER": "key_delimiter",
}
