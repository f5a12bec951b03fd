"""Topics in Arrow's words: columns of a frame, and the JSON form of a topic (docs/log-format.md)."""

from __future__ import annotations

import base64
import re
from dataclasses import asdict, fields, replace
from typing import Any

import pyarrow as pa

from headrace.errors import LogError, UsageError
from headrace.log.base import (
    ARRIVAL,
    HEADERS,
    ID,
    OFFSET,
    REST,
    STREAM_TIME,
    TIME,
    TOMBSTONE,
    WINDOW_END,
    WINDOW_START,
    FormatOptions,
    KeyRange,
    SchemaVersion,
    TimestampColumn,
    Topic,
    TopicConfig,
    TopicSpec,
)
from headrace.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    TIMESTAMP,
    VARCHAR,
    Array,
    Column,
    DataType,
    Decimal,
    Map,
    Struct,
    type_from_json,
    type_to_json,
)
from headrace.types import (
    TIME as TIME_TYPE,
)

STAMPED = (ARRIVAL, STREAM_TIME)
"""Columns only the owner writes."""

OFFSET_FIELD = pa.field(OFFSET, pa.int64(), nullable=False)
"""The first column of a frame with gaps."""

RAW_KEY, RAW_VALUE = Column("KEY", BYTES), Column("VALUE", BYTES)

COMPRESSIONS = ("none", "lz4", "zstd")
CONFIG_FIELDS = tuple(field.name for field in fields(TopicConfig))
OPTION_FIELDS = tuple(field.name for field in fields(FormatOptions))

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
MAX_PARTITIONS = 16384

