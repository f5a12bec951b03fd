"""What an evaluation reads of Kafka: up to offsets, with the stream time that each record was judged by."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.errors import DeadlineExceeded
from headrace.log.base import Append, TimestampColumn, TopicSpec
from headrace.log.kafka import KafkaLog
from headrace.log.kafka.formats import STREAM_TIME_HEADER, pack_end
from headrace.sql.source import Source
from headrace.store.cuts import Places, places_now
from headrace.types import BIGINT, VARCHAR, Column
from headrace.views.reading import Reader
from headrace.views.stamping import Stamping
from headrace.views.traced import Traced, Wanted
from tests.kafka import open_kafka
from tests.process.pipeline import batch_of
from tests.support import wait_for

pytestmark = pytest.mark.slow

CLICKS = Source("CLICKS", "stream", "clicks", (Column("K", VARCHAR),), (Column("N", BIGINT),), partitions=2)
TOPIC = TopicSpec("clicks", CLICKS.key, CLICKS.value, 2, role="events")


@pytest.fixture
def log(kafka: str) -> Iterator[KafkaLog]:
    with open_kafka(kafka) as log:
        log.create_topic(TOPIC)
        yield log


def put(log: KafkaLog, *times: int, partition: int = 0) -> None:
    """Each time is the record's number too."""
    rows = [{"K": "ab"[time % 2], "N": time, "$time": time} for time in times]
    log.append([Append("clicks", batch_of(log.topic("clicks"), rows), partition)]).result(30)


def now(log: KafkaLog) -> Places:
    return places_now(log.snapshot(), ["clicks"])


def numbers(rows: list[Traced]) -> list[Any]:
    return [row.values["N"] for row in rows]


def test_records_are_in_the_queries_own_order_and_have_their_stream_times(log: KafkaLog) -> None:
    chance = random.Random(7)
    for _ in range(6):
        for partition in (0, 1):
            put(log, *(chance.randrange(1000) for _ in range(5)), partition=partition)
    expected: list[tuple[tuple[int, int, int], int]] = []
    for partition, ends in enumerate(log.snapshot().ends["clicks"]):
        reached = -1
        for records in log.read("clicks", partition, ends.start, ends.end, ["N"]):
            for offset, row in zip(records.each_offset(), records.batch.to_pylist(), strict=True):
                before, reached = reached, max(reached, row["N"])
                expected.append(((reached, partition, offset), before))
    expected.sort()
    rows = Reader(log, now(log)).read(CLICKS)
    assert [(row.origins[0].partition, row.origins[0].offset) for row in rows] == [at[1:] for at, _ in expected]
    assert [row.stream_time for row in rows] == [before for _, before in expected]
    assert [row.arrival for row in rows] == sorted({row.arrival for row in rows})


def test_a_cut_is_an_offset_of_each_partition(log: KafkaLog) -> None:
    put(log, 10, 20, 15, 40)
    put(log, 12, 30, partition=1)
    places = now(log)["clicks"]
    assert numbers(Reader(log, now(log)).read(CLICKS)) == [10, 12, 20, 15, 30, 40]
    assert numbers(Reader(log, {"clicks": {0: places[0] - 1, 1: 0}}).read(CLICKS)) == [10, 20, 15]
    assert numbers(Reader(log, {}).read(CLICKS)) == []
    begun = Reader(log, now(log), starts={"clicks": {0: 2, 1: 1}}).read(CLICKS)
    assert [(row.values["N"], row.stream_time) for row in begun] == [(15, 20), (30, 12), (40, 20)], (
        "what came before it began has gone by"
    )


