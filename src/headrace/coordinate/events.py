"""What can happen to the catalog, and how it is written down: one JSON object per record of `_catalog`.

`{"v": 1, "type": "source_created", …}`. A newer Headrace may add types or raise the version; this one then refuses to
go on rather than run with half a catalog.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypeAlias

import msgspec

from headrace.coordinate.base import CATALOG_TOPIC, QueryDefinition, ViewDefinition
from headrace.errors import LogError
from headrace.functions.files import FunctionFile
from headrace.sql.source import Header, Source, Window
from headrace.store.cuts import Cut, Places
from headrace.structs import ready
from headrace.types import Column, DataType, type_from_json, type_to_json
from headrace.views.versions import Deployment, Layers, Version

EVENT_VERSION = 1


@dataclass(frozen=True, slots=True)
class SourceCreated:
    source: Source


@dataclass(frozen=True, slots=True)
class SourceDropped:
    """With `doomed_topic`, the topic is to be deleted too; `TopicDeleted` says that it was."""

    name: str
    doomed_topic: str | None = None


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    name: str


@dataclass(frozen=True, slots=True)
class QueryCreated:
    query: QueryDefinition


@dataclass(frozen=True, slots=True)
class QueryWanted:
    id: str
    wanted: Literal["running", "stopped"]


@dataclass(frozen=True, slots=True)
class QueryDropped:
    id: str


@dataclass(frozen=True, slots=True)
class ViewCreated:
    view: ViewDefinition


@dataclass(frozen=True, slots=True)
class ViewDropped:
    name: str


@dataclass(frozen=True, slots=True)
class TypeCreated:
    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class TypeDropped:
    name: str


@dataclass(frozen=True, slots=True)
class QueryPaced:
    """How much a query may read per second (0: all it can), and up to where (None: no bound)."""

    id: str
    rows_per_second: int = 0
    until: Cut | None = None


@dataclass(frozen=True, slots=True)
class VersionCreated:
    """A version that is to be built beside the one that serves."""

    version: Version


@dataclass(frozen=True, slots=True)
class VersionDropped:
    name: str
    number: int
    doomed_topic: str | None = None


@dataclass(frozen=True, slots=True)
class VersionsSwitched:
    """From now on these versions serve, all at once; 0 takes a name away. Those that served are kept as retired."""

    versions: dict[str, int]
    time_ms: int
    deployment: int = 0


@dataclass(frozen=True, slots=True)
class TopicForked:
    """Versions that had a topic have a fork of it from now on: the topic itself is the public changelog of a name."""

    topic: str
    fork: str


@dataclass(frozen=True, slots=True)
class DeploymentSaved:
    """A deployment as it is from now on: it began, or came into another stage."""

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class FunctionsChanged:
    """Files of Python functions that are new or different, and those that are gone, by name."""

    files: tuple[FunctionFile, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesApplied:
    """The names that the project's files define: what is among them and no longer in a file is to be dropped."""

    names: tuple[str, ...]


Event: TypeAlias = (
    SourceCreated
    | SourceDropped
    | TopicDeleted
    | QueryCreated
    | QueryWanted
    | QueryDropped
    | ViewCreated
    | ViewDropped
    | TypeCreated
    | TypeDropped
    | QueryPaced
    | VersionCreated
    | VersionDropped
    | VersionsSwitched
    | TopicForked
    | DeploymentSaved
    | FunctionsChanged
    | FilesApplied
)


def encode_event(event: Event) -> str:
    """The event as one line of JSON, the inverse of `decode_event`."""
    kind, body = _body(event)
    return json.dumps({"v": EVENT_VERSION, "type": kind} | body, ensure_ascii=False)


