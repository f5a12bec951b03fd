"""Text → event times, by the patterns of TIMESTAMP_FORMAT."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.log.codecs.times import compile_pattern, parse_iso


def parse_moments(text: Column, pattern: str | None) -> Column:
    """Milliseconds; null where the text is not such a moment. Without a pattern, ISO 8601."""

    def parse(texts: pa.Array) -> pa.Array:
        read = compile_pattern(pattern) if pattern else parse_iso
        micros = [None if one is None else read(one) for one in texts.to_pylist()]
        return pa.array([None if one is None else _milliseconds(one) for one in micros], pa.int64())

    # Spark would try to make sense of the annotations; without any, it is a function from an array to an array.
    parse.__annotations__ = {}
    return F.arrow_udf(parse, "long")(text)


def _milliseconds(moment: object) -> int:
    return int(pa.scalar(moment, pa.timestamp("us", tz="UTC")).value) // 1000
