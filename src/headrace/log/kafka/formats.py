"""A topic's two codecs, and the few bytes around keys and in headers that Headrace adds to what they write."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.log.base import TopicSpec
from headrace.log.codecs.base import Codec, Schemas
from headrace.log.codecs.formats import make_codec
from headrace.log.codecs.keys import key_codec

ID_HEADER = "headrace-id"
WINDOW_END_HEADER = "headrace-window-end"
"""A time window's key holds its start only, as in Kafka Streams, where readers know the size."""
STREAM_TIME_HEADER = "headrace-stream-time"
"""Of a record that was copied from another log: the stream time it was stamped with there."""
TIME_ZERO_HEADER = "headrace-time-zero"
"""librdkafka takes the time 0 for "now", so such a record is sent with the time 1 and this header."""
OWN_HEADERS = frozenset({ID_HEADER, WINDOW_END_HEADER, STREAM_TIME_HEADER, TIME_ZERO_HEADER})

_ONE, _TWO = struct.Struct(">q"), struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class TopicCodecs:
    key: Codec
    value: Codec


def topic_codecs(spec: TopicSpec, schemas: Schemas | None) -> TopicCodecs:
    if spec.kind == "raw":
        return TopicCodecs(key_codec(spec), make_codec("RAW", spec.name, spec.value))
    keep_rest = spec.role == "events"
    value = make_codec(spec.value_format, spec.name, spec.value, "value", spec.value_options, schemas, keep_rest)
    return TopicCodecs(key_codec(spec, schemas), value)


def add_windows(keys: list[bytes | None], starts: pa.Array, ends: pa.Array, session: bool) -> list[bytes | None]:
    """Kafka Streams' windowed keys: the key, then the window's start; for sessions its end and its start."""
    pairs = zip(keys, starts.to_pylist(), ends.to_pylist(), strict=True)
    if session:
        return [(key or b"") + _TWO.pack(end, start) for key, start, end in pairs]
    return [(key or b"") + _ONE.pack(start) for key, start, _ in pairs]


def take_windows(
    keys: list[bytes | None], ends: list[int | None], session: bool
) -> tuple[list[bytes | None], pa.Array, pa.Array, dict[int, str]]:
    """Keys, starts and ends of windows, and what is wrong with keys that cannot have one. `ends` are the headers'."""
    size = 16 if session else 8
    plain: list[bytes | None] = []
    bounds = np.zeros((len(keys), 2), np.int64)
    errors: dict[int, str] = {}
    for row, key in enumerate(keys):
        if key is None or len(key) < size:
            errors[row] = "the key has no window"
            plain.append(None)
            continue
        plain.append(key[:-size])
        if session:
            bounds[row] = _TWO.unpack(key[-size:])[::-1]
        else:
            [start] = _ONE.unpack(key[-size:])
            end = ends[row]
            bounds[row] = (start, start if end is None else end)
    return plain, pa.array(bounds[:, 0].copy()), pa.array(bounds[:, 1].copy()), errors


def pack_end(end: int) -> bytes:
    return _ONE.pack(end)


def unpack_end(data: bytes | None) -> int | None:
    return int(_ONE.unpack(data)[0]) if data is not None and len(data) == _ONE.size else None
