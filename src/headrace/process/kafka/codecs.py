"""Codecs as functions over Spark's columns, run by its Python workers, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.log.base import TopicSpec
from headrace.log.codecs.base import Side
from headrace.log.kafka.formats import topic_codecs
from headrace.process.kafka.schemas import WorkerSchemas
from headrace.process.spark_types import spark_type

ERROR = "$error"


def decode_by_codec(data: Column, topic: TopicSpec, side: Side, schemas: WorkerSchemas | None) -> Column:
    """Bytes → a struct of the side's columns and `$error`, why they are all null. The codec is made in the worker: what
    it keeps need not be pickled."""
    columns = topic.key if side == "key" else topic.value
    fields = [T.StructField(c.name, spark_type(c.type)) for c in columns]

    def decode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        codecs = topic_codecs(topic, schemas)
        codec = codecs.key if side == "key" else codecs.value
        for payloads in batches:
            if schemas is not None:
                schemas.begin_batch()
            found = codec.decode(payloads.cast(pa.binary()))
            reasons = pa.array([found.errors.get(row) for row in range(len(payloads))], pa.string())
            yield pa.StructArray.from_arrays([*found.batch.columns, reasons], names=[*found.batch.schema.names, ERROR])

    decoding: Any = F.arrow_udf(decode, T.StructType([*fields, T.StructField(ERROR, T.StringType())]))
    made: Column = decoding(data)
    return made
