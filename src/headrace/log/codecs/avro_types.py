"""SQL's types in Avro's words, as ksqlDB writes them, and Avro's types in SQL's.

Every field may be null. DECIMAL, DATE, TIME and TIMESTAMP are logical types; a MAP is an array of entries with `key`
and `value`, because Avro's own maps have text for keys; a STRUCT is a record named after its path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.errors import UsageError
from headrace.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    TIME,
    TIMESTAMP,
    VARCHAR,
    Array,
    Column,
    DataType,
    Decimal,
    Map,
    Struct,
    display_name,
)

RECORD_NAME = "io.confluent.ksql.avro_schemas.KsqlDataSourceSchema"
_SIMPLE: dict[DataType, Any] = {
    BOOLEAN: "boolean",
    INTEGER: "int",
    BIGINT: "long",
    DOUBLE: "double",
    VARCHAR: "string",
    BYTES: "bytes",
    DATE: {"type": "int", "logicalType": "date"},
    TIME: {"type": "int", "logicalType": "time-millis"},
    TIMESTAMP: {"type": "long", "logicalType": "timestamp-millis"},
}
_FROM_LOGICAL: dict[str, DataType] = {
    "date": DATE,
    "time-millis": TIME,
    "time-micros": TIME,
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": TIMESTAMP,
    "local-timestamp-micros": TIMESTAMP,
    "uuid": VARCHAR,
}
_FROM_PRIMITIVE: dict[str, DataType] = {
    "boolean": BOOLEAN,
    "int": INTEGER,
    "long": BIGINT,
    "float": DOUBLE,
    "double": DOUBLE,
    "string": VARCHAR,
    "bytes": BYTES,
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def avro_schema(columns: Sequence[Column], wrapped: bool = True, name: str | None = None) -> str:
    """The schema ksqlDB would register for these columns; of one column alone if it is not `wrapped`."""
    full = name or RECORD_NAME
    short = full.rpartition(".")[2]
    tree: Any
    if not wrapped and len(columns) == 1:
        tree = _type(columns[0].type, short)
    else:
        tree = {"type": "record", "name": short, "fields": _fields([(c.name, c.type) for c in columns], short)}
        if "." in full:
            tree = {"type": "record", "name": short, "namespace": full.rpartition(".")[0], "fields": tree["fields"]}
    return msgspec.json.encode(tree).decode()


def _fields(columns: Sequence[tuple[str, DataType]], path: str) -> list[dict[str, Any]]:
    return [
        {"name": _checked(name), "type": ["null", _type(type_, f"{path}_{name}")], "default": None}
        for name, type_ in columns
    ]


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"the format AVRO cannot have a field `{display_name(name)}`", hint="letters, digits and `_` will do"
        )
    return name


def _type(type_: DataType, path: str) -> Any:
    match type_:
        case Decimal(precision, scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case Array(element):
            return {"type": "array", "items": ["null", _type(element, path)]}
        case Map(key, value):
            entry = {
                "type": "record",
                "name": path,
                "fields": _fields([("key", key), ("value", value)], path),
                "connect.internal.type": "MapEntry",
            }
            return {"type": "array", "items": entry}
        case Struct(fields):
            return {"type": "record", "name": path, "fields": _fields(fields, path)}
        case _:
            return _SIMPLE[type_]


# The other way: columns for a schema that somebody else made


def columns_of_avro(schema: str, references: Mapping[str, str] | None = None, single: str = "ROWVAL") -> list[Column]:
    """The columns of a schema, for a stream declared without any. One that is not a record is one column."""
    names: dict[str, Any] = {}
    for needed in (references or {}).values():
        _collect(msgspec.json.decode(needed), "", names)
    tree = msgspec.json.decode(schema)
    _collect(tree, "", names)
    tree, _ = _branch(tree)
    node = _resolved(tree, names)
    if isinstance(node, dict) and node.get("type") in ("record", "error"):
        return [Column(_sql_name(one["name"]), _sql(one["type"], names, ())) for one in node["fields"]]
    return [Column(single, _sql(tree, names, ()))]


def _sql_name(name: str) -> str:
    """As an unquoted name in SQL means it."""
    return name.upper()


def _collect(tree: Any, namespace: str, names: dict[str, Any]) -> None:
    """All named types by their full and, for want of a better one, short names."""
    if isinstance(tree, list):
        for branch in tree:
            _collect(branch, namespace, names)
    elif isinstance(tree, dict):
        if isinstance(tree.get("name"), str) and tree.get("type") in ("record", "error", "enum", "fixed"):
            name: str = tree["name"]
            space = name.rpartition(".")[0] or tree.get("namespace", namespace)
            names[f"{space}.{name.rpartition('.')[2]}" if space else name] = tree
            names.setdefault(name.rpartition(".")[2], tree)
            namespace = space
        for one in tree.get("fields", ()):
            _collect(one.get("type"), namespace, names)
        for inner in ("items", "values", "type"):
            if not isinstance(tree.get(inner), str):
                _collect(tree.get(inner), namespace, names)


def _resolved(tree: Any, names: Mapping[str, Any]) -> Any:
    return names.get(tree, tree) if isinstance(tree, str) else tree


def _branch(tree: Any) -> tuple[Any, bool]:
    """The one branch of a union that is not null, and whether there was a null."""
    if not isinstance(tree, list):
        return tree, False
    others = [branch for branch in tree if branch != "null"]
    if len(others) != 1:
        raise UsageError("a union of several types has no type in SQL", detail=f"it has {len(others)} besides null")
    return others[0], len(others) < len(tree)


def _sql(tree: Any, names: Mapping[str, Any], above: tuple[str, ...]) -> DataType:
    tree, _ = _branch(tree)
    tree = _resolved(tree, names)
    if isinstance(tree, str):
        if tree not in _FROM_PRIMITIVE:
            raise UsageError(f"Avro's type `{tree}` has no type in SQL")
        return _FROM_PRIMITIVE[tree]
    logical = tree.get("logicalType")
    kind = tree["type"]
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return Decimal(tree["precision"], tree.get("scale", 0))
    if logical in _FROM_LOGICAL and kind in ("int", "long", "string"):
        return _FROM_LOGICAL[logical]
    match kind:
        case "record" | "error":
            return _record(tree, names, above)
        case "array":
            return _array(tree, names, above)
        case "map":
            return Map(VARCHAR, _sql(tree["values"], names, above))
        case "enum":
            return VARCHAR
        case "fixed":
            return BYTES
        case _:
            return _sql(kind, names, above)


def _record(tree: dict[str, Any], names: Mapping[str, Any], above: tuple[str, ...]) -> DataType:
    name = tree["name"]
    if name in above:
        raise UsageError(f"the record `{name}` contains itself: that has no type in SQL")
    inner = (*above, name)
    return Struct(tuple((_sql_name(one["name"]), _sql(one["type"], names, inner)) for one in tree["fields"]))


def _array(tree: dict[str, Any], names: Mapping[str, Any], above: tuple[str, ...]) -> DataType:
    entry = _resolved(tree["items"], names)
    if isinstance(entry, dict) and entry.get("connect.internal.type") == "MapEntry":
        types = {one["name"]: _sql(one["type"], names, above) for one in entry["fields"]}
        return Map(types["key"], types["value"])
    return Array(_sql(tree["items"], names, above))