def decode_event(text: str) -> Event:
    try:
        body = json.loads(text)
        version, kind = body["v"], body["type"]
    except (ValueError, KeyError, TypeError):
        raise LogError(f"the catalog's topic holds something that is not a catalog event: `{text[:80]}`") from None
    decode = _DECODERS.get(kind)
    if version > EVENT_VERSION or decode is None:
        raise LogError(
            f"the catalog holds a `{kind}` event of version {version}, which this Headrace does not know",
            detail=f"topic {CATALOG_TOPIC}; it was written by a newer Headrace",
            hint="upgrade:  pip install --upgrade headrace",
        )
    return decode(body)


def _body(event: Event) -> tuple[str, dict[str, Any]]:
    match event:
        case SourceCreated(source):
            return "source_created", {"source": source_to_json(source)}
        case SourceDropped(name, doomed_topic):
            return "source_dropped", {"name": name, "doomed_topic": doomed_topic}
        case TopicDeleted(name):
            return "topic_deleted", {"name": name}
        case QueryCreated(query):
            return "query_created", {"query": query_to_json(query)}
        case QueryWanted(id_, wanted):
            return "query_wanted", {"id": id_, "wanted": wanted}
        case QueryDropped(id_):
            return "query_dropped", {"id": id_}
        case ViewCreated(view):
            return "view_created", {"view": asdict(view)}
        case ViewDropped(name):
            return "view_dropped", {"name": name}
        case TypeCreated(name, type_):
            return "type_created", {"name": name, "type_of": type_to_json(type_)}
        case TypeDropped(name):
            return "type_dropped", {"name": name}
        case QueryPaced(id_, rows_per_second, until):
            return "query_paced", {"id": id_, "rows_per_second": rows_per_second, "until": until}
        case VersionCreated(version):
            return "version_created", {"version": version_to_json(version)}
        case VersionDropped(name, number, doomed_topic):
            return "version_dropped", {"name": name, "number": number, "doomed_topic": doomed_topic}
        case VersionsSwitched(versions, time_ms, deployment):
            return "versions_switched", {"versions": versions, "time_ms": time_ms, "deployment": deployment}
        case TopicForked(topic, fork):
            return "topic_forked", {"topic": topic, "fork": fork}
        case DeploymentSaved(saved):
            return "deployment_saved", {"deployment": msgspec.to_builtins(saved)}
        case FunctionsChanged(files, removed):
            return "functions_changed", {"files": msgspec.to_builtins(files), "removed": list(removed)}
        case FilesApplied(names):
            return "files_applied", {"names": list(names)}


_QUERY_SINCE = {
    "sink_topic": "",
    "reads": {},
    "starts": {},
    "rows_per_second": 0,
    "until": None,
    "functions": [],
    "layer": "",
    "cut": 0,
    "keeps_empty": False,
}
"""Fields that came later, and what they are where an older catalog has none."""


def query_to_json(query: QueryDefinition) -> dict[str, Any]:
    body = asdict(replace(query, functions=())) | {"functions": msgspec.to_builtins(query.functions)}
    return {name: value for name, value in body.items() if name not in _QUERY_SINCE or value != _QUERY_SINCE[name]}


def query_from_json(body: dict[str, Any]) -> QueryDefinition:
    changed = {
        "sources": tuple(body["sources"]),
        "starts": _places_from_json(body.get("starts", {})),
        "until": _cut_from_json(body.get("until")),
        "cut": _cut_from_json(body.get("cut", 0)),
        "functions": _files_from_json(body.get("functions", ())),
    }
    return QueryDefinition(**body | changed)


def _cut_from_json(body: Any) -> Cut | None:
    return _places_from_json(body) if isinstance(body, dict) else body


def _places_from_json(body: dict[str, dict[str, int]]) -> Places:
    return {topic: {int(number): offset for number, offset in offsets.items()} for topic, offsets in body.items()}


def _files_from_json(body: Any) -> tuple[FunctionFile, ...]:
    return msgspec.convert(body, ready(tuple[FunctionFile, ...]))


def version_to_json(version: Version) -> dict[str, Any]:
    body = {name: getattr(version, name) for name in _VERSION_FIELDS if name != "layers"}
    layers = {} if version.layers is None else {"layers": msgspec.to_builtins(version.layers, str_keys=True)}
    return body | {"source": source_to_json(version.source)} | layers


