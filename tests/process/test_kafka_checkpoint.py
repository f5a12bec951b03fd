"""What a query on Kafka reads from Spark's checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import UsageError
from headrace.process.kafka.checkpoint import last_done, last_planned, planned_batch
from headrace.process.kafka.times import Note, read_note
from headrace.process.progress import parse_offsets

BATCH = """v2
{"batchWatermarkMs":80,"batchTimestampMs":1794796811070,"conf":{}}
floor:{"floor":86}
input:{"shop.views":{"0":7,"1":9}}
"""


def write(checkpoint: Path, folder: str, number: int, text: str = "v1\n{}") -> None:
    (checkpoint / folder).mkdir(exist_ok=True)
    (checkpoint / folder / str(number)).write_text(text)
    (checkpoint / folder / f".{number}.crc").write_bytes(b"")


def test_where_the_next_batch_begins(tmp_path: Path) -> None:
    assert last_done(tmp_path) is None
    assert last_planned(tmp_path) is None
    write(tmp_path, "offsets", 9, BATCH)
    write(tmp_path, "offsets", 10, BATCH.replace('"0":7', '"0":8').replace("86", "90"))
    write(tmp_path, "commits", 9)
    done, planned = last_done(tmp_path), last_planned(tmp_path)
    assert done is not None
    assert planned is not None
    assert (done.number, done.ends("shop.views"), done.ends("other")) == (9, {0: 7, 1: 9}, {})
    assert (planned.number, planned.ends("shop.views"), planned.floor) == (10, {0: 8, 1: 9}, 90)
    assert list(planned.sources()) == ["floor", "input"]
    with pytest.raises(UsageError, match="has no batch 11"):
        planned_batch(tmp_path, 11)


def test_offsets_of_either_log() -> None:
    assert parse_offsets('{"partitions": {"0": 12}, "digest": "x"}') == {0: 12}
    assert parse_offsets({"views": {"0": 3, "1": 4}}) == {0: 3, 1: 4}
    assert parse_offsets(None) == parse_offsets("{}") == {}


@pytest.mark.parametrize("text", ["", '{"offsets": {"0": 1}, "ti', "[]"])
def test_a_note_that_is_torn_is_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "note.json"
    assert read_note(file) is None
    file.write_text(text)
    assert read_note(file) is None
    file.write_text(json.dumps({"offsets": {"0": 6}, "times": {"0": 102}}))
    assert read_note(file) == Note({0: 6}, {0: 102})
