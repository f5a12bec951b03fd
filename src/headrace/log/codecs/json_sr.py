"""JSON_SR: JSON with the id of its JSON Schema, as Confluent frames it and as ksqlDB writes it: DATE is days, TIME and
TIMESTAMP are milliseconds. What is read may be written as in JSON, too."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.log.codecs.base import (
    Codec,
    Decoded,
    Encoded,
    FormatOptions,
    Schemas,
    Side,
    WriterSchema,
    binary,
    values_of,
)
from headrace.log.codecs.framing import HEADER, Writers, frame, rows_by_writer, schema_ids
from headrace.log.codecs.json_encode import EPOCH, EPOCH_DATE, MICROSECOND
from headrace.log.codecs.json_payloads import JsonPayloads
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
)

_CONNECT = "org.apache.kafka.connect.data."
_SIMPLE: dict[DataType, dict[str, Any]] = {
    BOOLEAN: {"type": "boolean"},
    INTEGER: {"type": "integer", "connect.type": "int32"},
    BIGINT: {"type": "integer", "connect.type": "int64"},
    DOUBLE: {"type": "number", "connect.type": "float64"},
    VARCHAR: {"type": "string"},
    BYTES: {"type": "string", "connect.type": "bytes"},
    DATE: {"type": "integer", "title": f"{_CONNECT}Date", "connect.version": 1, "connect.type": "int32"},
    TIME: {"type": "integer", "title": f"{_CONNECT}Time", "connect.version": 1, "connect.type": "int32"},
    TIMESTAMP: {"type": "integer", "title": f"{_CONNECT}Timestamp", "connect.version": 1, "connect.type": "int64"},
}
_TITLES = {schema["title"]: type_ for type_, schema in _SIMPLE.items() if "title" in schema}


def json_schema(columns: tuple[Column, ...], wrapped: bool = True) -> str:
    """The JSON Schema ksqlDB would register for these columns."""
    tree = _nullable(columns[0].type) if not wrapped and len(columns) == 1 else _object(columns)
    return msgspec.json.encode(tree).decode()


def _object(fields: tuple[Column, ...]) -> dict[str, Any]:
    properties = {field.name: {"connect.index": place} | _nullable(field.type) for place, field in enumerate(fields)}
    return {"type": "object", "properties": properties}


def _nullable(type_: DataType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _type(type_)]}


def _type(type_: DataType) -> dict[str, Any]:
    match type_:
        case Decimal(precision, scale):
            parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
            title = {"title": f"{_CONNECT}Decimal", "connect.version": 1, "connect.type": "bytes"}
            return {"type": "number"} | title | {"connect.parameters": parameters}
        case Array(element):
            return {"type": "array", "items": _nullable(element)}
        case Map(_, value):
            return {"type": "object", "connect.type": "map", "additionalProperties": _nullable(value)}
        case Struct(fields):
            return _object(tuple(Column(name, inner) for name, inner in fields))
        case _:
            return _SIMPLE[type_]


def columns_of_json_schema(text: str, single: str = "ROWVAL") -> list[Column]:
    """The columns of a schema of objects; properties without a type in SQL are VARCHAR."""
    tree = msgspec.json.decode(text)
    node = _branch(tree)
    if not isinstance(node, dict) or "properties" not in node:
        return [Column(single, _sql(node, 0))]
    return [Column(name.upper(), _sql(inner, 0)) for name, inner in node["properties"].items()]


def _branch(tree: Any) -> Any:
    for keyword in ("oneOf", "anyOf"):
        if isinstance(tree, dict) and isinstance(tree.get(keyword), list):
            others = [one for one in tree[keyword] if one != {"type": "null"}]
            return others[0] if len(others) == 1 else {}
    return tree


def _sql(tree: Any, depth: int) -> DataType:
    tree = _branch(tree)
    if not isinstance(tree, dict) or depth > 50:
        return VARCHAR
    if tree.get("title") in _TITLES:
        return _TITLES[tree["title"]]
    if tree.get("title") == f"{_CONNECT}Decimal":
        given = tree.get("connect.parameters", {})
        return Decimal(int(given.get("connect.decimal.precision", 38)), int(given.get("scale", 0)))
    kinds = tree.get("type")
    kind = next((one for one in kinds if one != "null"), None) if isinstance(kinds, list) else kinds
    match kind:
        case "boolean":
            return BOOLEAN
        case "integer":
            return INTEGER if tree.get("connect.type") == "int32" else BIGINT
        case "number":
            return DOUBLE
        case "string":
            return BYTES if tree.get("connect.type") == "bytes" else VARCHAR
        case "array":
            return Array(_sql(tree.get("items", {}), depth + 1))
        case "object" if tree.get("properties"):
            return Struct(tuple((name.upper(), _sql(one, depth + 1)) for name, one in tree["properties"].items()))
        case "object":
            return Map(VARCHAR, _sql(tree.get("additionalProperties", {}), depth + 1))
        case _:
            return VARCHAR


def as_numbers(type_: DataType) -> Any:
    """Dates and times as ksqlDB writes them; None for types that have none of them."""
    match type_:
        case _ if type_ == DATE:
            return lambda value: (value - EPOCH_DATE).days
        case _ if type_ == TIMESTAMP:
            return lambda value: (value - EPOCH) // MICROSECOND // 1000
        case _ if type_ == TIME:
            return lambda value: value
        case _:
            return None


class JsonSrCodec(Codec):
    def __init__(
        self,
        topic: str,
        columns: tuple[Column, ...],
        schemas: Schemas,
        side: Side = "value",
        options: FormatOptions | None = None,
        keep_rest: bool = False,
    ) -> None:
        options = options or FormatOptions()
        wrapped = (side == "value" and options.wrap_single_value) or len(columns) != 1
        self.columns = columns
        self.subject = f"{topic}-{side}"
        self._schemas, self._options = schemas, options
        self._json = JsonPayloads(columns, wrapped, keep_rest, name=str, special=as_numbers)
        self._own = json_schema(columns, wrapped)
        self._known = Writers(schemas, _check)
        self._id: int | None = None

    def decode(self, payloads: pa.Array) -> Decoded:
        values = values_of(payloads)
        errors: dict[int, str] = {}
        for schema_id, rows in rows_by_writer(schema_ids(values, errors)).items():
            known = self._known.get(schema_id)
            if isinstance(known, str):
                errors |= dict.fromkeys(rows, known)
        bodies = [None if value is None or row in errors else value[HEADER:] for row, value in enumerate(values)]
        found = self._json.decode(binary(bodies))
        return Decoded(found.batch, dict(sorted((dict(found.errors) | errors).items())), found.rest)

    def prepare(self) -> None:
        if self._id is None:
            self._id = self._choose()

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        self.prepare()
        header = frame(self._id or 0)
        found = self._json.encode(batch)
        return Encoded(
            binary([None if payload is None else header + payload for payload in found.payloads.to_pylist()]),
            found.errors,
        )

    def _choose(self) -> int:
        if self._options.schema_id is not None:
            return self._schemas.by_id(self._options.schema_id).id
        return self._schemas.register(self.subject, "JSON", self._own)


class _NotJson(HeadraceError):
    pass


def _check(written: WriterSchema) -> bool:
    if written.type != "JSON":
        raise _NotJson(f"it is {written.type}, not JSON")
    return True
