"""Avro schemas: read into nodes with their names resolved, and written in one canonical form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from headrace.log.registry.base import invalid_schema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MAX_DEPTH = 200
_ORDER = ("type", "name", "namespace", "doc", "aliases", "fields", "symbols", "items", "values", "size", "default")
_FIELD_ORDER = ("name", "type", "doc", "default", "order", "aliases")


@dataclass(slots=True, eq=False)
class Primitive:
    kind: str
    logical: str | None = None


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: Node
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(slots=True, eq=False)
class Named:
    """A record, an enum or a fixed. `full_name` has the namespace, `name` has not."""

    full_name: str
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.full_name.rpartition(".")[2]


@dataclass(slots=True, eq=False)
class Record(Named):
    fields: list[Field] = field(default_factory=list)
    kind = "record"


@dataclass(slots=True, eq=False)
class Enum(Named):
    symbols: tuple[str, ...] = ()
    default: str | None = None
    kind = "enum"


@dataclass(slots=True, eq=False)
class Fixed(Named):
    size: int = 0
    kind = "fixed"


@dataclass(slots=True, eq=False)
class Array:
    items: Node
    kind = "array"


@dataclass(slots=True, eq=False)
class Map:
    values: Node
    kind = "map"


@dataclass(slots=True, eq=False)
class Union:
    branches: list[Node]
    kind = "union"


Node: TypeAlias = Primitive | Record | Enum | Fixed | Array | Map | Union


def load_avro(text: str) -> Any:
    """The JSON of a schema. A bare name (`string`) is taken for a quoted one."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise invalid_schema(f"it is not JSON: {error}") from None


def parse_avro(text: str, references: Mapping[str, str] | None = None) -> Node:
    """`references`: schemas this one uses, by name, each after those it needs itself."""
    reader = _Reader()
    for needed in (references or {}).values():
        reader.read(load_avro(needed))
    return reader.read(load_avro(text))


