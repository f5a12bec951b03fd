"""What the connector's tests share: a topic of every type, rows of it, and both readers' answers in the same words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.log.base import Append, Log
from headrace.spark import read_topic
from tests.log.support import rows as log_rows
from tests.log.test_roundtrip import ROW, SPEC, as_batch
from tests.support import wait_for

Rows = list[dict[str, Any]]

few = settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""Spark takes a while for each: few examples, each of them rich."""

ALL_TYPES = SPEC
"""A topic of three partitions with a column of every type."""


def batches(max_batches: int = 5, max_rows: int = 6) -> st.SearchStrategy[list[Rows]]:
    return st.lists(st.lists(ROW, min_size=1, max_size=max_rows), min_size=1, max_size=max_batches)


def put_rows(log: Log, rows: Rows, topic: str = ALL_TYPES.name) -> None:
    log.append([Append(topic, as_batch(rows))]).result(30)


def by_arrival(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: row["$arrival"])


def python_rows(log: Log, topic: str = ALL_TYPES.name) -> Rows:
    """As the Python reader has them, with the columns that say where a record is."""
    return by_arrival(
        [
            {"$partition": row["partition"], "$offset": row["offset"]}
            | {name: value for name, value in row.items() if name not in ("partition", "offset")}
            for row in log_rows(log, topic)
        ]
    )


def spark_rows(frame: DataFrame) -> Rows:
    found: Rows = frame.toArrow().to_pylist(maps_as_pydicts="strict")
    return by_arrival(found) if "$arrival" in frame.columns else found


def spark_topic(spark: SparkSession, folder: Path, topic: str = ALL_TYPES.name, **options: Any) -> Rows:
    return spark_rows(read_topic(spark, folder, topic, **options))


class Batches:
    """The micro-batches of a query, in order, as a `foreachBatch` saw them."""

    def __init__(self) -> None:
        self.rows: list[Rows] = []

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = spark_rows(frame)
        if number < len(self.rows):
            # A query that was stopped in the middle of a batch runs it again, and it must be the same.
            assert self.rows[number] == rows
            return
        assert number == len(self.rows)
        self.rows.append(rows)

    def __iter__(self) -> Iterator[Rows]:
        return iter(self.rows)

    @property
    def all(self) -> Rows:
        return [row for batch in self.rows for row in batch]


def run_available(frame: DataFrame, checkpoint: Path, seen: Batches | None = None) -> tuple[Batches, StreamingQuery]:
    """Run a streaming frame over what is there, in as many batches as its limits make; after those `seen` before."""
    seen = Batches() if seen is None else seen
    query = (
        frame.writeStream.foreachBatch(seen)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return seen, query


def source_ends(checkpoint: Path, batch: int) -> list[dict[str, Any]]:
    """Where each source ended, from the checkpoint's log of offsets."""
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]
    return [json.loads(line[line.index("{") :]) for line in lines]


def wait_until(query: StreamingQuery, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Fails at once if the query did."""

    def holds() -> bool:
        error = query.exception()
        if error is not None:
            raise error
        return condition()

    wait_for(holds, seconds, what)
