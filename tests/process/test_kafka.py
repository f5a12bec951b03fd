"""The same definitions on Kafka: what the queries give, however the input is cut, whoever is killed when."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.log.base import Log
from headrace.log.kafka import KafkaLog
from headrace.process.batch import run_batch
from headrace.process.kafka.place import KafkaPlace
from tests.kafka import kafka_settings
from tests.process.pipeline import Pipeline, Row

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STREAM = """
CREATE STREAM views (userid VARCHAR KEY, pageid VARCHAR, price DECIMAL(10,2), at TIMESTAMP, tags ARRAY<VARCHAR>)
  WITH (KAFKA_TOPIC='views', VALUE_FORMAT='JSON', PARTITIONS=3);
"""
SIZE, GRACE = 10_000, 4_000
PER_WINDOW = """
CREATE TABLE per_window AS SELECT pageid, COUNT(*) AS views FROM views
  WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 4 SECONDS) GROUP BY pageid;
"""


class KafkaPipeline(Pipeline):
    def __init__(self, folder: Path, sql: str, bootstrap: str) -> None:
        self.settings = kafka_settings(bootstrap)
        super().__init__(folder, sql)

    def open(self) -> tuple[Log, Path | KafkaPlace]:
        log = KafkaLog(self.settings, SystemClock())
        return log, KafkaPlace(log)


def shown(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows)


def test_a_stream_of_every_kind_of_column(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    sql = STREAM + "CREATE STREAM dear AS SELECT *, price * 2 AS twice FROM views WHERE price > 1 EMIT CHANGES;"
    with KafkaPipeline(tmp_path, sql, kafka) as pipeline:
        pipeline.put(
            "views",
            [
                {"USERID": "ü", "PAGEID": "/a", "PRICE": Decimal("1.50"), "$time": 5, "TAGS": ["x", None]},
                {"USERID": "u", "PAGEID": None, "PRICE": Decimal("0.5"), "$time": 6},
                {"USERID": None, "PAGEID": "/b", "PRICE": Decimal("9.99"), "AT": 1_700_000_000_123_000, "$time": 7},
            ],
        )
        pipeline.run(spark, "dear")
        records = pipeline.records("DEAR")
        assert shown(records, "PAGEID", "$time") == [("/a", 5), ("/b", 7)]
        by_page = {row["PAGEID"]: row for row in records}
        assert (by_page["/a"]["USERID"], by_page["/a"]["TAGS"], str(by_page["/a"]["TWICE"])) == (
            "ü",
            ["x", None],
            "3.00",
        )
        assert by_page["/b"]["AT"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
        # What was read before is not read again.
        pipeline.put("views", [{"USERID": "u", "PAGEID": "/c", "PRICE": Decimal("3"), "$time": 8}])
        pipeline.run(spark, "dear")
        assert shown(pipeline.records("DEAR"), "PAGEID") == [("/a",), ("/b",), ("/c",)]


def adversarial(chance: random.Random, count: int) -> list[Row]:
    now, rows = 0, []
    for number in range(count):
        now += chance.choice((0, 10, 3_000, 14_000))
        moment = max(0, now - chance.choice((0, 0, 0, 5_000, 13_999, 14_000, 40_000)))
        rows.append({"USERID": f"u{number}", "PAGEID": chance.choice(("/x", "/y")), "$time": moment})
    return rows


def model(records: list[Row]) -> tuple[Counter[tuple[str, int]], set[tuple[int, int, int]]]:
    """The definition on Kafka: each partition has its own stream time."""
    counts: Counter[tuple[str, int]] = Counter()
    late: set[tuple[int, int, int]] = set()
    stream_times: dict[int, int] = {}
    for record in records:
        partition, start = record["$partition"], record["$time"] // SIZE * SIZE
        if start + SIZE + GRACE <= stream_times.get(partition, -1):
            late.add((partition, record["$offset"], start))
        else:
            counts[record["PAGEID"], start] += 1
        stream_times[partition] = max(stream_times.get(partition, -1), record["$time"])
    return counts, late


@pytest.mark.parametrize("max_rows", [100_000, 11])
def test_lateness_does_not_depend_on_where_batches_are_cut(
    spark: SparkSession, kafka: str, tmp_path: Path, max_rows: int
) -> None:
    chance = random.Random(4)
    with KafkaPipeline(tmp_path, STREAM + PER_WINDOW, kafka) as pipeline:
        for part in range(3):
            pipeline.put("views", adversarial(chance, 40), partition=part)
        pipeline.run(spark, "per_window", max_rows)
        # A second run continues: its first records are judged by what came before them.
        for part in range(3):
            pipeline.put("views", adversarial(chance, 20), partition=part)
        pipeline.run(spark, "per_window", max_rows)
        counts, late = model(addressed(pipeline, "views"))
        assert {(row["PAGEID"], row["$window_start"]): row["VIEWS"] for row in pipeline.table("PER_WINDOW")} == counts
        ledger = pipeline.records(pipeline.spec("per_window").late_topic or "")
        assert {(row["PARTITION"], row["OFFSET"], row["WINDOW_START"]) for row in ledger} == late
        assert len(ledger) == len(late) > 10
        # The same plan over the same records, as a batch.
        [query] = [pipeline.spec("per_window").plan]
        found = run_batch(spark, pipeline.where, pipeline.topic, query).collect()
        assert {(row["PAGEID"], row["WINDOWSTART"]): row["VIEWS"] for row in found} == counts


def addressed(pipeline: Pipeline, topic: str) -> list[Row]:
    found: list[Row] = []
    for number, ends in enumerate(pipeline.log.snapshot().ends[topic]):
        for records in pipeline.log.read(topic, number, ends.start, ends.end):
            offsets = records.offsets or range(records.first_offset, records.next_offset)
            rows = records.batch.to_pylist(maps_as_pydicts="strict")
            found += [row | {"$partition": number, "$offset": at} for row, at in zip(rows, offsets, strict=True)]
    return found


@pytest.mark.parametrize(
    ("declared", "formats"),
    [
        ("id BIGINT KEY, page VARCHAR, n INTEGER", "VALUE_FORMAT='DELIMITED'"),
        ("id VARCHAR KEY, region VARCHAR KEY, page VARCHAR, n INTEGER", "KEY_FORMAT='JSON', VALUE_FORMAT='JSON'"),
    ],
    ids=["delimited", "json keys"],
)
def test_formats(spark: SparkSession, kafka: str, tmp_path: Path, declared: str, formats: str) -> None:
    sql = f"""
    CREATE STREAM hits ({declared}) WITH (KAFKA_TOPIC='hits', {formats}, PARTITIONS=2);
    CREATE STREAM few AS SELECT * FROM hits WHERE n < 3 EMIT CHANGES;
    """
    with KafkaPipeline(tmp_path, sql, kafka) as pipeline:
        key: dict[str, Any] = {"ID": -7} if "BIGINT" in declared else {"ID": "i", "REGION": 'e"u,'}
        rows = [key | {"PAGE": page, "N": n, "$time": 9} for page, n in (('/a,"b"', 1), (None, 2), ("/c", 3))]
        pipeline.put("hits", rows)
        pipeline.run(spark, "few")
        found = [{name: row[name] for name in rows[0]} for row in pipeline.records("FEW")]
        assert sorted(found, key=lambda row: row["N"]) == rows[:2]
