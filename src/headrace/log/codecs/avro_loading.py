"""An Avro schema made ready: resolved for us, and without its logical types for fastavro."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from fastavro import parse_schema
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType

from headrace.errors import UsageError
from headrace.log.codecs.avro_shapes import Types, kind_of, plain

UNREADABLE = (
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    StopIteration,
    AttributeError,
    SchemaResolutionError,
)
"""What fastavro raises for bytes that do not fit a schema."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema ready for use: as it is, and without its logical types for fastavro."""

    tree: Any
    types: Types
    parsed: Any

    @property
    def record(self) -> Any | None:
        tree = self.types.resolve(self.tree)
        return tree if isinstance(tree, dict) and tree.get("type") in ("record", "error") else None


def load_schema(text: str, references: Mapping[str, str] | None = None) -> AvroSchema:
    """`UsageError` for what cannot be read safely: a type that contains itself, or arrays whose items take no bytes."""
    named: dict[str, Any] = {}
    bare: dict[str, Any] = {}
    try:
        for needed in (references or {}).values():
            parse_schema(msgspec.json.decode(needed), named_schemas=named, _write_hint=False)
            parse_schema(plain(msgspec.json.decode(needed)), named_schemas=bare, _write_hint=False)
        tree = parse_schema(msgspec.json.decode(text), named_schemas=named, _write_hint=False)
        parsed = parse_schema(plain(msgspec.json.decode(text)), named_schemas=bare)
    except (SchemaParseException, UnknownType, msgspec.DecodeError, KeyError, TypeError) as error:
        raise UsageError(f"not an Avro schema: {error}") from None
    if isinstance(parsed, dict):
        parsed["__named_schemas"] = bare
    types = Types(named)
    _check_safe(tree, types, ())
    return AvroSchema(tree, types, parsed)


def _check_safe(tree: Any, types: Types, above: tuple[str, ...]) -> None:
    for branch in types.branches(tree):
        kind = kind_of(branch)
        if kind in ("record", "error"):
            if branch["name"] in above:
                raise UsageError(f"the record `{branch['name']}` contains itself: that cannot be read as columns")
            for one in branch["fields"]:
                _check_safe(one["type"], types, (*above, branch["name"]))
        elif kind in ("array", "map"):
            inner = branch["items" if kind == "array" else "values"]
            if kind == "array" and not _takes_bytes(inner, types):
                raise UsageError(
                    "an array whose items take no bytes cannot be read: its length would be anybody's word"
                )
            _check_safe(inner, types, above)


def _takes_bytes(tree: Any, types: Types) -> bool:
    tree = types.resolve(tree)
    if isinstance(tree, list):
        return True
    match kind_of(tree):
        case "null":
            return False
        case "fixed":
            return bool(tree["size"] > 0)
        case "record" | "error":
            return any(_takes_bytes(one["type"], types) for one in tree["fields"])
        case _:
            return True


def reason(error: Exception) -> str:
    match error:
        case EOFError():
            return "the record ends too early"
        case UnicodeDecodeError():
            return "text in the record is not UTF-8"
        case SchemaResolutionError():
            return f"the record's schema cannot be resolved to the reader's: {str(error)[:200]}"
        case IndexError():
            return "the record names a branch or a symbol that the schema does not have"
        case _:
            return f"the record does not fit its schema: {type(error).__name__}: {str(error)[:200]}"
