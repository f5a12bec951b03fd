"""The same APIs on a log that is Kafka's: what it can do is the same, what it cannot is said."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.server.running import running_server
from tests.server.test_firehose import ROLE
from tests.server.test_kinesis import aws, error_of, read_shard
from tests.support import wait_for

FUNCTION = """
from headrace import on_topic

@on_topic("clicks", to="copied", start="earliest")
def copy(records):
    return [(record.key, record.value) for record in records]
"""


@pytest.mark.slow
def test_streams_functions_and_files_on_kafka(kafka: str, tmp_path: Path) -> None:
    prefix = f"t{uuid.uuid4().hex[:10]}."
    toml = f'[log]\nbackend = "kafka"\n\n[log.kafka]\nbootstrap = "{kafka}"\nprefix = "{prefix}"\n'
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "copy.py").write_text(FUNCTION)
    with running_server(tmp_path, toml, sql="") as server:
        kinesis, firehose = aws(server.port), aws(server.port, "firehose")
        for stream, shards in (("copied", 1), ("clicks", 2)):
            kinesis.create_stream(StreamName=stream, ShardCount=shards)
        sent = [(f"user {n}", f"click {n}".encode()) for n in range(20)]
        answer = kinesis.put_records(
            StreamName="clicks", Records=[{"PartitionKey": key, "Data": data} for key, data in sent]
        )
        assert answer["FailedRecordCount"] == 0
        shards_of = [shard["ShardId"] for shard in kinesis.list_shards(StreamName="clicks")["Shards"]]
        found = {shard: read_shard(kinesis, "clicks", shard) for shard in shards_of}
        got = [(one["PartitionKey"], one["Data"]) for records in found.values() for one in records]
        assert sorted(got) == sorted(sent)
        for shard, records in found.items():
            answered = [one["SequenceNumber"] for one in answer["Records"] if one["ShardId"] == shard]
            assert answered == [one["SequenceNumber"] for one in records]
        wrong = {"StreamName": "clicks", "ShardToSplit": shards_of[0], "NewStartingHashKey": "99"}
        assert error_of(kinesis.split_shard, **wrong) == "InvalidArgumentException"
        wait_for(lambda: len(read_shard(kinesis, "copied", shards_of[0])) == 20, 60, "the function")
        destination = {
            "RoleARN": ROLE,
            "BucketARN": "arn:aws:s3:::lake",
            "BufferingHints": {"SizeInMBs": 1, "IntervalInSeconds": 0},
        }
        firehose.create_delivery_stream(DeliveryStreamName="files", S3DestinationConfiguration=destination)
        firehose.put_record(DeliveryStreamName="files", Record={"Data": b"delivered"})
        lake = server.services.project.data / "buckets" / "lake"
        wait_for(lambda: any(path.name.startswith("files-") for path in lake.rglob("*")), 30, "the file")
        [file] = list(lake.rglob("files-*"))
        assert file.read_bytes() == b"delivered"
