"""The text of a .proto file → a file descriptor, with type names as they are written."""

from __future__ import annotations

import re
from typing import Any

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from headrace.errors import UsageError

FieldProto = descriptor_pb2.FieldDescriptorProto
SCALARS: dict[str, int] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_LABELS = {
    ast.FieldCardinality.REQUIRED: FieldProto.LABEL_REQUIRED,
    ast.FieldCardinality.OPTIONAL: FieldProto.LABEL_OPTIONAL,
    ast.FieldCardinality.REPEATED: FieldProto.LABEL_REPEATED,
}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_LAST_FIELD, _LAST_ENUM = 536_870_912, 2_147_483_647


class ProtoSyntaxError(UsageError):
    code = "proto_syntax"


def parse_proto(text: str) -> descriptor_pb2.FileDescriptorProto:
    """`ProtoSyntaxError` with line and column. Comments are not kept."""
    listener = _Listener()

    def listen(recognizer: Any) -> None:
        recognizer.removeErrorListeners()
        recognizer.addErrorListener(listener)

    try:
        tree = Parser(setup_lexer=listen, setup_parser=listen).parse(text)
    except RecursionError:
        raise ProtoSyntaxError("it is nested too deeply") from None
    except (ValueError, AttributeError, TypeError, IndexError) as error:
        if listener.first is None:
            raise ProtoSyntaxError(f"it cannot be read: {error}") from None
    if listener.first is not None:
        raise ProtoSyntaxError(listener.first)
    return _file(tree)


class _Listener(ErrorListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.first: str | None = None

    def syntaxError(self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any) -> None:
        if self.first is None:
            short = message.partition(" expecting {")[0]
            self.first = f"line {line}, column {column + 1}: {short}"


def _file(tree: ast.File) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    if tree.edition:
        raise ProtoSyntaxError(f"edition {tree.edition} is not supported", hint="use syntax proto2 or proto3")
    syntax = tree.syntax or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise ProtoSyntaxError(f"`{syntax}` is not a syntax", hint="proto2 or proto3")
    if syntax == "proto3":
        file.syntax = syntax
    three = syntax == "proto3"
    for element in tree.file_elements:
        match element:
            case ast.Package(name):
                file.package = name
            case ast.Import(name=name, public=public, weak=weak):
                if public:
                    file.public_dependency.append(len(file.dependency))
                if weak:
                    file.weak_dependency.append(len(file.dependency))
                file.dependency.append(name)
            case ast.Option():
                _set_option(file.options, element)
            case ast.Message():
                _message(element, file.message_type.add(), three)
            case ast.Enum():
                _enum(element, file.enum_type.add())
            case ast.Extension():
                _extension(element, file, three)
            case ast.Service():
                _service(element, file.service.add())
    return file


def _message(tree: ast.Message | ast.Group, into: descriptor_pb2.DescriptorProto, three: bool) -> None:
    into.name = tree.name
    synthetic: list[descriptor_pb2.FieldDescriptorProto] = []
    for element in tree.elements:
        match element:
            case ast.Field():
                field = into.field.add()
                _field(element, field)
                if three and element.cardinality == ast.FieldCardinality.OPTIONAL:
                    field.proto3_optional = True
                    synthetic.append(field)
            case ast.MapField():
                _map_field(element, into)
            case ast.Group():
                _group(element, into, three)
            case ast.OneOf():
                index = len(into.oneof_decl)
                into.oneof_decl.add().name = element.name
                for inner in element.elements:
                    if isinstance(inner, ast.Field):
                        field = into.field.add()
                        _field(inner, field)
                        field.oneof_index = index
            case ast.Message():
                _message(element, into.nested_type.add(), three)
            case ast.Enum():
                _enum(element, into.enum_type.add())
            case ast.Option():
                _set_option(into.options, element)
            case ast.Reserved(ranges, names):
                into.reserved_name.extend(names)
                for start, end in (_range(text, _LAST_FIELD) for text in ranges):
                    into.reserved_range.add(start=start, end=end + 1 if end != _LAST_FIELD else end)
            case ast.ExtensionRange(ranges=ranges):
                for start, end in (_range(text, _LAST_FIELD) for text in ranges):
                    into.extension_range.add(start=start, end=end + 1 if end != _LAST_FIELD else end)
            case ast.Extension():
                _extension(element, into, three)
    # The oneofs of `optional` fields are proto3's own affair, and come after all that were declared.
    for field in synthetic:
        field.oneof_index = len(into.oneof_decl)
        into.oneof_decl.add().name = f"_{field.name}"


def _field(tree: ast.Field, into: descriptor_pb2.FieldDescriptorProto) -> None:
    into.name, into.number = tree.name, tree.number
    into.label = _LABELS[tree.cardinality or ast.FieldCardinality.OPTIONAL]
    _set_type(into, tree.type)
    for option in tree.options:
        if option.name == "default":
            into.default_value = _default(option.value)
        elif option.name == "json_name":
            into.json_name = _default(option.value)
        else:
            _set_option(into.options, option)


def _set_type(field: descriptor_pb2.FieldDescriptorProto, name: str) -> None:
    if name in SCALARS:
        field.type = SCALARS[name]
    else:
        field.type_name = name


def _map_field(tree: ast.MapField, into: descriptor_pb2.DescriptorProto) -> None:
    entry = into.nested_type.add()
    entry.name = "".join(part[:1].upper() + part[1:] for part in tree.name.split("_")) + "Entry"
    entry.options.map_entry = True
    for number, (name, type_) in enumerate((("key", tree.key_type), ("value", tree.value_type)), 1):
        part = entry.field.add()
        part.name, part.number, part.label = name, number, FieldProto.LABEL_OPTIONAL
        _set_type(part, type_)
    field = into.field.add()
    field.name, field.number, field.label = tree.name, tree.number, FieldProto.LABEL_REPEATED
    field.type_name, field.type = entry.name, FieldProto.TYPE_MESSAGE
    for option in tree.options:
        _set_option(field.options, option)


def _group(tree: ast.Group, into: descriptor_pb2.DescriptorProto, three: bool) -> None:
    _message(tree, into.nested_type.add(), three)
    field = into.field.add()
    field.name, field.number = tree.name.lower(), tree.number
    field.label = _LABELS[tree.cardinality or ast.FieldCardinality.OPTIONAL]
    field.type_name, field.type = tree.name, FieldProto.TYPE_GROUP


def _enum(tree: ast.Enum, into: descriptor_pb2.EnumDescriptorProto) -> None:
    into.name = tree.name
    for element in tree.elements:
        match element:
            case ast.EnumValue(name, number, options):
                value = into.value.add()
                value.name, value.number = name, number
                for option in options:
                    _set_option(value.options, option)
            case ast.Option():
                _set_option(into.options, element)
            case ast.EnumReserved(ranges, names):
                into.reserved_name.extend(names)
                for start, end in (_range(text, _LAST_ENUM) for text in ranges):
                    into.reserved_range.add(start=start, end=end)


def _extension(tree: ast.Extension, into: Any, three: bool) -> None:
    for element in tree.elements:
        if isinstance(element, ast.Field):
            field = into.extension.add()
            _field(element, field)
            field.extendee = tree.typeName
            if three and element.cardinality == ast.FieldCardinality.OPTIONAL:
                field.proto3_optional = True


def _service(tree: ast.Service, into: descriptor_pb2.ServiceDescriptorProto) -> None:
    into.name = tree.name
    for element in tree.elements:
        if isinstance(element, ast.Method):
            method = into.method.add()
            method.name = element.name
            method.input_type, method.output_type = element.input_type.type, element.output_type.type
            method.client_streaming = element.input_type.stream
            method.server_streaming = element.output_type.stream


def _range(text: str, last: int) -> tuple[int, int]:
    """
    >>> _range("7 to 9", 100), _range("5", 100), _range("6 to max", 100)
    ((7, 9), (5, 5), (6, 100))
    """
    first, _, rest = text.partition(" to ")
    end = rest.strip() or first
    return int(first, 0), last if end == "max" else int(end, 0)


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _unescaped(value)
    return value.name if isinstance(value, ast.Identifier) else str(value)


def _unescaped(text: str) -> str:
    r"""
    >>> _unescaped('a\\"b\\n')
    'a"b\n'
    """
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)


