"""Topics of the local log as DataFrames, in a Spark session of your own (docs/howto/pyspark.md).

The session needs the settings of `headrace.process.jvm.connector_conf`. Writing needs an owner of the log: a running
project.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import UsageError
from headrace.log.base import ARRIVAL, OFFSET, PARTITION, STREAM_TIME

FORMAT = "headrace"
STAMPED = (ARRIVAL, STREAM_TIME, PARTITION, OFFSET)
"""Columns that only the log's owner gives; what was read with a record is not written with it."""


def read_topic(
    spark: SparkSession,
    log: Path | str,
    topic: str,
    *,
    columns: Sequence[str] | None = None,
    starting: str | Mapping[str, object] = "earliest",
    ending: str | Mapping[str, object] = "latest",
    stream: bool = False,
    max_rows: int | None = None,
    cut: str | None = None,
    name: str | None = None,
) -> DataFrame:
    """A topic: what is there now, or with `stream` that and what comes.

    `starting` and `ending` (of a batch) are `earliest`, `latest`, `{"partitions": {"0": 12}}` or `{"arrival": 34}`:
    everything that arrived in the whole log before that number. A stream reads at most `max_rows` per batch; streams of
    one query that name the same `cut` read up to the same arrival number. `name` is the source's in the checkpoint.
    """
    options = {"path": str(Path(log).absolute()), "topic": topic, "startingOffsets": _offsets(starting)}
    if columns is not None:
        options["columns"] = json.dumps(list(columns))
    if not stream:
        return spark.read.format(FORMAT).options(**options, endingOffsets=_offsets(ending)).load()
    if max_rows is not None:
        options["maxRowsPerTrigger"] = str(max_rows)
    if cut is not None:
        options["cut"] = cut
    return spark.readStream.format(FORMAT).options(**options).name(name or source_name(topic)).load()


def sql(spark: SparkSession, text: str, project: Path | str | None = None) -> DataFrame:
    """A SELECT without EMIT over a project's streams and tables, computed by Spark: for ranges that a server would take
    too long for. `project` is a folder, by default the nearest above the working directory."""
    # By name, because the planner and the catalog are above this module.
    found: DataFrame = import_module("headrace.frames").spark_frame(spark, text, project)
    return found


def write_topic(
    frame: DataFrame,
    log: Path | str,
    topic: str,
    *,
    columns: Mapping[str, str] | None = None,
    query: str | None = None,
    checkpoint: Path | str | None = None,
    version: int = 1,
    output_mode: str = "append",
    available_now: bool = False,
) -> StreamingQuery | None:
    """Append the rows of a DataFrame to a topic, each batch as one transaction.

    `columns` maps the topic's columns to the frame's; by default each to the one of the same name. A streaming frame
    needs `query`, a name of your own, and `checkpoint`: by them the owner knows a batch that it already has. The query
    is returned.
    """
    options = {
        "path": str(Path(log).absolute()),
        "routes": json.dumps([{"topic": topic, "columns": _columns(frame, columns)}]),
    }
    if not frame.isStreaming:
        frame.write.format(FORMAT).options(**options).mode("append").save()
        return None
    if query is None or checkpoint is None:
        raise UsageError("a stream is written with `query` and `checkpoint`", hint="a repeated batch is known by them")
    writer = (
        frame.writeStream.format(FORMAT)
        .options(**options, query=query, version=str(version), checkpoint=str(checkpoint))
        .option("checkpointLocation", str(checkpoint))
        .queryName(query)
        .outputMode(output_mode)
    )
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def source_name(topic: str) -> str:
    """A topic's name as Spark allows a source to be called: letters, digits and underscores.

    >>> source_name("_late.CTAS_A_1")
    '_late_CTAS_A_1'
    """
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in topic)


def _offsets(where: str | Mapping[str, object]) -> str:
    return where if isinstance(where, str) else json.dumps(dict(where))


def _columns(frame: DataFrame, columns: Mapping[str, str] | None) -> dict[str, str]:
    if columns is not None:
        return dict(columns)
    return {name: name for name in frame.columns if name not in STAMPED}