def test_a_windows_records_are_found_by_time_until_its_partition_closes_it(log: KafkaLog) -> None:
    put(log, 1, 5, 12, 31, 17, 45, 14)
    put(log, 2, 13, 19, partition=1)
    window = Wanted(since=10, until=20, closes=30)
    assert numbers(Reader(log, now(log)).read(CLICKS, window)) == [12, 13, 19], "17 and 14 came after it was closed"
    offset = next(row.origins[0].offset for row in Reader(log, now(log)).read(CLICKS) if row.values["N"] == 17)
    late = {("clicks", 0): [offset]}
    assert sorted(numbers(Reader(log, now(log), late=late).read(CLICKS, window))) == [12, 13, 17, 19]
    assert numbers(Reader(log, now(log), only=late).read(CLICKS)) == [17]
    # A partition that had been idle is judged by the others; only the ledger knows. It is admitted once, or not at all.
    idle = next(row.origins[0].offset for row in Reader(log, now(log)).read(CLICKS) if row.values["N"] == 19)
    stamps = {("clicks", 1): {idle: 31}}
    assert numbers(Reader(log, now(log), stamps=stamps).read(CLICKS, window)) == [12, 13]
    admitted = Reader(log, now(log), {("clicks", 1): [idle]}, stamps=stamps).read(CLICKS, window)
    assert [(row.values["N"], row.stream_time) for row in admitted] == [(12, -1), (13, -1), (19, 31)]
    places = now(log)["clicks"]
    passed = Stamping(log, lambda records: None).has_passed
    assert [passed("clicks", number, places[number], 31) for number in (0, 1)] == [True, False]
    with pytest.raises(DeadlineExceeded):
        Reader(log, now(log), deadline=0.0).read(CLICKS)


def test_what_others_wrote_counts_as_the_queries_count_it(log: KafkaLog, kafka: str) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    name = log.kafka_name("clicks")

    def send(value: bytes, time: int, **headers: bytes) -> None:
        producer.produce(name, value, b"a", 0, timestamp=time, headers=list(headers.items()))

    send(b'{"N": 1}', 10)
    send(b"no JSON", 50)
    send(b'{"N": 2}', 20)
    # Copied from another log, where stream time was the whole topic's.
    send(b'{"N": 3}', 30, **{STREAM_TIME_HEADER: pack_end(70)})
    send(b'{"N": 4}', 40)
    producer.flush(30)
    wait_for(lambda: now(log)["clicks"][0] == 5, 30, "the records")
    rows = Reader(log, now(log)).read(CLICKS)
    assert [(row.values["N"], row.stream_time) for row in rows] == [(1, -1), (2, 50), (3, 70), (4, 50)], (
        "what is illegible is no record, but its time has passed"
    )


def test_times_in_a_column_may_be_ahead_of_kafkas(log: KafkaLog, kafka: str) -> None:
    stamped = Source("TIMED", "stream", "timed", (Column("K", VARCHAR),), (Column("N", BIGINT),), partitions=1)
    log.create_topic(TopicSpec("timed", stamped.key, stamped.value, 1, timestamp=TimestampColumn("N"), role="events"))
    producer = Producer({"bootstrap.servers": kafka})
    for number, time in ((5_000, 5_000), (12_000, 9_990), (13_000, 13_000)):
        producer.produce(log.kafka_name("timed"), b'{"N": %d}' % number, b"a", 0, timestamp=time)
    producer.flush(30)
    wait_for(lambda: log.snapshot().ends["timed"][0].end == 3, 30, "the records")
    cut, window = places_now(log.snapshot(), ["timed"]), Wanted(since=10_000, until=20_000, closes=20_000)
    assert numbers(Reader(log, cut).read(stamped, window)) == [13_000]
    assert numbers(Reader(log, cut, margin_ms=1_000).read(stamped, window)) == [12_000, 13_000]


def test_a_transaction_under_way_is_noticed(log: KafkaLog) -> None:
    put(log, 1)
    wait_for(lambda: log.at_rest(["clicks"]), 30, "the log to be at rest")
    with log.producer("under-way") as producer:
        producer.begin()
        producer.send("clicks", batch_of(log.topic("clicks"), [{"K": "a", "N": 2, "$time": 2}]), 0)
        wait_for(lambda: not log.at_rest(["clicks"]), 30, "it to be written")
        producer.commit()
    wait_for(lambda: log.at_rest(["clicks"]), 30, "the log to be at rest")
    assert numbers(Reader(log, now(log)).read(CLICKS)) == [1, 2]
