"""A record's key as bytes: what Kafka stores, and what both logs hash to find its partition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.errors import UsageError
from headrace.log.base import TopicSpec
from headrace.log.codecs.base import Codec, Schemas
from headrace.log.codecs.formats import REGISTRY_FORMATS, make_codec
from headrace.types import BIGINT, BYTES, DOUBLE, INTEGER, TIMESTAMP, VARCHAR

_PRIMITIVES = (INTEGER, BIGINT, DOUBLE, VARCHAR, BYTES, TIMESTAMP)


class KeyColumns:
    """What of a topic's rows is hashed: the key's bytes in its format. Those of the commonest keys are their column's,
    and need not be made. Keys that need a registry are made with `schemas`, and register their schema when the first
    of them is; without, they are placed by their columns."""

    def __init__(self, spec: TopicSpec, schemas: Schemas | None = None) -> None:
        self._spec = spec
        self._names = [column.name for column in spec.key]
        simple = spec.kind == "raw" or spec.key_format == "KAFKA"
        as_they_are = simple and len(spec.key) == 1 and spec.key[0].type in _PRIMITIVES
        by_columns = as_they_are or (schemas is None and spec.key_format.upper() in REGISTRY_FORMATS)
        self._codec = None if by_columns else key_codec(spec, schemas)

    def prepare(self) -> None:
        """Register what has to be, where the log can be waited for: the commit thread cannot wait for itself."""
        if self._codec is not None:
            self._codec.prepare()

    def of(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], list[str], str]:
        """Arrays, their names and their format, as `partition_rows` takes them."""
        if self._codec is not None:
            return [encode_keys(self._codec, self._spec, batch)], ["KEY"], "KAFKA"
        return [batch.column(name) for name in self._names], self._names, self._spec.key_format


def key_codec(spec: TopicSpec, schemas: Schemas | None = None) -> Codec:
    if not spec.key:
        return make_codec("NONE", spec.name, (), "key")
    if spec.kind == "raw":
        return make_codec("RAW", spec.name, spec.key, "key")
    try:
        return make_codec(spec.key_format, spec.name, spec.key, "key", spec.key_options, schemas)
    except UsageError:
        if spec.key_format != "KAFKA":
            raise
        # Several columns, or one Kafka has no serializer for.
        return make_codec("JSON", spec.name, spec.key, "key")


def encode_keys(codec: Codec, spec: TopicSpec, batch: pa.RecordBatch) -> pa.Array:
    """The rows' keys as binary; null where all columns of the key are. `UsageError` if one cannot be written."""
    encoded = codec.encode(batch)
    if encoded.errors:
        row, reason = next(iter(sorted(encoded.errors.items())))
        raise UsageError(f"topic `{spec.name}`: the key of row {row} cannot be written: {reason}")
    payloads = encoded.payloads
    columns = [batch.column(column.name) for column in spec.key]
    if columns and all(column.null_count for column in columns):
        missing = np.logical_and.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in columns])
        payloads = payloads.take(pa.array(np.arange(len(missing)), mask=missing))
    return payloads
