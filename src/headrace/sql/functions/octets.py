"""Functions over BYTES, and between text and its encodings."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import uuid
from typing import Any

from headrace.sql.functions.function import scalar

_ORDERS = {"BIG_ENDIAN": ">", "LITTLE_ENDIAN": "<"}


def to_bytes(text: str, encoding: str) -> bytes:
    match encoding.lower():
        case "hex":
            return _from_hex(text)
        case "utf8":
            return text.encode("utf-8")
        case "ascii":
            return text.encode("ascii", "replace")
        case "base64":
            # What fills up the end may be missing.
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        case _:
            raise ValueError(f"unknown encoding `{encoding}`")


def from_bytes(value: bytes, encoding: str) -> str:
    match encoding.lower():
        case "hex":
            return value.hex().upper()
        case "utf8":
            return value.decode("utf-8", "replace")
        case "ascii":
            return value.decode("ascii", "replace")
        case "base64":
            return base64.b64encode(value).decode("ascii")
        case _:
            raise ValueError(f"unknown encoding `{encoding}`")


def _from_hex(text: str) -> bytes:
    if any(character.isspace() for character in text):
        raise ValueError("hexadecimal digits have nothing between them")
    return bytes.fromhex(text)


def _hex_digits(text: str) -> str:
    """Of `0x1AB`, which gets a zero in front if it needs one, `X'1A'`, or the text itself."""
    if text.startswith("0x"):
        return text[2:].zfill(len(text) - 2 + len(text) % 2)
    return text[2:-1] if text[:2] in ("x'", "X'") and text.endswith("'") and len(text) > 2 else text


def encode(text: str, source: str, target: str) -> str:
    if source.lower() == target.lower():
        raise ValueError("two different encodings are needed")
    if source.lower() == "hex":
        text = _hex_digits(text)
    elif source.lower() == "base64":
        # Of two alphabets, and whatever is of neither does not count.
        text = re.sub(r"[^A-Za-z0-9+/]", "", text.replace("-", "+").replace("_", "/"))
    found = from_bytes(to_bytes(text, source), target)
    return found.lower() if target.lower() == "hex" else found


def _number(format_: str, size: int) -> Any:
    def read(value: bytes, order: str = "BIG_ENDIAN") -> Any:
        if len(value) != size:
            raise ValueError(f"{size} bytes are needed, not {len(value)}")
        return struct.unpack(_ORDERS[order.upper()] + format_, value)[0]

    return read


def _uuid(value: bytes | None = None) -> str:
    return str(uuid.uuid4() if value is None else uuid.UUID(bytes=value))


_ENCODINGS = "'hex', 'utf8', 'ascii' or 'base64'"

FUNCTIONS = (
    scalar(
        "TO_BYTES",
        "(VARCHAR, VARCHAR) -> BYTES",
        to_bytes,
        f"Text as bytes: {_ENCODINGS}.",
        "TO_BYTES('CAFE', 'hex') = X'CAFE'",
    ),
    scalar(
        "FROM_BYTES",
        "(BYTES, VARCHAR) -> VARCHAR",
        from_bytes,
        f"Bytes as text: {_ENCODINGS}.",
        "FROM_BYTES(X'CAFE', 'hex')",
    ),
    scalar(
        "ENCODE",
        "(VARCHAR, VARCHAR, VARCHAR) -> VARCHAR",
        encode,
        f"Text from one encoding to another: {_ENCODINGS}.",
        "ENCODE('head', 'ascii', 'base64')",
    ),
    scalar(
        "INT_FROM_BYTES",
        ("(BYTES) -> INTEGER", "(BYTES, VARCHAR) -> INTEGER"),
        _number("i", 4),
        "Four bytes as a number, 'BIG_ENDIAN' unless 'LITTLE_ENDIAN' is given.",
        "INT_FROM_BYTES(X'0000002A')",
    ),
    scalar(
        "BIGINT_FROM_BYTES",
        ("(BYTES) -> BIGINT", "(BYTES, VARCHAR) -> BIGINT"),
        _number("q", 8),
        "Eight bytes as a number, the same way.",
        "BIGINT_FROM_BYTES(X'2A00000000000000', 'LITTLE_ENDIAN')",
    ),
    scalar(
        "DOUBLE_FROM_BYTES",
        ("(BYTES) -> DOUBLE", "(BYTES, VARCHAR) -> DOUBLE"),
        _number("d", 8),
        "Eight bytes as a double, the same way.",
        "DOUBLE_FROM_BYTES(X'4045000000000000')",
    ),
    scalar("INT_FROM_BOOLEAN", "(BOOLEAN) -> INTEGER", int, "1 if it is true, 0 if not.", "INT_FROM_BOOLEAN(1 < 2)"),
    scalar(
        "MD5",
        "(VARCHAR) -> VARCHAR",
        lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
        "The text's MD5 hash, as hexadecimal digits.",
        "MD5('headrace')",
    ),
    scalar(
        "UUID",
        ("() -> VARCHAR", "(BYTES) -> VARCHAR"),
        _uuid,
        "A new random identifier, or sixteen bytes written as one.",
        "UUID(X'00112233445566778899AABBCCDDEEFF')",
    ),
)
