"""Functions over JSON text as a whole. What is not JSON gives null."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from headrace.sql import datetimes
from headrace.sql.functions.function import scalar
from headrace.sql.numeric import double_text
from headrace.types import TIME, TIMESTAMP, Array, DataType, Map, Struct


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _of_kind(kind: type, compute: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Of JSON text that holds an object, or an array; null of anything else."""

    def apply(text: str) -> Any:
        value = json.loads(text)
        return compute(value) if isinstance(value, kind) else None

    return apply


def _field(value: Any) -> str:
    """A field's text: strings without their quotes, the rest as JSON."""
    return value if isinstance(value, str) else _compact(value)


def _is_json(text: str | None) -> bool:
    try:
        json.loads(text or "")
    except ValueError:
        return False
    return True


def _contains(text: str | None, wanted: Any) -> bool:
    try:
        values = json.loads(text or "")
    except ValueError:
        return False
    if not isinstance(values, list):
        return False
    return any(_same(value, wanted) for value in values)


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted)


def _concat(*texts: str) -> str:
    """Objects become one object, the later field counting; with arrays among them, one array."""
    values = [json.loads(text) for text in texts]
    if len(values) == 1:
        return _compact(values[0])
    if all(isinstance(value, dict) for value in values):
        return _compact({key: field for value in values for key, field in value.items()})
    return _compact([part for value in values for part in (value if isinstance(value, list) else [value])])


def _to_json(types: tuple[DataType | None, ...], value: Any) -> str:
    return _json_of(value, types[0])


def _json_of(value: Any, type_: DataType | None) -> str:
    match value, type_:
        case None, _:
            return "null"
        case bool(), _:
            return "true" if value else "false"
        case _, Array(element):
            return "[" + ",".join(_json_of(one, element) for one in value) + "]"
        case _, Map(_, inner):
            return "{" + ",".join(f"{_compact(str(key))}:{_json_of(one, inner)}" for key, one in value.items()) + "}"
        case _, Struct(fields):
            return "{" + ",".join(f"{_compact(name)}:{_json_of(value.get(name), one)}" for name, one in fields) + "}"
        case float(), _:
            return double_text(value)
        case Decimal(), _:
            return format(value, "f")
        case bytes(), _:
            return _compact(base64.b64encode(value).decode("ascii"))
        case datetime.date(), _:
            return _compact(value.isoformat())
        case _:
            texts = {TIMESTAMP: datetimes.moment_text, TIME: datetimes.time_text}
            return _compact(texts[type_](value) if type_ in texts else value)


FUNCTIONS = (
    scalar(
        "TO_JSON_STRING",
        "(T) -> VARCHAR",
        _to_json,
        "The value as JSON text; null as `null`.",
        "TO_JSON_STRING(ARRAY[1, 2])",
        nulls=True,
        typed=True,
    ),
    scalar(
        "IS_JSON_STRING",
        "(VARCHAR) -> BOOLEAN",
        _is_json,
        "Whether the text is JSON.",
        "IS_JSON_STRING('[1, 2]')",
        nulls=True,
    ),
    scalar(
        "JSON_ARRAY_LENGTH",
        "(VARCHAR) -> INTEGER",
        _of_kind(list, len),
        "How many elements a JSON array has.",
        "JSON_ARRAY_LENGTH('[1, 2, 3]')",
    ),
    scalar(
        "JSON_ARRAY_CONTAINS",
        "(VARCHAR, C) -> BOOLEAN",
        _contains,
        "Whether a JSON array has the value.",
        "JSON_ARRAY_CONTAINS('[1, 2, 3]', 2)",
        nulls=True,
    ),
    scalar(
        "JSON_KEYS",
        "(VARCHAR) -> ARRAY<VARCHAR>",
        _of_kind(dict, list),
        "The names of a JSON object's fields.",
        """JSON_KEYS('{"a": 1, "b": 2}')""",
    ),
    scalar(
        "JSON_RECORDS",
        "(VARCHAR) -> MAP<VARCHAR, VARCHAR>",
        _of_kind(dict, lambda value: {key: _field(field) for key, field in value.items()}),
        "A JSON object as a map of its fields' texts.",
        """JSON_RECORDS('{"a": 1, "b": [2]}')""",
    ),
    scalar(
        "JSON_ITEMS",
        "(VARCHAR) -> ARRAY<VARCHAR>",
        _of_kind(list, lambda value: [_compact(one) for one in value]),
        "The elements of a JSON array, each as JSON.",
        """JSON_ITEMS('[{"a": 1}, 2]')""",
    ),
    scalar(
        "JSON_CONCAT",
        "(VARCHAR...) -> VARCHAR",
        _concat,
        "JSON objects as one object, or arrays as one array.",
        """JSON_CONCAT('{"a": 1}', '{"b": 2}')""",
    ),
)
