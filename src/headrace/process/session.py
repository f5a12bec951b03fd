"""The session settings that queries mean what they say under."""

from __future__ import annotations

from pyspark.sql import SparkSession

QUERY_CONF = {
    # KSQL: an expression that fails is null and integers wrap, as in Java. That is Spark without ANSI.
    "spark.sql.ansi.enabled": "false",
    # `pageId` and PAGEID are two columns.
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    # A map's repeated key keeps the last value instead of failing the query.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Operators rely on rows in order of arrival within a key, and follow one another. Spark would refuse to sort a
    # stream, and some of the sequences, for the sake of watermarks that nothing here depends on.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    # An empty batch after each one, only to free state sooner, would double the latency. Results never wait for it:
    # they do not depend on the watermark (docs/explanation/time-and-lateness.md).
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def query_session(spark: SparkSession) -> SparkSession:
    """A session of the same Spark with the settings that lowered plans rely on. Costs nothing to make."""
    session = spark.newSession()
    for name, value in QUERY_CONF.items():
        session.conf.set(name, value)
    return session
