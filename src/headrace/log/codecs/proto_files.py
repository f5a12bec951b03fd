"""Protobuf schemas as descriptors: from the text of a .proto file or a serialized descriptor, with what they import.

Google's own files, and Confluent's for DECIMAL and field metadata, are there without being asked for.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from headrace.errors import UsageError
from headrace.log.codecs.proto_text import parse_proto

FileProto: TypeAlias = descriptor_pb2.FileDescriptorProto
MAIN = "schema.proto"

_GOOGLE = (
    any_pb2,
    source_context_pb2,
    type_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
META, DECIMAL = "confluent/meta.proto", "confluent/type/decimal.proto"
DATE, TIME_OF_DAY = "google/type/date.proto", "google/type/timeofday.proto"
# The wire contract of types that come from elsewhere; numbers and names are theirs.
_TEXTS = {
    META: """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""",
    DECIMAL: """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
    DATE: """syntax = "proto3"; package google.type;
        message Date { int32 year = 1; int32 month = 2; int32 day = 3; }""",
    TIME_OF_DAY: """syntax = "proto3"; package google.type;
        message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }""",
}


class ProtoError(UsageError):
    """A schema that cannot be one."""

    code = "proto"


@lru_cache(maxsize=1)
def built_in_files() -> Mapping[str, FileProto]:
    """By the name they are imported under."""
    files: dict[str, FileProto] = {}
    for module in _GOOGLE:
        file = FileProto()
        module.DESCRIPTOR.CopyToProto(file)
        files[file.name] = file
    for name, text in _TEXTS.items():
        files[name] = read_file(text, name)
    return files


def read_file(text: str, name: str = MAIN) -> FileProto:
    """A .proto file's text, or a serialized FileDescriptorProto in base64, as Confluent's Python client sends it. Names
    are not resolved yet."""
    serialized = _serialized(text)
    if serialized is None:
        file = parse_proto(text)
    else:
        file = FileProto()
        try:
            file.ParseFromString(serialized)
        except DecodeError as error:
            raise ProtoError(f"not a serialized file descriptor: {error}") from None
    file.name = name
    file.ClearField("source_code_info")
    return file


def _serialized(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None


class ProtoFiles:
    """A schema with everything it imports, resolved."""

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        self._added: set[str] = set()
        others = {name: read_file(other, name) for name, other in (references or {}).items()}
        self.file: FileDescriptor = self._add(read_file(text), others, ())

    def _add(self, file: FileProto, others: Mapping[str, FileProto], above: tuple[str, ...]) -> FileDescriptor:
        for needed in file.dependency:
            if needed in self._added:
                continue
            found = others.get(needed) or built_in_files().get(needed)
            if found is None:
                raise ProtoError(f'`import "{needed}"`: there is no such file', hint="name it in `references`")
            if needed in above:
                raise ProtoError(f'`import "{needed}"`: files import each other in a circle')
            self._add(found, others, (*above, file.name))
        try:
            self.pool.Add(file)
            self._added.add(file.name)
            return self.pool.FindFileByName(file.name)
        except (TypeError, KeyError) as error:
            raise ProtoError(_reason(error)) from None

    def resolved(self) -> FileProto:
        """The file with full type names."""
        file = FileProto()
        self.file.CopyToProto(file)
        return file

    def message(self, indexes: tuple[int, ...] = (0,)) -> Descriptor:
        """By its place: the n-th message of the file, the m-th inside of that, …"""
        messages: list[Any] = list(self.file.message_types_by_name.values())
        found: Descriptor | None = None
        for index in indexes:
            if not 0 <= index < len(messages):
                raise ProtoError(f"the schema has no message number {list(indexes)}")
            found = messages[index]
            messages = list(found.nested_types)
        if found is None:
            raise ProtoError("the schema has no message")
        return found


def _reason(error: Exception) -> str:
    text = str(error).strip().strip("'\"")
    return text.removeprefix("Couldn't build proto file into descriptor pool:").strip() or "it cannot be built"