class _Reader:
    def __init__(self) -> None:
        self._names: dict[str, Named] = {}

    def read(self, tree: Any) -> Node:
        node = self._node(tree, "", "", 0)
        _check_defaults(node, set())
        return node

    def _node(self, tree: Any, namespace: str, path: str, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise invalid_schema(f"it is nested more than {_MAX_DEPTH} deep")
        if isinstance(tree, str):
            return self._by_name(tree, namespace, path)
        if isinstance(tree, list):
            return self._union(tree, namespace, path, depth)
        if not isinstance(tree, dict) or "type" not in tree:
            raise invalid_schema(f"{path or '/'}: a type is a name, an array or an object with `type`")
        kind = tree["type"]
        match kind:
            case "record" | "error":
                return self._record(tree, namespace, path, depth)
            case "enum":
                return self._enum(tree, namespace, path)
            case "fixed":
                return self._fixed(tree, namespace, path)
            case "array":
                return Array(self._node(_needed(tree, "items", path), namespace, f"{path}/items", depth + 1))
            case "map":
                return Map(self._node(_needed(tree, "values", path), namespace, f"{path}/values", depth + 1))
            case str() if kind in PRIMITIVES:
                return Primitive(kind, tree.get("logicalType"))
            case _:
                return self._node(kind, namespace, f"{path}/type", depth + 1)

    def _by_name(self, name: str, namespace: str, path: str) -> Node:
        if name in PRIMITIVES:
            return Primitive(name)
        found = self._names.get(name if "." in name or not namespace else f"{namespace}.{name}")
        found = found or self._names.get(name)
        if found is None:
            raise invalid_schema(f"{path or '/'}: there is no type `{name}`")
        return found  # type: ignore[return-value]

    def _union(self, tree: list[Any], namespace: str, path: str, depth: int) -> Union:
        branches = [self._node(branch, namespace, f"{path}/{place}", depth + 1) for place, branch in enumerate(tree)]
        seen: set[str] = set()
        for branch in branches:
            if isinstance(branch, Union):
                raise invalid_schema(f"{path or '/'}: a union cannot hold a union")
            name = branch.full_name if isinstance(branch, Named) else branch.kind
            if name in seen:
                raise invalid_schema(f"{path or '/'}: `{name}` is in the union twice")
            seen.add(name)
        return Union(branches)

    def _named(self, tree: dict[str, Any], namespace: str, path: str) -> tuple[str, str, tuple[str, ...]]:
        """Full name, the namespace inside, and aliases."""
        name, space = _needed(tree, "name", path), tree.get("namespace")
        if not isinstance(name, str) or not isinstance(space, str | None):
            raise invalid_schema(f"{path or '/'}: a name must be text")
        if "." in name:
            space, _, name = name.rpartition(".")
        inside = namespace if space is None else space
        for part in (name, *(inside.split(".") if inside else ())):
            if not _NAME.fullmatch(part):
                raise invalid_schema(f"{path or '/'}: `{part}` is not a name")
        full = f"{inside}.{name}" if inside else name
        if full in self._names or full in PRIMITIVES:
            raise invalid_schema(f"{path or '/'}: `{full}` is defined twice")
        aliases = tuple(
            alias if "." in alias or not inside else f"{inside}.{alias}" for alias in _texts(tree, "aliases", path)
        )
        return full, inside, aliases

    def _record(self, tree: dict[str, Any], namespace: str, path: str, depth: int) -> Record:
        full, inside, aliases = self._named(tree, namespace, path)
        record = self._names[full] = Record(full, aliases)
        fields = _needed(tree, "fields", path)
        if not isinstance(fields, list):
            raise invalid_schema(f"{path}/fields: must be an array")
        seen: set[str] = set()
        for place, one in enumerate(fields):
            where = f"{path}/fields/{place}"
            name = _needed(one, "name", where)
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise invalid_schema(f"{where}/name: `{name}` is not a name")
            if name in seen:
                raise invalid_schema(f"{where}/name: the field `{name}` is there twice")
            seen.add(name)
            type_ = self._node(_needed(one, "type", where), inside, f"{where}/type", depth + 1)
            record.fields.append(
                Field(name, type_, _texts(one, "aliases", where), "default" in one, one.get("default"))
            )
        return record

    def _enum(self, tree: dict[str, Any], namespace: str, path: str) -> Enum:
        full, _, aliases = self._named(tree, namespace, path)
        symbols = _texts(tree, "symbols", path)
        if len(set(symbols)) != len(symbols) or not all(_NAME.fullmatch(symbol) for symbol in symbols):
            raise invalid_schema(f"{path}/symbols: must be names, each once")
        default = tree.get("default")
        if default is not None and default not in symbols:
            raise invalid_schema(f"{path}/default: `{default}` is not one of the symbols")
        found = self._names[full] = Enum(full, aliases, symbols, default)
        return found

    def _fixed(self, tree: dict[str, Any], namespace: str, path: str) -> Fixed:
        full, _, aliases = self._named(tree, namespace, path)
        size = _needed(tree, "size", path)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise invalid_schema(f"{path}/size: must be a number of bytes")
        found = self._names[full] = Fixed(full, aliases, size)
        return found


def _needed(tree: Any, name: str, path: str) -> Any:
    if not isinstance(tree, dict) or name not in tree:
        raise invalid_schema(f"{path or '/'}: `{name}` is missing")
    return tree[name]


def _texts(tree: dict[str, Any], name: str, path: str) -> tuple[str, ...]:
    found = tree.get(name) or ()
    if not isinstance(found, list | tuple) or not all(isinstance(text, str) for text in found):
        raise invalid_schema(f"{path}/{name}: must be an array of text")
    return tuple(found)


# Defaults


def _check_defaults(node: Node, seen: set[int]) -> None:
    """A default that its own type cannot hold would only be noticed when a record is read."""
    if id(node) in seen:
        return
    seen.add(id(node))
    match node:
        case Record(fields=fields):
            for one in fields:
                if one.has_default and not _holds(one.type, one.default, 0):
                    raise invalid_schema(f"the default of `{node.full_name}.{one.name}` does not fit its type")
                _check_defaults(one.type, seen)
        case Array(items=inner) | Map(values=inner):
            _check_defaults(inner, seen)
        case Union(branches=branches):
            for branch in branches:
                _check_defaults(branch, seen)


def _holds(node: Node, value: Any, depth: int) -> bool:
    if depth > _MAX_DEPTH:
        return False
    match node:
        case Primitive(kind="null"):
            return value is None
        case Primitive(kind="boolean"):
            return isinstance(value, bool)
        case Primitive(kind="int" | "long" as kind):
            bits = 31 if kind == "int" else 63
            return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
        case Primitive(kind="float" | "double"):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case Primitive() | Fixed():
            return isinstance(value, str)
        case Enum(symbols=symbols):
            return value in symbols
        case Array(items=items):
            return isinstance(value, list) and all(_holds(items, item, depth + 1) for item in value)
        case Map(values=values):
            return isinstance(value, dict) and all(_holds(values, item, depth + 1) for item in value.values())
        case Union(branches=branches):
            # The specification wants the first branch; newer ones, and Confluent's, take any.
            return any(_holds(branch, value, depth + 1) for branch in branches)
        case Record(fields=fields):
            return isinstance(value, dict) and all(
                one.has_default if one.name not in value else _holds(one.type, value[one.name], depth + 1)
                for one in fields
            )


# The canonical form


def canonical_avro(tree: Any, normalize: bool = False) -> Any:
    """The same schema with its attributes in one order and nothing said in two ways; with `normalize`, other
    properties are sorted too."""
    if isinstance(tree, list):
        return [canonical_avro(branch, normalize) for branch in tree]
    if not isinstance(tree, dict):
        return tree
    if set(tree) == {"type"} and not isinstance(tree["type"], list):
        return canonical_avro(tree["type"], normalize)
    found = {
        name: [_canonical_field(one, normalize) for one in value]
        if name == "fields" and isinstance(value, list)
        else canonical_avro(value, normalize)
        if name in ("type", "items", "values")
        else value
        for name, value in tree.items()
    }
    return _ordered(found, _ORDER, normalize)


def _canonical_field(tree: Any, normalize: bool) -> Any:
    if not isinstance(tree, dict):
        return tree
    found = dict(tree)
    if "type" in found:
        found["type"] = canonical_avro(found["type"], normalize)
    if normalize and found.get("order") == "ascending":
        del found["order"]
    return _ordered(found, _FIELD_ORDER, normalize)


def _ordered(tree: dict[str, Any], order: tuple[str, ...], normalize: bool) -> dict[str, Any]:
    others = [name for name in tree if name not in order]
    return {name: tree[name] for name in (*order, *(sorted(others) if normalize else others)) if name in tree}
