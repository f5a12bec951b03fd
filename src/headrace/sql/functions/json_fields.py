"""Functions over JSON and URLs."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import SplitResult, quote_plus, unquote_plus, urlsplit

from headrace.sql.functions.function import scalar
from headrace.sql.text import value_text

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")


def extract_json_field(text: str, path: str) -> str | None:
    """The text of a field; an object or an array as JSON. What follows the first JSON value is not looked at."""
    if not path.startswith("$"):
        return None
    value, _ = json.JSONDecoder().raw_decode(text.lstrip())
    position = 1
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return None
        value, position = _step(value, step), step.end()
        if value is None:
            return None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) if _is_nested(value) else value_text(value)


def _step(value: Any, step: re.Match[str]) -> Any:
    index = step[2]
    if index is not None:
        return value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
    return value.get(step[1] or step[3] or step[4]) if isinstance(value, dict) else None


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _url(text: str) -> SplitResult:
    if any(character.isspace() for character in text):
        raise ValueError("a URL has no white space")
    return urlsplit(text)


def _parameter(text: str, name: str) -> str | None:
    for part in _url(text).query.split("&"):
        key, _, value = part.partition("=")
        if unquote_plus(key) == name:
            return unquote_plus(value)
    return None


def _encode(text: str) -> str:
    """As forms are: of what is no letter or digit only `-`, `_`, `.` and `*` stay."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def _host(text: str) -> str | None:
    url = _url(text)
    found = re.search(re.escape(url.hostname), url.netloc, re.IGNORECASE) if url.hostname else None
    return found[0] if found else None


FUNCTIONS = (
    scalar(
        "EXTRACTJSONFIELD",
        "(VARCHAR, VARCHAR) -> VARCHAR",
        extract_json_field,
        "A field of JSON text, by a path such as `$.a.b[0]`.",
        """EXTRACTJSONFIELD('{"a": {"b": 7}}', '$.a.b')""",
    ),
    scalar("URL_EXTRACT_HOST", "(VARCHAR) -> VARCHAR", _host, "The host.", "URL_EXTRACT_HOST('https://example.com/a')"),
    scalar(
        "URL_EXTRACT_PATH",
        "(VARCHAR) -> VARCHAR",
        lambda text: _url(text).path,
        "The path.",
        "URL_EXTRACT_PATH('https://example.com/a/b?q=1')",
    ),
    scalar(
        "URL_EXTRACT_PORT",
        "(VARCHAR) -> INTEGER",
        lambda text: _url(text).port,
        "The port, if it is written.",
        "URL_EXTRACT_PORT('http://localhost:8080/a')",
    ),
    scalar(
        "URL_EXTRACT_PROTOCOL",
        "(VARCHAR) -> VARCHAR",
        lambda text: _url(text).scheme or None,
        "The protocol.",
        "URL_EXTRACT_PROTOCOL('https://example.com')",
    ),
    scalar(
        "URL_EXTRACT_QUERY",
        "(VARCHAR) -> VARCHAR",
        lambda text: _url(text).query or None,
        "What follows the question mark.",
        "URL_EXTRACT_QUERY('https://example.com/?q=1&r=2')",
    ),
    scalar(
        "URL_EXTRACT_FRAGMENT",
        "(VARCHAR) -> VARCHAR",
        lambda text: _url(text).fragment or None,
        "What follows the hash sign.",
        "URL_EXTRACT_FRAGMENT('https://example.com/#top')",
    ),
    scalar(
        "URL_EXTRACT_PARAMETER",
        "(VARCHAR, VARCHAR) -> VARCHAR",
        _parameter,
        "One parameter of the query, decoded.",
        "URL_EXTRACT_PARAMETER('https://example.com/?q=a%20b', 'q')",
    ),
    scalar(
        "URL_ENCODE_PARAM",
        "(VARCHAR) -> VARCHAR",
        _encode,
        "The text as a parameter's value in a URL.",
        "URL_ENCODE_PARAM('a b')",
    ),
    scalar(
        "URL_DECODE_PARAM",
        "(VARCHAR) -> VARCHAR",
        unquote_plus,
        "The text of a parameter's value in a URL.",
        "URL_DECODE_PARAM('a+b')",
    ),
)