_SIMPLE: dict[DataType, pa.DataType] = {
    BOOLEAN: pa.bool_(),
    INTEGER: pa.int32(),
    BIGINT: pa.int64(),
    DOUBLE: pa.float64(),
    VARCHAR: pa.utf8(),
    BYTES: pa.binary(),
    DATE: pa.date32(),
    TIME_TYPE: pa.int32(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
}


def arrow_type(type_: DataType) -> pa.DataType:
    match type_:
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Array(element):
            return pa.list_(arrow_type(element))
        case Map(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case Struct(fields):
            return pa.struct([pa.field(name, arrow_type(field)) for name, field in fields])
        case _:
            return _SIMPLE[type_]


def data_type(type_: pa.DataType) -> DataType:
    """The nearest type for an Arrow type; int32 is INTEGER (TIME is stored the same way).

    >>> data_type(arrow_type(Array(Decimal(4, 2))))
    Array(element=Decimal(precision=4, scale=2))
    """
    for ours, theirs in _SIMPLE.items():
        if theirs == type_:
            return ours
    if pa.types.is_timestamp(type_):
        return TIMESTAMP
    if pa.types.is_decimal(type_):
        return Decimal(type_.precision, type_.scale)
    if pa.types.is_map(type_):
        return Map(data_type(type_.key_type), data_type(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return Array(data_type(type_.value_type))
    if pa.types.is_struct(type_):
        return Struct(tuple((field.name, data_type(field.type)) for field in type_))
    if pa.types.is_large_string(type_):
        return VARCHAR
    if pa.types.is_large_binary(type_):
        return BYTES
    raise UsageError(f"no column type for Arrow's `{type_}`")


def system_fields(spec: TopicSpec) -> list[pa.Field]:
    fields = [
        pa.field(ARRIVAL, pa.int64(), nullable=False),
        pa.field(STREAM_TIME, pa.int64(), nullable=False),
        pa.field(TIME, pa.int64(), nullable=False),
        pa.field(TOMBSTONE, pa.bool_(), nullable=False),
    ]
    if spec.role == "events":
        fields.append(pa.field(ID, pa.utf8()))
    if spec.has_headers:
        fields.append(pa.field(HEADERS, pa.map_(pa.utf8(), pa.binary())))
    if spec.role == "events" and spec.kind == "typed":
        fields.append(pa.field(REST, pa.utf8()))
    if spec.windowed:
        fields += [pa.field(WINDOW_START, pa.int64(), nullable=False), pa.field(WINDOW_END, pa.int64(), nullable=False)]
    return fields


def frame_schema(spec: TopicSpec, version: SchemaVersion | None = None) -> pa.Schema:
    """The columns of a frame's batch: system columns, key, value."""
    key, value = (version.key, version.value) if version else (spec.key, spec.value)
    return pa.schema(system_fields(spec) + [pa.field(column.name, arrow_type(column.type)) for column in key + value])


def is_topic_name(name: str) -> bool:
    return bool(_TOPIC_NAME.fullmatch(name)) and name not in (".", "..")


def normalize_spec(spec: TopicSpec) -> TopicSpec:
    """The spec as it is stored; `UsageError` if it cannot be a topic."""
    if not is_topic_name(spec.name):
        raise UsageError(
            f"`{spec.name}` is not a topic name", hint="letters, digits, `.`, `_` and `-`, at most 249 of them"
        )
    if not 1 <= spec.partitions <= MAX_PARTITIONS:
        raise UsageError(f"topic `{spec.name}` cannot have {spec.partitions} partitions", hint=f"1 to {MAX_PARTITIONS}")
    check_config(spec.name, spec.config)
    if spec.key_hash not in ("murmur2", "md5") or (spec.key_hash == "md5" and spec.kind != "raw"):
        raise UsageError(
            f"topic `{spec.name}`: keys cannot be placed by `{spec.key_hash}`", hint="md5 is for raw topics"
        )
    if spec.kind == "raw":
        spec = replace(spec, key=(RAW_KEY,), value=(RAW_VALUE,))
    seen: set[str] = set()
    for column in spec.key + spec.value:
        if column.name.startswith("$"):
            raise UsageError(f"column `{column.name}`: names that begin with `$` are Headrace's own")
        if column.name in seen:
            raise UsageError(f"column `{column.name}` is declared twice")
        seen.add(column.name)
    if spec.config.compacted and not spec.key:
        raise UsageError(
            f"topic `{spec.name}` cannot be compacted: it has no key",
            hint="compaction keeps the newest record of a key",
        )
    return spec


def check_config(name: str, config: TopicConfig) -> None:
    """Values of the right kind, none negative: a mistake here deletes records."""
    for what, value in asdict(config).items():
        expected = type(getattr(TopicConfig(), what))
        if type(value) is not expected or (expected is int and not 0 <= value < 2**63):
            raise UsageError(f"topic `{name}`: `{what}` cannot be `{value}`")
    if config.compression not in COMPRESSIONS:
        raise UsageError(
            f"topic `{name}`: no compression `{config.compression}`", hint="one of: " + ", ".join(COMPRESSIONS)
        )


def check_alteration(topic: Topic, spec: TopicSpec) -> None:
    """Only value columns may be added and the configuration changed."""
    old = topic.spec
    for what in ("partitions", "kind", "role", "windowed", "key_format", "key_hash", "headers", "key"):
        if getattr(old, what) != getattr(spec, what):
            raise UsageError(f"topic `{old.name}`: `{what}` cannot be changed", hint="make a new topic")
    if spec.value[: len(old.value)] != old.value:
        raise UsageError(
            f"topic `{old.name}`: columns cannot be removed, retyped or reordered", hint="add new ones at the end"
        )


# JSON: the form in topic.json, in the journal and on the owner's socket


def _columns_to_json(columns: tuple[Column, ...]) -> list[list[Any]]:
    return [[column.name, type_to_json(column.type)] for column in columns]


def _columns_from_json(value: Any) -> tuple[Column, ...]:
    return tuple(Column(name, type_from_json(type_)) for name, type_ in value)


def spec_to_json(spec: TopicSpec) -> dict[str, Any]:
    stamp = spec.timestamp
    return {
        "name": spec.name,
        "partitions": spec.partitions,
        "kind": spec.kind,
        "role": spec.role,
        "key_format": spec.key_format,
        "value_format": spec.value_format,
        "timestamp": {"column": stamp.column, "format": stamp.format} if stamp else None,
        "windowed": spec.windowed,
        "config": asdict(spec.config),
        "key_options": asdict(spec.key_options),
        "value_options": asdict(spec.value_options),
        # Only where it is not what every topic was before there was a choice.
        **({"key_hash": spec.key_hash} if spec.key_hash != "murmur2" else {}),
        **({"headers": True} if spec.headers else {}),
        "schemas": [{"version": 1, "key": _columns_to_json(spec.key), "value": _columns_to_json(spec.value)}],
    }


def spec_from_json(body: dict[str, Any]) -> TopicSpec:
    """The spec of a topic's JSON; its columns are those of the newest schema."""
    try:
        newest = body["schemas"][-1] if body.get("schemas") else {}
        stamp = body.get("timestamp")
        return TopicSpec(
            name=body["name"],
            key=_columns_from_json(newest.get("key", ())),
            value=_columns_from_json(newest.get("value", ())),
            partitions=body.get("partitions", 1),
            kind=body.get("kind", "typed"),
            role=body.get("role", "events"),
            key_format=body.get("key_format", "KAFKA"),
            value_format=body.get("value_format", "JSON"),
            timestamp=TimestampColumn(stamp["column"], stamp.get("format")) if stamp else None,
            windowed=body.get("windowed"),
            config=config_from_json(body.get("config") or {}),
            key_options=_options_from_json(body.get("key_options") or {}),
            value_options=_options_from_json(body.get("value_options") or {}),
            key_hash=body.get("key_hash", "murmur2"),
            headers=body.get("headers", False),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError("not a topic's definition", detail=f"{type(error).__name__}: {error}") from error


def _options_from_json(body: dict[str, Any]) -> FormatOptions:
    return FormatOptions(**{name: body[name] for name in OPTION_FIELDS if name in body})


def config_from_json(body: dict[str, Any]) -> TopicConfig:
    """Fields an older Headrace did not write have their defaults; those a newer one wrote are left out."""
    return TopicConfig(**{name: body[name] for name in CONFIG_FIELDS if name in body})


def topic_to_json(topic: Topic) -> dict[str, Any]:
    body = {"id": topic.id} | spec_to_json(topic.spec)
    body["schemas"] = [
        {
            "version": version.version,
            "key": _columns_to_json(version.key),
            "value": _columns_to_json(version.value),
            "arrow": base64.b64encode(frame_schema(topic.spec, version).serialize()).decode(),
        }
        for version in topic.schemas
    ]
    if topic.ranges:
        # Places of MD5 are wider than the numbers of the journal's format.
        number = hex if topic.spec.key_hash == "md5" else int
        body["ranges"] = [[number(one.low), number(one.high), list(one.parents), one.closed] for one in topic.ranges]
    if topic.forked_from:
        body["forked_from"] = topic.forked_from
    if topic.fork_of:
        body |= {"fork_of": topic.fork_of, "fork_at": list(topic.fork_at)}
    return body


def topic_from_json(body: dict[str, Any]) -> Topic:
    try:
        schemas = tuple(
            SchemaVersion(entry["version"], _columns_from_json(entry["key"]), _columns_from_json(entry["value"]))
            for entry in body["schemas"]
        )
        ranges = [
            KeyRange(_place(low), _place(high), tuple(of), closed) for low, high, of, closed in body.get("ranges", ())
        ]
        fork = body.get("forked_from", 0), body.get("fork_of", ""), tuple(body.get("fork_at", ()))
        return Topic(body["id"], spec_from_json(body), schemas, tuple(ranges), *fork)
    except (KeyError, TypeError, ValueError) as error:
        raise LogError("not a topic's definition", detail=f"{type(error).__name__}: {error}") from error


def _place(written: int | str) -> int:
    return int(written, 16) if isinstance(written, str) else int(written)
