"""A topic of a real Kafka, followed by offset."""

from __future__ import annotations

import json
import re
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.log.base import TopicSpec
from tests.collect.listeners import listening
from tests.log.support import VIEWS
from tests.support import wait_for

pytestmark = pytest.mark.slow
START = int(time.time() * 1000) - 60_000
"""A broker deletes what is older than its retention, soon after it has started."""


def create(kafka: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def produce(kafka: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for n in numbers:
        body = json.dumps({"n": n, "pageid": f"/{n}"})
        producer.produce(topic, body, key=f"u{n % 5}", headers={"trace": b"\x01"}, timestamp=START + n)
    producer.produce(topic, b"nonsense", key=b"u0")
    assert producer.flush(60) == 0


def test_every_record_comes_once_with_key_time_and_headers(kafka: str, tmp_path: Path) -> None:
    topic = f"origin-{uuid.uuid4().hex[:8]}"
    create(kafka, topic, 2)
    text = f'type = "kafka"\ntopic = "pageviews"\nbootstrap = "{kafka}"\nsource = "{topic}"\nbatch = 7'
    raw = f'type = "kafka"\ntopic = "bytes"\nbootstrap = "{kafka}"\nsource = "{topic}"\nformat = "bytes"'
    topics = [VIEWS, TopicSpec("bytes", kind="raw")]
    for upper in (40, 80):
        produce(kafka, topic, range(upper - 40, upper))
        with listening(tmp_path, {"pull": text, "raw": raw}, topics) as running:
            rows = running.wait_rows("pageviews", upper)
            assert sorted(row["N"] for row in rows) == list(range(upper))
            assert len(running.wait_rows("bytes", upper + upper // 40)) == upper + upper // 40
            wait_for(lambda count=upper // 40: len(running.letters()) == count, 10, "the letters")  # type: ignore[misc]
            for letter in running.letters():
                # Where it is there: topic, partition, offset.
                assert re.fullmatch(rf"kafka pull {topic}:[01]:\d+", letter["SOURCE"])
    known = {row["N"]: row for row in rows}
    assert (known[7]["USERID"], known[7]["$time"], known[7]["$headers"]) == (
        "u2",
        START + 7,
        {"trace": b"\x01"},
    )


def test_from_now_on_and_a_topic_that_is_not_there(kafka: str, tmp_path: Path) -> None:
    topic = f"origin-{uuid.uuid4().hex[:8]}"
    text = f'type = "kafka"\ntopic = "pageviews"\nbootstrap = "{kafka}"\nsource = "{topic}"\nstart = "latest"'
    with listening(tmp_path, {"pull": text}, [VIEWS]) as running:
        wait_for(lambda: f"no topic `{topic}`" in running.status("pull").detail, 30, "the reason")
        create(kafka, topic, 1)
        running.wait_until("pull")
        produce(kafka, topic, range(3))
        assert sorted(row["N"] for row in running.wait_rows("pageviews", 3)) == [0, 1, 2]
