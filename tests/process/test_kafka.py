"""The same definitions on Kafka: what the queries give, however the input is cut, whoever is killed when."""

from __future__ import annotations

import random
import textwrap
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.coordinate.events import TopicForked
from headrace.coordinate.functions import deploy_functions
from headrace.coordinate.topics import sink_spec
from headrace.functions.describe import describe
from headrace.log.base import PUBLISHER_PREFIX, BatchIdentity, Log, Route, TopicSpec
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC
from headrace.log.kafka import KafkaLog
from headrace.log.registry.schemas import RegistrySchemas
from headrace.process.base import LayerSpec
from headrace.process.batch import run_batch
from headrace.process.kafka.place import KafkaPlace
from headrace.process.kafka.schemas import worker_schemas
from headrace.process.layer import BatchLayer
from headrace.sql.layered import layered_query
from tests.kafka import kafka_settings
from tests.process.pipeline import Pipeline, Row, batch_of
from tests.process.test_python_functions import FUNCTIONS, ORDERS

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
        self.kafka = KafkaLog(self.settings, SystemClock())
        self.kafka.schemas = RegistrySchemas.of_log(self.kafka)
        return self.kafka, KafkaPlace(self.kafka)


def shown(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows)


def test_a_stream_of_every_kind_of_column(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    sql = STREAM + "CREATE STREAM dear AS SELECT *, price * 2 AS twice FROM views WHERE price > 1 EMIT CHANGES;"
    with KafkaPipeline(tmp_path, sql, kafka) as pipeline:
        pipeline.put(
            "views",
            [
                {
                    "USERID": "ü",
                    "PAGEID": "/a",
                    "PRICE": Decimal("1.50"),
                    "$time": 5,
                    "$id": "e1",
                    "$headers": {"trace": b"7"},
                    "TAGS": ["x", None],
                },
                {"USERID": "u", "PAGEID": None, "PRICE": Decimal("0.5"), "$time": 6},
                {"USERID": None, "PAGEID": "/b", "PRICE": Decimal("9.99"), "AT": 1_700_000_000_123_000, "$time": 7},
            ],
        )
        pipeline.run(spark, "dear")
        records = pipeline.records("DEAR")
        assert shown(records, "PAGEID", "$time") == [("/a", 5), ("/b", 7)]
        # Those of the record, without Headrace's own: the event's id is not the derived record's.
        assert [row["$headers"] for row in sorted(records, key=lambda row: row["$time"])] == [{"trace": b"7"}, None]
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


@pytest.mark.parametrize(("max_rows", "records"), [(100_000, 40), (11, 16)])
def test_lateness_does_not_depend_on_where_batches_are_cut(
    spark: SparkSession, kafka: str, tmp_path: Path, max_rows: int, records: int
) -> None:
    chance = random.Random(4)
    with KafkaPipeline(tmp_path, STREAM + PER_WINDOW, kafka) as pipeline:
        for part in range(3):
            pipeline.put("views", adversarial(chance, records), partition=part)
        pipeline.run(spark, "per_window", max_rows)
        # A second run continues: its first records are judged by what came before them.
        for part in range(3):
            pipeline.put("views", adversarial(chance, records // 2), partition=part)
        pipeline.run(spark, "per_window", max_rows)
        counts, late = model(addressed(pipeline, "views"))
        assert {(row["PAGEID"], row["$window_start"]): row["VIEWS"] for row in pipeline.table("PER_WINDOW")} == counts
        ledger = pipeline.records(pipeline.spec("per_window").late_topic or "")
        assert {(row["PARTITION"], row["OFFSET"], row["WINDOW_START"]) for row in ledger} == late
        assert len(ledger) == len(late) > records // 4
        # The same plan over the same records, as a batch.
        [query] = [pipeline.spec("per_window").plan]
        found = run_batch(spark, pipeline.where, pipeline.topic, query).collect()
        assert {(row["PAGEID"], row["WINDOWSTART"]): row["VIEWS"] for row in found} == counts


def test_a_query_goes_on_in_a_fork_of_what_it_reads(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    """Its checkpoint is of before, with records of the original yet to read. What others write to the original since is
    not its business; lateness goes by what came before the fork."""
    chance = random.Random(4)
    sql = STREAM + "CREATE STREAM seen AS SELECT * FROM views;" + PER_WINDOW.replace("FROM views", "FROM seen")
    with KafkaPipeline(tmp_path, sql, kafka) as pipeline:

        def see(count: int) -> None:
            for part in range(3):
                pipeline.put("views", adversarial(chance, count), partition=part)
            pipeline.run(spark, "seen")

        see(12)
        pipeline.run(spark, "per_window")
        see(8)
        writer = pipeline.spec("seen")
        pipeline.log.fork_topic("SEEN", "SEEN.v1", [(writer.id, writer.version)])
        # The producer that wrote so far is shut out, as that of an engine is.
        pipeline.kafka._batches._transactors.clear()
        pipeline.catalog.append([TopicForked("SEEN", "SEEN.v1")])
        rows = batch_of(pipeline.log.topic("SEEN"), [{"USERID": f"u{n}", "PAGEID": "/z", "$time": 1} for n in range(9)])
        pipeline.log.stage("p", 0, 0, [Route("SEEN", {name: name for name in rows.schema.names})], iter([rows]))
        pipeline.log.commit("p", [(0, 0)], BatchIdentity(PUBLISHER_PREFIX + "SEEN", 1, "publisher", 0, "{}"))
        see(8)
        # The first batch ends within the original's records, others are in both, or in the fork alone.
        pipeline.run(spark, "per_window", max_rows=9)
        see(4)
        pipeline.run(spark, "per_window")
        counts, late = model(addressed(pipeline, "SEEN.v1"))
        assert {(row["PAGEID"], row["$window_start"]): row["VIEWS"] for row in pipeline.table("PER_WINDOW")} == counts
        assert sum(counts.values()) + len(late) == 3 * (12 + 8 + 8 + 4)
        assert {page for page, _ in counts} == {"/x", "/y"}
        ledger = pipeline.records(pipeline.spec("per_window").late_topic or "")
        assert {(row["PARTITION"], row["OFFSET"], row["WINDOW_START"]) for row in ledger} == late
        assert len(ledger) == len(late) > 10
        found = run_batch(spark, pipeline.where, pipeline.topic, pipeline.spec("per_window").plan).collect()
        assert {(row["PAGEID"], row["WINDOWSTART"]): row["VIEWS"] for row in found} == counts


def test_a_batch_layer_in_stretches_judges_lateness_as_the_whole_does(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    chance = random.Random(9)
    with KafkaPipeline(tmp_path, STREAM + PER_WINDOW, kafka) as pipeline:
        for part in range(3):
            pipeline.put("views", adversarial(chance, 40), partition=part)
        producer = Producer({"bootstrap.servers": kafka})
        for broken in (b"{", b"}"):
            producer.produce(pipeline.kafka.kafka_name("views"), broken, partition=0, timestamp=1)
            producer.flush()
            pipeline.put("views", adversarial(chance, 10), partition=0)
        snapshot, spec = pipeline.log.snapshot(), pipeline.spec("per_window")
        ends = {number: end.end for number, end in enumerate(snapshot.ends["views"])}
        partial = layered_query(replace(spec.plan, sink=replace(spec.plan.sink, topic="layer"))).partial
        pipeline.log.create_topic(sink_spec(partial.sink))
        layer = LayerSpec(
            "BATCH_1",
            partial,
            {"views": ends},
            {"views": ends},
            spec.late_topic,
            folder=tmp_path / "kept",
        )
        # More arrives meanwhile, which is none of its business.
        pipeline.put("views", adversarial(chance, 10), partition=1)
        while (next_ := BatchLayer(spark, pipeline.where, pipeline.topic, layer).stretches.next(30)) is not None:
            BatchLayer(spark, pipeline.where, pipeline.topic, layer).keep(next_)
        # Stretches without a dead letter have no file for them.
        assert len(list((tmp_path / "kept").glob("*.letters"))) <= 2
        for _ in range(2):
            BatchLayer(spark, pipeline.where, pipeline.topic, layer).commit()
        before = [row for row in addressed(pipeline, "views") if row["$offset"] < ends[row["$partition"]]]
        # What cannot be decoded has no page.
        counts, late = model([row for row in before if row["PAGEID"] is not None])
        rows = pipeline.records("layer")
        assert {(row["PAGEID"], row["$window_start"]): row["PART_0"] for row in rows} == counts
        assert len(rows) == len(counts)
        ledger = pipeline.records(spec.late_topic or "")
        assert {(row["PARTITION"], row["OFFSET"], row["WINDOW_START"]) for row in ledger} == late
        assert len(ledger) == len(late) > 10
        assert len(pipeline.records(DEAD_LETTERS_TOPIC)) == 2


def addressed(pipeline: Pipeline, topic: str) -> list[Row]:
    found: list[Row] = []
    for number, ends in enumerate(pipeline.log.snapshot().ends[topic]):
        for records in pipeline.log.read(topic, number, ends.start, ends.end):
            offsets = records.offsets or range(records.first_offset, records.next_offset)
            rows = records.batch.to_pylist(maps_as_pydicts="strict")
            found += [row | {"$partition": number, "$offset": at} for row, at in zip(rows, offsets, strict=True)]
    return found


FORMATS = {
    "delimited": ("id BIGINT KEY", "VALUE_FORMAT='DELIMITED'"),
    "json": ("id VARCHAR KEY, region VARCHAR KEY", "KEY_FORMAT='JSON', VALUE_FORMAT='JSON'"),
    "avro": ("id VARCHAR KEY", "FORMAT='AVRO'"),
    "protobuf": ("id BIGINT KEY", "VALUE_FORMAT='PROTOBUF'"),
}
DECLARED = "page VARCHAR, n INTEGER, price DECIMAL(6,2), at TIMESTAMP, tags ARRAY<VARCHAR>"


def test_formats(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    """Keys and values in every format, in and out; what is there is read through Python's codecs as it is elsewhere."""
    statements = []
    for name, (key, formats) in FORMATS.items():
        columns = DECLARED if name != "delimited" else "page VARCHAR, n INTEGER, price DECIMAL(6,2)"
        statements += [
            f"CREATE STREAM {name} ({key}, {columns}) WITH (KAFKA_TOPIC='{name}', {formats}, PARTITIONS=2);",
            f"CREATE STREAM few_{name} AS SELECT * FROM {name} WHERE n < 3 EMIT CHANGES;",
        ]
    with KafkaPipeline(tmp_path, "".join(statements), kafka) as pipeline:
        wanted = {}
        for name, (key, _) in FORMATS.items():
            id_: dict[str, Any] = {"ID": -7} if "BIGINT" in key else {"ID": "i"}
            if "region" in key:
                id_["REGION"] = 'e"u,'
            more = {} if name == "delimited" else {"AT": 1_700_000_000_123_000, "TAGS": ["x", "y"]}
            rows = [
                id_ | {"PAGE": page, "N": n, "PRICE": Decimal("1.50"), "$time": 9} | more
                for page, n in (('/a,"b"', 1), ("ü", 2), ("/c", 3))
            ]
            pipeline.put(name, rows)
            wanted[name] = [{k: v for k, v in row.items() if k != "AT"} for row in rows[:2]]
        pipeline.run_all(spark, [f"few_{name}" for name in FORMATS])
        for name in FORMATS:
            records = pipeline.records(f"FEW_{name.upper()}")
            found = [{key: row[key] for key in wanted[name][0]} for row in records]
            assert sorted(found, key=lambda row: row["N"]) == wanted[name], name
            if name != "delimited":
                assert {row["AT"].isoformat() for row in records} == {"2023-11-14T22:13:20.123000+00:00"}


def test_what_cannot_be_decoded_is_a_dead_letter(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    """Written by another program. It does not stop the query, is not counted, and is in the box once, however often the
    query is started."""
    sql = """
    CREATE STREAM plain (k VARCHAR KEY, n INTEGER) WITH (KAFKA_TOPIC='plain', VALUE_FORMAT='JSON');
    CREATE STREAM framed (k VARCHAR KEY, n INTEGER) WITH (KAFKA_TOPIC='framed', VALUE_FORMAT='AVRO');
    CREATE TABLE plains AS SELECT k, COUNT(*) AS c FROM plain GROUP BY k;
    CREATE TABLE framings AS SELECT k, COUNT(*) AS c FROM framed
      WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 HOUR) GROUP BY k;
    """
    poison: dict[str, list[bytes | None]] = {
        "plain": [b"not json", b"[1]", b'{"n": "text"}', b"null"],
        "framed": [b"", b"\x00\x00\x00\x03\xe7\x02", b"\x07", None],
    }
    with KafkaPipeline(tmp_path, sql, kafka) as pipeline:
        producer = Producer({"bootstrap.servers": kafka})
        for topic, payloads in poison.items():
            pipeline.put(topic, [{"K": "a", "N": 1, "$time": 5}])
            for payload in payloads:
                name = pipeline.settings.kafka.prefix + topic
                producer.produce(name, key=b"a", value=payload, timestamp=5, headers=[("headrace-id", b"e1")])
            producer.flush()
            pipeline.put(topic, [{"K": "a", "N": 2, "$time": 6}])
        for _ in range(2):
            pipeline.run_all(spark, ["plains", "framings"])
        # `null` is a row without a value in JSON; no value at all is a deletion, which is not counted.
        assert [row["C"] for row in pipeline.table("PLAINS")] == [3]
        assert [row["C"] for row in pipeline.table("FRAMINGS")] == [2]
        letters = pipeline.records("_dead_letters")
        found = {(row["TOPIC"], row["PAYLOAD"]): row for row in letters}
        assert len(letters) == len(found) == 6
        assert found["plain", b"[1]"]["REASON"] == "value: a JSON object is expected"
        assert found["plain", b'{"n": "text"}']["REASON"] == "value: `n` does not fit INTEGER"
        assert "schema 999" in found["framed", poison["framed"][1]]["REASON"]
        letter = found["framed", b"\x07"]
        assert (letter["SOURCE"], letter["EVENT_ID"]) == ("query CTAS_FRAMINGS_2 0:3", "e1")


def test_raw_topics_in_any_format_and_schemas_that_come_later(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    sql = """
    CREATE STREAM lines (k VARCHAR KEY, page VARCHAR, n INTEGER) WITH (KAFKA_TOPIC='bytes', VALUE_FORMAT='DELIMITED');
    CREATE STREAM paged AS SELECT * FROM lines;
    CREATE STREAM framed (k VARCHAR KEY, n INTEGER) WITH (KAFKA_TOPIC='framed', VALUE_FORMAT='AVRO');
    CREATE STREAM passed AS SELECT * FROM framed;
    """
    with KafkaPipeline(tmp_path, "", kafka) as pipeline:
        pipeline.log.create_topic(TopicSpec("bytes", kind="raw"))
        pipeline.executor.execute(sql)
        pipeline.put("bytes", [{"KEY": b"a", "VALUE": b'"/x,y",3'}, {"KEY": b"b", "VALUE": b"too,many,3"}])
        pipeline.put("framed", [{"K": "a", "N": 1}])
        # Registered after the query knows the topic's schemas, by whoever writes with it.
        schemas = worker_schemas(pipeline.kafka, "", pipeline.topic("framed"))
        assert schemas is not None
        text = '{"type":"record","name":"R","fields":[{"name":"N","type":["null","int"]},{"name":"M","type":"int"}]}'
        assert pipeline.kafka.schemas is not None
        later = pipeline.kafka.schemas.register("another", "AVRO", text)
        assert later not in schemas.known
        assert schemas.by_id(later).id == later
        pipeline.run_all(spark, ["paged", "passed"])
        assert [(row["K"], row["PAGE"], row["N"]) for row in pipeline.records("PAGED")] == [("a", "/x,y", 3)]
        assert [row["N"] for row in pipeline.records("PASSED")] == [1]
        [letter] = pipeline.records("_dead_letters")
        assert letter["PAYLOAD"] == b"too,many,3"


def test_functions_in_python(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    """Of all three kinds; a call that fails is a dead letter here too."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "mine.py").write_text(textwrap.dedent(FUNCTIONS))
    source = "CREATE STREAM orders (id BIGINT KEY, customer VARCHAR, amount DOUBLE, tags VARCHAR) WITH (PARTITIONS=2);"
    with KafkaPipeline(tmp_path, source, kafka) as pipeline:
        deployed = deploy_functions(tmp_path, pipeline.catalog, describe)
        assert [problem for one in deployed for problem in one.problems] == []
        pipeline.executor.execute(
            """CREATE STREAM inverted AS SELECT id, INVERSE(amount) AS i FROM orders;
            CREATE STREAM spread AS SELECT id, WORDS(tags) AS word FROM orders;
            CREATE TABLE longest_tags AS SELECT customer, LONGEST(tags) AS l FROM orders GROUP BY customer;"""
        )
        pipeline.put("ORDERS", ORDERS)
        for sink in ("inverted", "spread", "longest_tags"):
            pipeline.run(spark, sink)
        assert shown(pipeline.records("INVERTED"), "ID", "I") == [
            (1, 0.25),
            (2, None),
            (3, None),
            (4, 1 / 13),
            (5, None),
        ]
        assert shown(pipeline.records("SPREAD"), "ID", "WORD") == [(1, "x"), (1, "y"), (5, "z")]
        assert shown(pipeline.table("LONGEST_TAGS"), "CUSTOMER") == [("a",), ("b",)]
        reasons = Counter(letter["REASON"].partition(" failed")[0] for letter in pipeline.records("_dead_letters"))
        assert reasons == {"function `inverse`": 2, "function `words`": 1}
