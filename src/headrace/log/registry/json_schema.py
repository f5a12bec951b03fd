"""JSON Schemas: read, checked as far as the registry relies on them, and written in one canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from headrace.log.registry.base import invalid_schema

_MAX_DEPTH = 200
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_SCHEMA_MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS = (
    "additionalProperties",
    "additionalItems",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_COUNTS = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_NUMBERS = ("multipleOf", "maximum", "minimum")


def load_json_schema(text: str) -> Any:
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid_schema(f"it is not JSON: {error}") from None
    _check(tree, "#", 0)
    return tree


def _check(tree: Any, path: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise invalid_schema(f"it is nested more than {_MAX_DEPTH} deep")
    if isinstance(tree, bool):
        return
    if not isinstance(tree, dict):
        raise invalid_schema(f"{path}: a schema is an object, true or false")
    _check_keywords(tree, path)
    for name in _SCHEMA_MAPS:
        if name in tree:
            if not isinstance(tree[name], dict):
                raise invalid_schema(f"{path}/{name}: must be an object")
            for key, inner in tree[name].items():
                _check(inner, f"{path}/{name}/{key}", depth + 1)
    for name in _SCHEMA_LISTS:
        if name in tree:
            if not isinstance(tree[name], list) or not tree[name]:
                raise invalid_schema(f"{path}/{name}: must be an array of schemas")
            for place, inner in enumerate(tree[name]):
                _check(inner, f"{path}/{name}/{place}", depth + 1)
    for name in _SCHEMAS:
        if name in tree:
            _check(tree[name], f"{path}/{name}", depth + 1)
    items = tree.get("items", True)
    for place, inner in enumerate(items if isinstance(items, list) else [items]):
        _check(inner, f"{path}/items/{place}" if isinstance(items, list) else f"{path}/items", depth + 1)


def _check_keywords(tree: dict[str, Any], path: str) -> None:
    type_ = tree.get("type", [])
    for name in type_ if isinstance(type_, list) else [type_]:
        if name not in TYPES:
            raise invalid_schema(f"{path}/type: `{name}` is not a type of JSON")
    for name in _COUNTS:
        if name in tree and (not isinstance(tree[name], int) or isinstance(tree[name], bool) or tree[name] < 0):
            raise invalid_schema(f"{path}/{name}: must be a number that is not negative")
    for name in _NUMBERS:
        if name in tree and (not isinstance(tree[name], int | float) or isinstance(tree[name], bool)):
            raise invalid_schema(f"{path}/{name}: must be a number")
    required = tree.get("required", [])
    # Draft 3 and many a generator write `required: true` into a property; it means nothing in later drafts.
    if not isinstance(required, bool) and (
        not isinstance(required, list) or not all(isinstance(name, str) for name in required)
    ):
        raise invalid_schema(f"{path}/required: must be an array of names")
    if "enum" in tree and not isinstance(tree["enum"], list):
        raise invalid_schema(f"{path}/enum: must be an array")
    if "$ref" in tree and not isinstance(tree["$ref"], str):
        raise invalid_schema(f"{path}/$ref: must be text")


def canonical_json_schema(tree: Any, normalize: bool = False) -> Any:
    """As it is, but for white space; with `normalize`, keywords and properties in the order of their names."""
    return _sorted(tree) if normalize else tree


def _sorted(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {
            name: sorted(value, key=str) if name == "required" and isinstance(value, list) else _sorted(value)
            for name, value in sorted(tree.items())
        }
    if isinstance(tree, list):
        return [_sorted(item) for item in tree]
    return tree


class Document:
    """A schema and those it refers to. `resolve` follows `$ref`."""

    def __init__(self, tree: Any, references: Mapping[str, str] | None = None) -> None:
        self.tree = tree
        self._others = {name: load_json_schema(text) for name, text in (references or {}).items()}
        for other in list(self._others.values()):
            if isinstance(other, dict) and isinstance(other.get("$id"), str):
                self._others.setdefault(other["$id"], other)

    def check_references(self) -> None:
        """`invalid schema` if a `$ref` points nowhere."""
        _walk_references(self.tree, self)

    def resolve(self, tree: Any) -> Any:
        """The schema that `tree` is or refers to."""
        seen: set[str] = set()
        while isinstance(tree, dict) and isinstance(tree.get("$ref"), str):
            target = tree["$ref"]
            if target in seen:
                return True
            seen.add(target)
            tree = self._find(target)
        return tree

    def _find(self, target: str) -> Any:
        base, _, pointer = target.partition("#")
        own = isinstance(self.tree, dict) and base == self.tree.get("$id")
        root = self.tree if not base or own else self._others.get(base)
        if root is None:
            raise invalid_schema(
                f"`$ref` to `{target}`: there is no such schema",
            )
        for step in pointer.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(root, list) and key.isdecimal() and int(key) < len(root):
                root = root[int(key)]
            elif isinstance(root, dict) and key in root:
                root = root[key]
            else:
                raise invalid_schema(f"`$ref` to `{target}`: there is nothing")
        return root


def _walk_references(tree: Any, document: Document) -> None:
    if isinstance(tree, dict):
        if isinstance(tree.get("$ref"), str):
            document.resolve(tree)
        for name, inner in tree.items():
            if name not in ("enum", "const", "default", "examples"):
                _walk_references(inner, document)
    elif isinstance(tree, list):
        for inner in tree:
            _walk_references(inner, document)
