"""Functions over BYTES, and between text and its encodings."""

from __future__ import annotations

import base64
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
            return base64.b64decode(text, validate=True)
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
    """`0x1AB`, `X'1A'` or plain digits; an odd number of them gets a zero in front."""
    digits = text
    if digits[:2] in ("0x", "0X"):
        digits = digits[2:]
    elif digits[:2] in ("x'", "X'") and digits.endswith("'"):
        digits = digits[2:-1]
    return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))


def encode(text: str, source: str, target: str) -> str:
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
    scalar(
        "UUID",
        ("() -> VARCHAR", "(BYTES) -> VARCHAR"),
        _uuid,
        "A new random identifier, or sixteen bytes written as one.",
        "UUID(X'00112233445566778899AABBCCDDEEFF')",
    ),
)
