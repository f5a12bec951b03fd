"""Raw topics of the local log in formats that Spark does not read itself: by their codecs, in its Python workers.

As where the server reads them (`store/decode.py`): what cannot be decoded is null, and the record stays one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.log.codecs.base import Schemas, Side
from headrace.log.codecs.formats import REGISTRY_FORMATS
from headrace.log.codecs.of_source import read_plainly, source_codec
from headrace.log.local.client import LocalClient
from headrace.log.registry.schemas import RegistrySchemas
from headrace.process.spark_types import spark_type
from headrace.sql.source import Source
from headrace.types import BigInt, Bytes, Integer, Varchar


def needs_codec(source: Source, side: Side) -> bool:
    """Not if Spark's own functions read it."""
    columns = source.key if side == "key" else source.value
    if side == "key" and source.key_format.upper() == "KAFKA":
        return any(not isinstance(one.type, Varchar | Bytes | Integer | BigInt) for one in columns)
    return bool(columns) and not read_plainly(source, side)


def decode_by_codec(data: Column, source: Source, side: Side, folder: Path) -> Column:
    """Bytes → a struct of the side's columns. The codec is made in the worker: what it keeps need not be pickled."""
    columns = source.key if side == "key" else source.value
    format_ = source.key_format if side == "key" else source.value_format
    registered = format_.upper() in REGISTRY_FORMATS

    def decode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        codec = source_codec(source, side, _schemas(folder) if registered else None)
        for payloads in batches:
            found = codec.decode(payloads.cast(pa.binary())).batch
            yield pa.StructArray.from_arrays(found.columns, names=found.schema.names)

    decoding: Any = F.arrow_udf(decode, T.StructType([T.StructField(c.name, spark_type(c.type)) for c in columns]))
    made: Column = decoding(data)
    return made


@lru_cache(maxsize=8)
def _schemas(folder: Path) -> Schemas:
    """One for all queries of a worker, which stays connected."""
    return RegistrySchemas.of_log(LocalClient(folder))
