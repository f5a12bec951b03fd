"""SQL's types in Protobuf's words, as ksqlDB writes them, and Protobuf's types in SQL's.

Scalars are `optional`, so that null is not 0. DECIMAL is `confluent.type.Decimal`, DATE and TIME are Google's `Date`
and `TimeOfDay`, TIMESTAMP its `Timestamp`; a MAP is repeated entries of `key` and `value`, which is what a `map` is on
the wire, but may have keys and values of any type. An ARRAY or MAP that is null is an empty one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from headrace.errors import UsageError
from headrace.log.codecs.proto_files import DATE as DATE_FILE
from headrace.log.codecs.proto_files import DECIMAL, META, TIME_OF_DAY, ProtoFiles
from headrace.log.codecs.proto_meta import meta_of
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

MESSAGE_NAME = "ConnectDefault1"
TIMESTAMP_FILE = "google/protobuf/timestamp.proto"
_SCALARS: dict[DataType, str] = {
    BOOLEAN: "bool",
    INTEGER: "int32",
    BIGINT: "int64",
    DOUBLE: "double",
    VARCHAR: "string",
    BYTES: "bytes",
}
_MESSAGES: dict[DataType, tuple[str, str]] = {
    DATE: (".google.type.Date", DATE_FILE),
    TIME: (".google.type.TimeOfDay", TIME_OF_DAY),
    TIMESTAMP: (".google.protobuf.Timestamp", TIMESTAMP_FILE),
}
WELL_KNOWN: dict[str, DataType] = {
    "google.type.Date": DATE,
    "google.type.TimeOfDay": TIME,
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.BoolValue": BOOLEAN,
    "google.protobuf.Int32Value": INTEGER,
    "google.protobuf.UInt32Value": BIGINT,
    "google.protobuf.Int64Value": BIGINT,
    "google.protobuf.UInt64Value": BIGINT,
    "google.protobuf.FloatValue": DOUBLE,
    "google.protobuf.DoubleValue": DOUBLE,
    "google.protobuf.StringValue": VARCHAR,
    "google.protobuf.BytesValue": BYTES,
}
_TYPE_NAMES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def proto_schema(columns: Sequence[Column], name: str | None = None) -> str:
    """The .proto file of these columns."""
    writer = _Writer()
    package, _, short = (name or MESSAGE_NAME).rpartition(".")
    message = writer.message(short, [(column.name, column.type) for column in columns], 0)
    lines = ['syntax = "proto3";']
    if package:
        lines.append(f"package {package};")
    lines += [f'import "{file}";' for file in sorted(writer.imports)]
    return "\n".join([*lines, "", *message]) + "\n"


class _Writer:
    def __init__(self) -> None:
        self.imports: set[str] = set()

    def message(self, name: str, fields: Sequence[tuple[str, DataType]], depth: int) -> list[str]:
        """A message with those it needs inside of it."""
        lines, inner = [], []
        for number, (field, type_) in enumerate(fields, 1):
            nested = f"{_checked(field)}__{depth + 1}"
            label, kind, options, needed = self._field(type_, nested, depth + 1)
            lines.append(f"  {label}{kind} {field} = {number}{options};")
            inner += [f"  {line}" for line in needed]
        return [f"message {name} {{", *lines, *inner, "}"]

    def _field(self, type_: DataType, nested: str, depth: int) -> tuple[str, str, str, list[str]]:
        """Label, type, options, and messages to be declared beside the field."""
        match type_:
            case Array(Array() | Map() as element):
                # Repeated fields hold no repeated fields: each gets a message of its own.
                return "repeated ", nested, "", self.message(nested, [("items", element)], depth)
            case Array(element):
                _, kind, options, needed = self._field(element, nested, depth)
                return "repeated ", kind, options, needed
            case Map(key, value):
                return "repeated ", nested, "", self.message(nested, [("key", key), ("value", value)], depth)
            case Struct(fields):
                return "", nested, "", self.message(nested, fields, depth)
            case Decimal(precision, scale):
                self.imports |= {DECIMAL, META}
                params = f'{{key: "precision", value: "{precision}"}}, {{key: "scale", value: "{scale}"}}'
                return "", ".confluent.type.Decimal", f" [(confluent.field_meta) = {{params: [{params}]}}]", []
            case _ if type_ in _MESSAGES:
                kind, file = _MESSAGES[type_]
                self.imports.add(file)
                return "", kind, "", []
            case _:
                return "optional ", _SCALARS[type_], "", []


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"the format PROTOBUF cannot have a field `{display_name(name)}`", hint="letters, digits and `_` will do"
        )
    return name


# The other way: columns for a schema that somebody else made

_FROM_SCALAR: dict[str, DataType] = {
    "bool": BOOLEAN,
    "int32": INTEGER,
    "sint32": INTEGER,
    "sfixed32": INTEGER,
    "uint32": BIGINT,
    "fixed32": BIGINT,
    "int64": BIGINT,
    "sint64": BIGINT,
    "sfixed64": BIGINT,
    "uint64": BIGINT,
    "fixed64": BIGINT,
    "float": DOUBLE,
    "double": DOUBLE,
    "string": VARCHAR,
    "bytes": BYTES,
    "enum": VARCHAR,
}


def columns_of_proto(
    text: str, references: Mapping[str, str] | None = None, full_name: str | None = None
) -> list[Column]:
    """The columns of a schema's first message, or of the one that is named."""
    files = ProtoFiles(text, references)
    message = files.pool.FindMessageTypeByName(full_name) if full_name else files.message()
    return [Column(field.name.upper(), sql_type(field, ())) for field in message.fields]


def sql_type(field: Any, above: tuple[str, ...]) -> DataType:
    if is_map(field):
        key, value = entry_fields(field.message_type)
        return Map(sql_type(key, above), sql_type(value, above))
    element = _element(field, above)
    return Array(element) if field.is_repeated else element


def _element(field: Any, above: tuple[str, ...]) -> DataType:
    message = field.message_type
    if message is None:
        return _FROM_SCALAR[scalar_name(field)]
    if message.full_name in WELL_KNOWN:
        return WELL_KNOWN[message.full_name]
    if message.full_name == "confluent.type.Decimal":
        meta = meta_of(field.GetOptions())
        params = meta.params if meta else {}
        return Decimal(int(params.get("precision", 38)), int(params.get("scale", 9)))
    if message.full_name in above:
        raise UsageError(f"the message `{message.full_name}` contains itself: that has no type in SQL")
    inner = (*above, message.full_name)
    return Struct(tuple((one.name.upper(), sql_type(one, inner)) for one in message.fields))


def scalar_name(field: Any) -> str:
    return _TYPE_NAMES[field.type]


def is_map(field: Any) -> bool:
    """A `map`, or repeated messages of a key and a value, which are the same on the wire."""
    message = field.message_type
    if message is None or not field.is_repeated:
        return False
    return message.GetOptions().map_entry or [(one.name, one.number) for one in message.fields] == [
        ("key", 1),
        ("value", 2),
    ]


def entry_fields(message: Any) -> tuple[Any, Any]:
    return message.fields_by_number[1], message.fields_by_number[2]
