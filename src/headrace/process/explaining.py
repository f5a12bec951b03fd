"""Spark's plan of a query that does not run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from headrace.log.base import TopicSpec
from headrace.process.inputs import StreamInputs
from headrace.process.lower.lower import lower_query
from headrace.process.lower.scan import Inputs
from headrace.process.session import query_session
from headrace.sql.plan import PersistentQuery

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace

ROWS = 1_000_000


def spark_plan(
    spark: SparkSession,
    where: Path | KafkaPlace,
    topics: Callable[[str], TopicSpec],
    plan: PersistentQuery,
    late_topic: str | None,
) -> str:
    """As it would be started, reading nothing. Without the sink, which may not be there."""
    frame = lower_query(plan, _inputs(query_session(spark), where, topics), late_topic).frame
    jvm: Any = spark._jvm
    return str(jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "simple")).strip()


def _inputs(spark: SparkSession, where: Path | KafkaPlace, topics: Callable[[str], TopicSpec]) -> Inputs:
    if isinstance(where, Path):
        return StreamInputs(spark, where, topics, "explain", ROWS)
    # Only those who use Kafka have its packages.
    from headrace.process.kafka.inputs import KafkaStreamInputs

    return KafkaStreamInputs(spark, where, topics, "explain", ROWS, Path("explain"))
