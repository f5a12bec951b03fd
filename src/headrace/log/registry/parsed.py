"""One door to the three kinds of schemas: reading, the canonical text, and what breaks between two."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.errors import UsageError
from headrace.log.codecs.base import SchemaType
from headrace.log.registry.avro_compatibility import avro_problems
from headrace.log.registry.avro_schema import canonical_avro, load_avro, parse_avro
from headrace.log.registry.base import MAX_SCHEMA_BYTES, Problem, invalid_schema
from headrace.log.registry.json_compatibility import json_problems
from headrace.log.registry.json_schema import Document, canonical_json_schema, load_json_schema


@dataclass(frozen=True, slots=True)
class Parsed:
    type: SchemaType
    text: str
    """Canonical."""
    tree: Any
    """An Avro node, a JSON Schema document, or Protobuf files."""


def parse_schema(type_: SchemaType, text: str, references: Mapping[str, str], normalize: bool = False) -> Parsed:
    """`RegistryError` 42201 if the text is no schema of that type."""
    if len(text.encode()) > MAX_SCHEMA_BYTES:
        raise invalid_schema(f"it is larger than {MAX_SCHEMA_BYTES} bytes")
    try:
        match type_:
            case "AVRO":
                node = parse_avro(text, references)
                return Parsed(type_, _json(canonical_avro(load_avro(text), normalize)), node)
            case "JSON":
                document = Document(load_json_schema(text), references)
                document.check_references()
                return Parsed(type_, _json(canonical_json_schema(document.tree, normalize)), document)
            case "PROTOBUF":
                # Here and below only when there is one: its library is large.
                from headrace.log.codecs.proto_files import ProtoFiles
                from headrace.log.codecs.proto_print import print_proto

                files = ProtoFiles(text, references)
                return Parsed(type_, print_proto(files.resolved()), files)
    except RecursionError:
        raise invalid_schema("it is nested too deeply") from None
    except UsageError as error:
        raise invalid_schema(error.message) from None


def problems(reader: Parsed, writer: Parsed) -> list[Problem]:
    """Why what `writer` describes cannot all be read with `reader`; empty if it can."""
    if reader.type != writer.type:
        return [Problem("SCHEMA_TYPE_CHANGED", "", f"it was {writer.type} and is {reader.type}")]
    match reader.type:
        case "AVRO":
            return avro_problems(reader.tree, writer.tree)
        case "JSON":
            return json_problems(reader.tree, writer.tree)
        case "PROTOBUF":
            from headrace.log.registry.proto_compatibility import proto_problems

            return proto_problems(reader.tree.file, writer.tree.file)


def formatted(parsed: Parsed, format_: str) -> str:
    """As a client asks for it: `serialized` is a Protobuf file descriptor in base64, else the canonical text."""
    if parsed.type == "PROTOBUF" and format_ == "serialized":
        return base64.b64encode(parsed.tree.resolved().SerializeToString()).decode()
    return parsed.text


def _json(tree: Any) -> str:
    return msgspec.json.encode(tree).decode()
