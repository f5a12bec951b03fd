"""NONE and RAW: nothing at all, and bytes as they are."""

from __future__ import annotations

import pyarrow as pa

from headrace.errors import UsageError
from headrace.log.codecs.base import Codec, Decoded, Encoded, decoded
from headrace.types import Bytes, Column


class Nothing(Codec):
    """No columns; every payload is null, whatever is there is not looked at."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        if columns:
            raise UsageError("the format NONE is for no columns at all")
        self.columns = ()

    def decode(self, payloads: pa.Array) -> Decoded:
        return decoded((), {}, len(payloads))

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        return Encoded(pa.nulls(batch.num_rows, pa.binary()))


class Raw(Codec):
    """One column of BYTES: the payload itself."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        if len(columns) != 1 or not isinstance(columns[0].type, Bytes):
            raise UsageError("raw payloads are one column of type BYTES")
        self.columns = columns

    def decode(self, payloads: pa.Array) -> Decoded:
        return decoded(self.columns, {self.columns[0].name: payloads.cast(pa.binary())}, len(payloads))

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        return Encoded(batch.column(self.columns[0].name).cast(pa.binary()))
