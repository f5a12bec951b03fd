"""JSON text as functions over it see it: numbers exactly as they are written, and what follows the first value is not
looked at."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

_SPACE = " \t\n\r"


def _refuse(constant: str) -> Any:
    raise ValueError(f"`{constant}` is not JSON")


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse)


def parse_json(text: str) -> Any:
    """`ValueError` if the text does not begin with a JSON value."""
    start = len(text) - len(text.lstrip(_SPACE))
    value, end = _DECODER.raw_decode(text, start)
    if not isinstance(value, str | list | dict) and text[end : end + 1] not in (*_SPACE, ""):
        raise ValueError("a number or a word goes on where it should end")
    return value


def json_text(value: Any, plain: bool = False) -> str:
    """Without white space. `plain`: numbers without exponents."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Decimal():
            # There is no zero below zero.
            exact = value if value else value.copy_abs()
            return format(exact, "f") if plain else str(exact)
        case list():
            return "[" + ",".join(json_text(one, plain) for one in value) + "]"
        case dict():
            return "{" + ",".join(f"{_quoted(key)}:{json_text(one, plain)}" for key, one in value.items()) + "}"
        case str():
            return _quoted(value)
        case _:
            return str(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def field_text(value: Any) -> str:
    """A field's text: strings without their quotes, the rest as JSON."""
    return value if isinstance(value, str) else json_text(value)
