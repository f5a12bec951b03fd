"""Can messages written with one Protobuf schema be read with another? Fields are known by their numbers.

Rules and names of differences as Confluent's: what the wire format forgives (renamed fields, new and gone ones, numbers
of the same encoding) is compatible; what would be misread, or lost within a `oneof`, is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from headrace.log.registry.base import Problem

_SAME_ENCODING = (
    ("int32", "uint32", "int64", "uint64", "bool", "enum"),
    ("sint32", "sint64"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("string", "bytes"),
)
_GROUPS = {name: group for group, names in enumerate(_SAME_ENCODING) for name in names}
_TYPE_NAMES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}
_TEXTUAL = ("string", "bytes", "message", "group")


def proto_problems(reader: Any, writer: Any) -> list[Problem]:
    """Of two file descriptors: why `reader` cannot read all that `writer` may have written."""
    ours, theirs = reader.message_types_by_name, writer.message_types_by_name
    return _messages(ours, theirs, "")


def _messages(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> list[Problem]:
    problems: list[Problem] = []
    for name, message in theirs.items():
        if message.GetOptions().map_entry:
            continue
        where = f"{path}.{name}" if path else name
        if name not in ours:
            problems.append(Problem("MESSAGE_REMOVED", where, f"the message `{where}` is gone"))
        else:
            problems += _message(ours[name], message, where)
    return problems


def _message(ours: Any, theirs: Any, path: str) -> list[Problem]:
    problems: list[Problem] = []
    mine, other = dict(ours.fields_by_number), dict(theirs.fields_by_number)
    for number, field in other.items():
        where = f"{path}.{field.name}"
        if number in mine:
            problems += _field(mine[number], field, where)
        elif field.is_required:
            problems.append(Problem("REQUIRED_FIELD_REMOVED", where, f"the required field {number} is gone"))
        elif _oneof(field) and _oneof(field) in _oneofs(ours):
            message = f"field {number} is gone from the oneof `{_oneof(field)}`: what it holds would be lost"
            problems.append(Problem("ONEOF_FIELD_REMOVED", where, message))
    for number, field in mine.items():
        if number not in other and field.is_required:
            where = f"{path}.{field.name}"
            problems.append(Problem("REQUIRED_FIELD_ADDED", where, f"the required field {number} is new"))
    problems += _moved(mine, other, _oneofs(theirs), path)
    return problems + _messages(ours.nested_types_by_name, theirs.nested_types_by_name, path)


def _moved(mine: Mapping[int, Any], other: Mapping[int, Any], known: set[str], path: str) -> list[Problem]:
    """Fields that were on their own and are now in a oneof, where setting one clears the others."""
    moved = [field for number, field in mine.items() if number in other and _oneof(field) and not _oneof(other[number])]
    problems = [
        Problem("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}.{field.name}", f"it is in the oneof `{_oneof(field)}` now")
        for field in moved
        if _oneof(field) in known
    ]
    counts = Counter(_oneof(field) for field in moved if _oneof(field) not in known)
    for name, count in counts.items():
        if count > 1:
            message = f"{count} fields that could be set together are in one oneof now"
            problems.append(Problem("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}.{name}", message))
    return problems


def _oneofs(message: Any) -> set[str]:
    return {one.name for one in message.oneofs if not _synthetic(one)}


def _oneof(field: Any) -> str:
    one = field.containing_oneof
    return "" if one is None or _synthetic(one) else one.name


def _synthetic(one: Any) -> bool:
    """What proto3 makes of an `optional` field."""
    return len(one.fields) == 1 and one.name == f"_{one.fields[0].name}"


def _field(mine: Any, other: Any, path: str) -> list[Problem]:
    ours, theirs = _kind(mine), _kind(other)
    if ours != theirs:
        return [Problem("FIELD_KIND_CHANGED", path, f"it was {_named(other)} and is {_named(mine)}")]
    if ours == "map":
        pairs = zip(mine.message_type.fields, other.message_type.fields, strict=True)
        return [problem for key, value in pairs for problem in _field(key, value, f"{path}.{key.name}")]
    if ours == "message":
        return _named_type(mine, other, path)
    problems = _scalar(mine, other, path)
    if mine.is_repeated != other.is_repeated and _type(mine) not in _TEXTUAL:
        change = "repeated now" if mine.is_repeated else "not repeated any more"
        problems.append(Problem("FIELD_NUMERIC_LABEL_CHANGED", path, f"the number is {change}"))
    return problems


def _scalar(mine: Any, other: Any, path: str) -> list[Problem]:
    ours, theirs = _type(mine), _type(other)
    if ours == theirs or _GROUPS.get(ours, ours) == _GROUPS.get(theirs, theirs):
        return []
    return [Problem("FIELD_SCALAR_KIND_CHANGED", path, f"`{theirs}` is encoded otherwise than `{ours}`")]


def _named_type(mine: Any, other: Any, path: str) -> list[Problem]:
    ours, theirs = _within_package(mine.message_type), _within_package(other.message_type)
    if ours == theirs:
        return []
    return [Problem("FIELD_NAMED_TYPE_CHANGED", path, f"it was `{theirs}` and is `{ours}`")]


def _within_package(message: Any) -> str:
    package = message.file.package
    name: str = message.full_name
    return name.removeprefix(f"{package}.") if package else name


def _kind(field: Any) -> str:
    if field.message_type is None:
        return "scalar"
    return "map" if field.message_type.GetOptions().map_entry else "message"


def _type(field: Any) -> str:
    return _TYPE_NAMES[field.type]


def _named(field: Any) -> str:
    kind = _kind(field)
    return f"`{_type(field)}`" if kind == "scalar" else f"a {kind}"