def version_from_json(body: dict[str, Any]) -> Version:
    served = tuple((begun, ended) for begun, ended in body.get("served", ()))
    layers = msgspec.convert(body["layers"], ready(Layers), strict=False) if "layers" in body else None
    known = {name: value for name, value in body.items() if name in _VERSION_FIELDS}
    return Version(**known | {"source": source_from_json(body["source"]), "served": served, "layers": layers})


_VERSION_FIELDS = [field.name for field in fields(Version)]


_DECODERS: dict[str, Callable[[dict[str, Any]], Event]] = {
    "source_created": lambda body: SourceCreated(source_from_json(body["source"])),
    "source_dropped": lambda body: SourceDropped(body["name"], body["doomed_topic"]),
    "topic_deleted": lambda body: TopicDeleted(body["name"]),
    "query_created": lambda body: QueryCreated(query_from_json(body["query"])),
    "query_wanted": lambda body: QueryWanted(body["id"], body["wanted"]),
    "query_dropped": lambda body: QueryDropped(body["id"]),
    "view_created": lambda body: ViewCreated(ViewDefinition(**body["view"])),
    "view_dropped": lambda body: ViewDropped(body["name"]),
    "type_created": lambda body: TypeCreated(body["name"], type_from_json(body["type_of"])),
    "type_dropped": lambda body: TypeDropped(body["name"]),
    "query_paced": lambda body: QueryPaced(body["id"], body["rows_per_second"], _cut_from_json(body["until"])),
    "version_created": lambda body: VersionCreated(version_from_json(body["version"])),
    "version_dropped": lambda body: VersionDropped(body["name"], body["number"], body["doomed_topic"]),
    "versions_switched": lambda body: VersionsSwitched(body["versions"], body["time_ms"], body["deployment"]),
    "topic_forked": lambda body: TopicForked(body["topic"], body["fork"]),
    "deployment_saved": lambda body: DeploymentSaved(msgspec.convert(body["deployment"], ready(Deployment))),
    "functions_changed": lambda body: FunctionsChanged(_files_from_json(body["files"]), tuple(body["removed"])),
    "files_applied": lambda body: FilesApplied(tuple(body["names"])),
}


# Fields that came later, written only where they say something: an older catalog has none of them.
_SINCE = (
    "key_delimiter",
    "value_delimiter",
    "wrap_single_value",
    "key_schema_id",
    "value_schema_id",
    "key_schema_name",
    "value_schema_name",
    "read_only",
    "retention_ms",
    "row_ttl_ms",
    "classic",
    "per_batch",
)

_DEFAULTS = {field.name: field.default for field in fields(Source)}


def source_to_json(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "kind": source.kind,
        "topic": source.topic,
        "key": [[column.name, type_to_json(column.type)] for column in source.key],
        "value": [[column.name, type_to_json(column.type)] for column in source.value],
        "key_format": source.key_format,
        "value_format": source.value_format,
        "timestamp": source.timestamp,
        "timestamp_format": source.timestamp_format,
        "partitions": source.partitions,
        "window": asdict(source.window) if source.window else None,
        "statement": source.statement,
        "query": source.query,
        "headers": [asdict(header) for header in source.headers],
    } | {name: getattr(source, name) for name in _SINCE if getattr(source, name) != _DEFAULTS[name]}


def source_from_json(body: dict[str, Any]) -> Source:
    def columns(pairs: list[list[Any]]) -> tuple[Column, ...]:
        return tuple(Column(name, type_from_json(type_)) for name, type_ in pairs)

    window = Window(**body["window"]) if body["window"] else None
    headers = tuple(Header(**header) for header in body.get("headers", ()))
    decoded = body | {
        "key": columns(body["key"]),
        "value": columns(body["value"]),
        "window": window,
        "headers": headers,
    }
    return Source(**decoded)