def _set_option(into: Message, option: ast.Option) -> None:
    """One of protobuf's own options. Custom ones of Confluent's field metadata are read; others change nothing that
    a registry or a codec looks at, and are not kept."""
    name = option.name.strip()
    if name in ("(confluent.field_meta)", "(.confluent.field_meta)"):
        into.MergeFromString(_field_meta(option.value))
        return
    field = into.DESCRIPTOR.fields_by_name.get(name)
    if field is None or field.is_repeated:
        return
    value: Any = option.value
    try:
        if field.enum_type is not None and isinstance(value, ast.Identifier):
            value = field.enum_type.values_by_name[value.name].number
        elif isinstance(value, str):
            value = _unescaped(value)
        setattr(into, name, value)
    except (TypeError, ValueError, KeyError):
        raise ProtoSyntaxError(f"the option `{name}` cannot be `{_default(value)}`") from None


def _field_meta(value: Any) -> bytes:
    """`{params: [{key: "precision", value: "10"}]}` as the bytes of the extension: field 1088, a Meta message."""
    inner = b""
    for field in value.elements if isinstance(value, ast.MessageLiteral) else ():
        if not isinstance(field, ast.MessageLiteralField):
            continue
        entries = field.value if isinstance(field.value, list) else [field.value]
        for entry in entries:
            if field.name == "params" and isinstance(entry, ast.MessageLiteral):
                pair = {e.name: _default(e.value) for e in entry.elements if isinstance(e, ast.MessageLiteralField)}
                inner += _bytes(2, _bytes(1, pair.get("key", "").encode()) + _bytes(2, pair.get("value", "").encode()))
            elif field.name in ("doc", "tags"):
                inner += _bytes(1 if field.name == "doc" else 3, _default(entry).encode())
    return _bytes(1088, inner)


def _bytes(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(number: int) -> bytes:
    """
    >>> varint(300)
    b'\\xac\\x02'
    """
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
