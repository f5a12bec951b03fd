"""A file descriptor → the text of its .proto file, always in the same words: the canonical form of a schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from headrace.log.codecs.proto_meta import meta_of
from headrace.log.codecs.proto_text import SCALARS

FieldProto = descriptor_pb2.FieldDescriptorProto
_SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
_LABELS = {FieldProto.LABEL_REQUIRED: "required ", FieldProto.LABEL_OPTIONAL: "optional "}
_LAST_FIELD, _LAST_ENUM = 536_870_912, 2_147_483_647


def print_proto(file: descriptor_pb2.FileDescriptorProto) -> str:
    """`file` has its type names resolved, as `ProtoFiles.resolved` gives it."""
    three = file.syntax == "proto3"
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    if file.package:
        lines.append(f"package {file.package};")
    lines.append("")
    for place, name in enumerate(file.dependency):
        kind = "public " if place in file.public_dependency else "weak " if place in file.weak_dependency else ""
        lines.append(f"import {kind}{_quoted(name)};")
    lines += [f"option {option};" for option in _options(file.options)]
    for enum in file.enum_type:
        lines += ["", *_enum(enum)]
    for message in file.message_type:
        lines += ["", *_message(message, three)]
    lines += _extensions(file.extension, three)
    for service in file.service:
        lines += ["", *_service(service)]
    return "\n".join(_squeezed(lines)) + "\n"


def _message(message: descriptor_pb2.DescriptorProto, three: bool) -> list[str]:
    entries = {entry.name: entry for entry in message.nested_type if entry.options.map_entry}
    groups = {field.type_name.rpartition(".")[2] for field in message.field if field.type == FieldProto.TYPE_GROUP}
    inner: list[str] = [f"option {option};" for option in _options(message.options)]
    inner += _reserved(message.reserved_range, message.reserved_name, _LAST_FIELD, 1)
    for numbers in message.extension_range:
        inner.append(f"extensions {_range(numbers.start, numbers.end - 1, _LAST_FIELD - 1)};")
    shown: set[int] = set()
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            if field.oneof_index not in shown:
                shown.add(field.oneof_index)
                members = [other for other in message.field if _in_oneof(other, field.oneof_index)]
                inner.append(f"oneof {message.oneof_decl[field.oneof_index].name} {{")
                inner += [f"  {_field(member, entries, True, message)}" for member in members]
                inner.append("}")
        else:
            inner += _field(field, entries, three, message).split("\n")
    for enum in message.enum_type:
        inner += ["", *_enum(enum)]
    for nested in message.nested_type:
        if nested.name not in entries and nested.name not in groups:
            inner += ["", *_message(nested, three)]
    inner += _extensions(message.extension, three)
    return _block(f"message {message.name}", inner)


def _in_oneof(field: descriptor_pb2.FieldDescriptorProto, index: int) -> bool:
    return field.HasField("oneof_index") and field.oneof_index == index and not field.proto3_optional


def _field(
    field: descriptor_pb2.FieldDescriptorProto,
    entries: dict[str, descriptor_pb2.DescriptorProto],
    three: bool,
    within: descriptor_pb2.DescriptorProto | None,
) -> str:
    options = _field_options(field)
    suffix = f" [{', '.join(options)}]" if options else ""
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None and field.label == FieldProto.LABEL_REPEATED:
        types = ", ".join(_type(part) for part in entry.field)
        return f"map<{types}> {field.name} = {field.number}{suffix};"
    if field.type == FieldProto.TYPE_GROUP and within is not None:
        name = field.type_name.rpartition(".")[2]
        body = next(nested for nested in within.nested_type if nested.name == name)
        lines = _message(body, False)
        return "\n".join([f"{_label(field, False)}group {name} = {field.number} {{", *lines[1:]])
    return f"{_label(field, three)}{_type(field)} {field.name} = {field.number}{suffix};"


def _label(field: descriptor_pb2.FieldDescriptorProto, three: bool) -> str:
    if field.label == FieldProto.LABEL_REPEATED:
        return "repeated "
    if field.HasField("oneof_index") and not field.proto3_optional:
        return ""
    if three:
        return "optional " if field.proto3_optional else ""
    return _LABELS[field.label]


def _type(field: descriptor_pb2.FieldDescriptorProto) -> str:
    return _SCALAR_NAMES.get(field.type) or field.type_name


def _field_options(field: descriptor_pb2.FieldDescriptorProto) -> list[str]:
    found: list[str] = []
    if field.HasField("default_value"):
        quoted = field.type in (FieldProto.TYPE_STRING, FieldProto.TYPE_BYTES)
        found.append(f"default = {_quoted(field.default_value) if quoted else field.default_value}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        found.append(f"json_name = {_quoted(field.json_name)}")
    return found + _options(field.options)


def _json_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _enum(enum: descriptor_pb2.EnumDescriptorProto) -> list[str]:
    inner = [f"option {option};" for option in _options(enum.options)]
    inner += _reserved(enum.reserved_range, enum.reserved_name, _LAST_ENUM, 0)
    for value in enum.value:
        options = _options(value.options)
        suffix = f" [{', '.join(options)}]" if options else ""
        inner.append(f"{value.name} = {value.number}{suffix};")
    return _block(f"enum {enum.name}", inner)


def _extensions(fields: Iterable[descriptor_pb2.FieldDescriptorProto], three: bool) -> list[str]:
    by_target: dict[str, list[str]] = {}
    for field in fields:
        by_target.setdefault(field.extendee, []).append(_field(field, {}, three, None))
    return [line for target, inner in by_target.items() for line in ("", *_block(f"extend {target}", inner))]


def _service(service: descriptor_pb2.ServiceDescriptorProto) -> list[str]:
    def stream(streams: bool, name: str) -> str:
        return f"({'stream ' if streams else ''}{name})"

    return _block(
        f"service {service.name}",
        [
            f"rpc {method.name} {stream(method.client_streaming, method.input_type)} returns "
            f"{stream(method.server_streaming, method.output_type)};"
            for method in service.method
        ],
    )


def _reserved(ranges: Iterable[Any], names: Iterable[str], last: int, beyond: int) -> list[str]:
    """`beyond`: a message's ranges end one after their last number, an enum's at it."""
    numbers = [_range(one.start, one.end - beyond, last - beyond) for one in ranges]
    quoted = [_quoted(name) for name in names]
    return [f"reserved {', '.join(found)};" for found in (numbers, quoted) if found]


def _range(first: int, last: int, most: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= most else last}"


def _options(options: Message) -> list[str]:
    """Protobuf's own options, and Confluent's metadata, which its own readers do not know and keep as bytes."""
    found = []
    for field, value in options.ListFields():
        if field.is_repeated or field.message_type is not None or field.name == "map_entry":
            continue
        if field.enum_type is not None:
            value = field.enum_type.values_by_number[value].name
        elif isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, str):
            value = _quoted(value)
        found.append(f"{field.name} = {value}")
    meta = _meta(options)
    return [*found, meta] if meta else found


def _meta(options: Message) -> str | None:
    if not isinstance(options, descriptor_pb2.FieldOptions):
        return None
    found = meta_of(options)
    if found is None:
        return None
    parts = [f"doc: {_quoted(found.doc)}"] if found.doc else []
    if found.params:
        pairs = ", ".join(f"{{key: {_quoted(key)}, value: {_quoted(value)}}}" for key, value in found.params.items())
        parts.append(f"params: [{pairs}]")
    if found.tags:
        parts.append(f"tags: [{', '.join(map(_quoted, found.tags))}]")
    return f"(confluent.field_meta) = {{{', '.join(parts)}}}"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _block(head: str, inner: list[str]) -> list[str]:
    return [f"{head} {{", *(f"  {line}" if line else "" for line in inner), "}"]


def _squeezed(lines: list[str]) -> list[str]:
    """At most one empty line at a time, and none at the end."""
    kept: list[str] = []
    for line in lines:
        if line or (kept and kept[-1]):
            kept.append(line)
    while kept and not kept[-1]:
        kept.pop()
    return kept
