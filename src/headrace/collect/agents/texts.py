r"""Headers are text, but what they are made of may be any bytes: a record's key, a part of a line, a file's name.

Bytes that are no UTF-8 stand in a header's value as Python keeps them in file names (`surrogateescape`). So the value
is the same bytes again wherever an event goes: in a file channel, over Avro, in the log. JSON cannot say it so: there
it is `{"base64": …}`, which the log's codecs read. Names of headers, ids and names of topics are text everywhere: there
such a byte is written out, as `\xff`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any


def to_bytes(text: str) -> bytes:
    r"""Of any text, and the inverse of `from_bytes`.

    >>> to_bytes(from_bytes(b"k\xff\xfe"))
    b'k\xff\xfe'
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def from_bytes(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def is_plain(text: str) -> bool:
    """Whether it is UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def readable(text: str) -> str:
    r"""With bytes that are no text written out. Different ones stay different.

    >>> readable(from_bytes(b"caf\xc3\xa9 \xff"))
    'café \\xff'
    """
    return text if is_plain(text) else to_bytes(text).decode("utf-8", "backslashreplace")


def json_headers(headers: Mapping[str, str]) -> dict[str, Any]:
    r"""
    >>> json_headers({"app": "shop", "key": from_bytes(b"\xff")})
    {'app': 'shop', 'key': {'base64': '/w=='}}
    """
    return {
        readable(name): value if is_plain(value) else {"base64": base64.b64encode(to_bytes(value)).decode()}
        for name, value in headers.items()
    }
