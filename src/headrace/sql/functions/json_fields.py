"""Functions over JSON and URLs."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, quote_plus, unquote, unquote_plus, urlsplit

from headrace.sql.functions.function import scalar
from headrace.sql.functions.json_values import field_text, parse_json

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_NO_URL = re.compile(r"[\s\x00-\x20\x7f\"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")
_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def path_steps(path: str) -> tuple[str, ...] | None:
    """Names and places on the way from the root, `$`; None if it is no path.

    >>> path_steps("$.a[0]['b c']")
    ('a', '0', 'b c')
    """
    if not path.startswith("$"):
        return None
    found, position = [], 1
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return None
        found.append(next(part for part in step.groups() if part is not None))
        position = step.end()
    return tuple(found)


def extract_json_field(text: str, path: str) -> str | None:
    """The text of a field; what is not text as JSON, null too."""
    steps = path_steps(path)
    if steps is None:
        return None
    value = parse_json(text)
    for step in steps:
        if isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return None
    return field_text(value)


def _url(text: str) -> SplitResult:
    if _NO_URL.search(text):
        raise ValueError("not a URL")
    return urlsplit(text)


def _query(text: str) -> str | None:
    """As it is meant: escapes are read. A plus sign is one."""
    return unquote(_url(text).query) if "?" in text.partition("#")[0] else None


def _fragment(text: str) -> str | None:
    return unquote(_url(text).fragment) if "#" in text else None


def _parameter(text: str, name: str) -> str | None:
    for part in (_query(text) or "").split("&"):
        key, _, value = part.partition("=")
        if key == name:
            return value
    return None


def _decode(text: str) -> str:
    if _NO_ESCAPE.search(text):
        raise ValueError("`%` is followed by two digits")
    return unquote_plus(text)


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
        lambda text: unquote(_url(text).path),
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
        _query,
        "What follows the question mark.",
        "URL_EXTRACT_QUERY('https://example.com/?q=1&r=2')",
    ),
    scalar(
        "URL_EXTRACT_FRAGMENT",
        "(VARCHAR) -> VARCHAR",
        _fragment,
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
        _decode,
        "The text of a parameter's value in a URL.",
        "URL_DECODE_PARAM('a+b')",
    ),
)
