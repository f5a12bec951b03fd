"""Functions over JSON text as a whole. What is not JSON gives null."""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from headrace.sql import datetimes
from headrace.sql.functions.function import scalar
from headrace.sql.functions.json_values import field_text, json_text, parse_json
from headrace.sql.numeric import double_text
from headrace.sql.text import value_text
from headrace.types import TIME, TIMESTAMP, Array, DataType, Map, Struct


def _of_kind(kind: type, compute: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Of JSON text that holds an object, or an array; null of anything else."""

    def apply(text: str) -> Any:
        value = parse_json(text)
        return compute(value) if isinstance(value, kind) else None

    return apply


def _is_json(text: str | None) -> bool:
    try:
        parse_json(text or "")
    except ValueError:
        return False
    return True


def _contains(text: str | None, wanted: Any) -> bool:
    try:
        values = parse_json(text or "")
    except ValueError:
        return False
    if not isinstance(values, list):
        return False
    return any(_same(value, wanted) for value in values)


def _same(value: Any, wanted: Any) -> bool:
    """A number with a fraction is no whole number, whatever the fraction is."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(wanted, float):
        return isinstance(value, Decimal) and float(value) == wanted
    return type(value) is type(wanted) and bool(value == wanted)


def _concat(*texts: str) -> str:
    """Objects become one object, the later field counting; with arrays among them, one array."""
    values = [parse_json(text) for text in texts]
    if len(values) == 1:
        return json_text(values[0], plain=True)
    if all(isinstance(value, dict) for value in values):
        return json_text({key: field for value in values for key, field in value.items()}, plain=True)
    parts = [part for value in values for part in (value if isinstance(value, list) else [value])]
    return json_text(parts, plain=True)


def _to_json(types: tuple[DataType | None, ...], value: Any) -> str:
    return _json_of(value, types[0])


def _json_of(value: Any, type_: DataType | None) -> str:
    """Keys and fields in order of their names."""
    match value, type_:
        case None, _:
            return "null"
        case bool(), _:
            return "true" if value else "false"
        case _, Array(element):
            return "[" + ",".join(_json_of(one, element) for one in value) + "]"
        case _, Map(_, inner):
            return _object((value_text(key), _json_of(one, inner)) for key, one in value.items())
        case _, Struct(fields):
            return _object((name, _json_of(value.get(name), one)) for name, one in fields)
        case float(), _:
            # What is no number in JSON is text.
            return double_text(value) if math.isfinite(value) else json_text(double_text(value))
        case Decimal(), _:
            return format(value, "f")
        case bytes(), _:
            return json_text(base64.b64encode(value).decode("ascii"))
        case datetime.date(), _:
            return json_text(value.isoformat())
        case _:
            texts = {TIMESTAMP: datetimes.moment_text, TIME: datetimes.time_text}
            return json_text(texts[type_](value) if type_ in texts else value)


def _object(fields: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{json_text(name)}:{text}" for name, text in sorted(fields)) + "}"


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
        _of_kind(dict, lambda value: {key: field_text(field) for key, field in value.items()}),
        "A JSON object as a map of its fields' texts.",
        """JSON_RECORDS('{"a": 1, "b": [2]}')""",
    ),
    scalar(
        "JSON_ITEMS",
        "(VARCHAR) -> ARRAY<VARCHAR>",
        _of_kind(list, lambda value: [json_text(one) for one in value]),
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
