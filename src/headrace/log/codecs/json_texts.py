"""Whole columns → JSON texts at once, where a type's JSON is simple; the same bytes `json_encode` would give."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.codecs.constants import constant
from headrace.log.codecs.json_encode import to_json
from headrace.types import BigInt, Boolean, DataType, Date, Decimal, Double, Integer, Timestamp, Varchar

_NULL, _QUOTE, _NOTHING, _END = (constant(text) for text in ("null", '"', "", "}"))
_END_OF_MOMENT = constant('Z"')
# What has to be escaped; everything else is itself.
_ESCAPED = r'["\\\x00-\x1f]'


def text_column(array: pa.Array, type_: DataType) -> pa.Array | None:
    """The JSON of every value, `null` for null; None if the values have to be looked at one by one."""
    found = _texts(array, type_)
    return None if found is None else pc.fill_null(found, _NULL)


def _texts(array: pa.Array, type_: DataType) -> pa.Array | None:
    match type_:
        case Integer() | BigInt() | Boolean():
            return array.cast(pa.utf8())
        case Double() | Decimal():
            # No number has a comma in it. What is not a number is null.
            texts = to_json(array.to_pylist())[1:-1].decode()
            return pa.array(texts.split(","), pa.utf8()) if len(array) else pa.array([], pa.utf8())
        case Varchar():
            if pc.any(pc.match_substring_regex(array, _ESCAPED)).as_py():
                return None
            return _quoted(array)
        case Date():
            return _quoted(array.cast(pa.utf8()))
        case Timestamp():
            return _moments(array)
        case _:
            return None


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _NOTHING)


def _moments(array: pa.Array) -> pa.Array | None:
    """ISO 8601 with milliseconds, if none has microseconds and all are in a year of four digits."""
    bounds = pc.min_max(array.view(pa.int64())).as_py()
    if bounds["min"] is not None and not (
        -62_135_596_800_000_000 <= bounds["min"] <= bounds["max"] < 253_402_300_800_000_000
    ):
        return None
    try:
        # Without a zone: Arrow would look it up for every value.
        texts = array.view(pa.int64()).view(pa.timestamp("us")).cast(pa.timestamp("ms")).cast(pa.utf8())
    except pa.ArrowInvalid:
        return None
    return pc.binary_join_element_wise(_QUOTE, pc.replace_substring(texts, " ", "T"), _END_OF_MOMENT, _NOTHING)


def objects(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """One object per row, of texts that are JSON already."""
    pieces: list[pa.Array | pa.Scalar] = []
    for place, (name, column) in enumerate(zip(names, columns, strict=True)):
        start = "{" if place == 0 else ","
        pieces += [pa.scalar(start + msgspec.json.encode(name).decode() + ":"), column]
    return pc.binary_join_element_wise(*pieces, _END, _NOTHING).cast(pa.binary())
