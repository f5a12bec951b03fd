"""Confluent's wire format: a zero byte, the schema's id in four bytes, then the payload."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import HeadraceError, NotFound
from headrace.log.codecs.base import FormatOptions, Schemas, SchemaType, WriterSchema

HEADER = 5
NO_PAYLOAD, UNFRAMED = -1, -2
MAX_WRITERS = 10_000
W = TypeVar("W")


def frame(schema_id: int) -> bytes:
    return struct.pack(">bI", 0, schema_id)


def schema_ids(payloads: Sequence[bytes | None], errors: dict[int, str]) -> list[int | None]:
    """The id in each payload's header; None, and an error, for what has none."""
    found: list[int | None] = []
    for row, payload in enumerate(payloads):
        if payload is None:
            found.append(None)
        elif len(payload) < HEADER or payload[0] != 0:
            errors[row] = unframed(payload)
            found.append(None)
        else:
            found.append(int.from_bytes(payload[1:HEADER], "big"))
    return found


def unframed(payload: bytes) -> str:
    if len(payload) < HEADER:
        return f"the payload has {len(payload)} bytes: a zero byte and a schema's id of four bytes come first"
    return f"the payload begins with byte {payload[0]}: a zero byte and a schema's id come first"


def ids_of(payloads: pa.Array) -> npt.NDArray[np.int64]:
    """The id in each payload's header; or `NO_PAYLOAD`, or `UNFRAMED`."""
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    data = np.frombuffer(payloads.buffers()[2] or b"", np.uint8)
    start, length = offsets[:-1].astype(np.int64), np.diff(offsets)
    found = np.full(len(payloads), UNFRAMED, np.int64)
    if len(data):
        framed = (length >= HEADER) & (data[np.minimum(start, len(data) - 1)] == 0)
        at = start[framed, None] + np.arange(1, HEADER)
        found[framed] = np.ascontiguousarray(data[at]).view(">u4")[:, 0]
    if payloads.null_count:
        found[np.asarray(payloads.is_null().to_numpy(zero_copy_only=False))] = NO_PAYLOAD
    return found


def byte_at(payloads: pa.Array, place: int) -> npt.NDArray[np.int64]:
    """A byte of each payload, by its place; -1 where a payload has none."""
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    data = np.frombuffer(payloads.buffers()[2] or b"\0", np.uint8)
    at = offsets[:-1].astype(np.int64) + place
    return np.where(at < offsets[1:], data[np.minimum(at, len(data) - 1)].astype(np.int64), -1)


def newest_schema(schemas: Schemas, subject: str, type_: SchemaType, options: FormatOptions) -> WriterSchema | None:
    """What to write with, and to resolve to: the schema that is given, or the subject's newest of that type."""
    if options.schema_id is not None:
        return schemas.by_id(options.schema_id)
    try:
        newest = schemas.newest(subject)
    except NotFound:
        return None
    return newest if newest.type == type_ else None


class Writers(Generic[W]):
    """What each writer's schema means to a reader, by the schema's id; made when it first comes along."""

    def __init__(self, schemas: Schemas, make: Callable[[WriterSchema], W]) -> None:
        self._schemas, self._make = schemas, make
        self._known: dict[int, W] = {}

    def get(self, schema_id: int) -> W | str:
        """Or why there is none. Hostile ids are not remembered: the registry is asked again, which is cheap."""
        known = self._known.get(schema_id)
        if known is not None:
            return known
        try:
            made = self._make(self._schemas.by_id(schema_id))
        except HeadraceError as error:
            return f"written with schema {schema_id}: {error.message}"
        if len(self._known) < MAX_WRITERS:
            self._known[schema_id] = made
        return made


def rows_by_writer(ids: Sequence[int | None]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for row, schema_id in enumerate(ids):
        if schema_id is not None:
            groups.setdefault(schema_id, []).append(row)
    return groups
