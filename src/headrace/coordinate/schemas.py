"""Streams and tables in the schema registry: what they declare is registered, what they leave out is found there."""

from __future__ import annotations

from dataclasses import replace

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.dependents import with_broken
from headrace.errors import NotFound, SqlError, UsageError
from headrace.log.base import Log
from headrace.log.codecs.avro_types import columns_of_avro
from headrace.log.codecs.base import Side, WriterSchema
from headrace.log.codecs.formats import REGISTRY_FORMATS
from headrace.log.codecs.json_sr import columns_of_json_schema
from headrace.log.codecs.of_source import source_codec
from headrace.log.registry.registry import Incompatible
from headrace.sql.clauses import Element, Identifier
from headrace.sql.source import Source
from headrace.sql.statements import CreateSource
from headrace.types import Column


def register_schemas(log: Log, catalog: Catalog, source: Source) -> None:
    """The schemas a source's topic is written with are in the registry. `Conflict` if they may not be, with what would
    break; nothing if the formats have none."""
    if log.schemas is None:
        return
    sides: tuple[tuple[Side, str, tuple[Column, ...]], ...] = (
        ("key", source.key_format, source.key),
        ("value", source.value_format, source.value),
    )
    for side, format_, columns in sides:
        if columns and format_.upper() in REGISTRY_FORMATS:
            try:
                source_codec(source, side, log.schemas).prepare()
            except Incompatible as error:
                raise with_broken(catalog, error) from None


def with_inferred_columns(statement: CreateSource, log: Log) -> CreateSource:
    """The statement with the columns it leaves out, taken from the registry: those of the value if it declares no other
    than keys, those of the key if it declares none. A statement that leaves out nothing is itself."""
    given = {one.name: one.value for one in statement.properties}
    topic = str(given.get("KAFKA_TOPIC", statement.name))
    found = list(statement.elements)
    keys = [element for element in found if element.role in ("key", "primary")]
    values = [element for element in found if element.role is None]
    if not values and (schema := _schema(log, given, topic, "value")):
        taken = {element.column.name for element in found}
        columns = _columns(schema, given.get("VALUE_SCHEMA_FULL_NAME"), "ROWVAL", statement)
        found += [Element(Identifier(one.name), one.type) for one in columns if one.name not in taken]
    if not keys and "KEY" not in given and (schema := _schema(log, given, topic, "key")):
        role = "primary" if statement.kind == "table" else "key"
        columns = _columns(schema, given.get("KEY_SCHEMA_FULL_NAME"), "ROWKEY", statement)
        found = [Element(Identifier(one.name), one.type, role) for one in columns] + found  # type: ignore[arg-type]
    return statement if len(found) == len(statement.elements) else replace(statement, elements=tuple(found))


def _schema(log: Log, given: dict[str, object], topic: str, side: Side) -> WriterSchema | None:
    format_ = str(given.get(f"{side.upper()}_FORMAT") or given.get("FORMAT") or "").upper()
    if format_ not in REGISTRY_FORMATS or log.schemas is None:
        return None
    number = given.get(f"{side.upper()}_SCHEMA_ID")
    try:
        return log.schemas.newest(f"{topic}-{side}") if number is None else log.schemas.by_id(int(str(number)))
    except (NotFound, ValueError):
        return None


def _columns(schema: WriterSchema, full_name: object, single: str, statement: CreateSource) -> list[Column]:
    try:
        match schema.type:
            case "AVRO":
                return columns_of_avro(schema.text, schema.references, single)
            case "PROTOBUF":
                from headrace.log.codecs.proto_types import columns_of_proto

                return columns_of_proto(schema.text, schema.references, str(full_name) if full_name else None)
            case "JSON":
                return columns_of_json_schema(schema.text, single)
    except (UsageError, KeyError) as error:
        if isinstance(error, SqlError):
            raise
        reason = error.message if isinstance(error, UsageError) else f"there is no {error}"
        raise statement.script.error(
            f"columns cannot be taken from schema {schema.id}: {reason}", statement.target.span, "declare them"
        ) from None
