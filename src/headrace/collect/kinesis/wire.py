"""Bodies as AWS's clients write them: JSON 1.1, where bytes are base64 and moments seconds, or CBOR, which Java's
client prefers, where bytes are bytes and moments are milliseconds under tag 1."""

from __future__ import annotations

from typing import Any, TypeVar

import cbor2
import msgspec

from headrace.collect.kinesis.errors import MALFORMED, VALIDATION, ApiError
from headrace.structs import ready

JSON, CBOR = "application/x-amz-json-1.1", "application/x-amz-cbor-1.1"
MOMENT = 1
"""CBOR's tag."""
MOST_NESTED = 32

T = TypeVar("T")


class Moment:
    """Milliseconds since 1970, in an answer. Not a dataclass: those the encoder knows how to write by itself."""

    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        self.ms = ms


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A request. Fields that newer clients send, and that change nothing here, are passed over."""


def is_cbor(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() in (CBOR, "application/cbor")


def decode(body: bytes, cbor: bool, model: type[T]) -> T:
    try:
        if not cbor:
            return msgspec.json.decode(body or b"{}", type=ready(model))
        found = cbor2.loads(body or b"\xa0", semantic_decoders={MOMENT: _moment}, max_depth=MOST_NESTED)
        return msgspec.convert(found, ready(model))
    except msgspec.ValidationError as error:
        raise ApiError(VALIDATION, str(error)) from error
    except (msgspec.DecodeError, cbor2.CBORDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(MALFORMED, f"the body cannot be read: {error}") from error


def _moment(value: Any, immutable: bool) -> float:
    return float(value) / 1000


def encode(answer: Any, cbor: bool) -> bytes:
    if answer is None:
        return b""
    return cbor2.dumps(answer, default=_to_cbor) if cbor else msgspec.json.encode(answer, enc_hook=_to_json)


def _to_json(value: Any) -> float:
    assert isinstance(value, Moment)
    return value.ms / 1000


def _to_cbor(encoder: Any, value: Any) -> None:
    assert isinstance(value, Moment)
    encoder.encode(cbor2.CBORTag(MOMENT, value.ms))
