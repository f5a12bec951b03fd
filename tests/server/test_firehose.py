"""Firehose, spoken by AWS's own client: gathered by size and time into files, or passed on to a topic."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError

from headrace.coordinate.firehose.definition import EXTENDED, plan_of
from tests.server.running import Running, running_server
from tests.server.test_kinesis import aws, error_of
from tests.support import wait_for

FUNCTIONS = """
from headrace import transform

@transform
def shout(records):
    return [None if b"quiet" in r.value else r.value.decode().upper() for r in records]

@transform
def pick(records):
    return [{"id": record.value.decode(), "name": "n", "age": int(record.value)} for record in records]
"""
ROLE = "arn:aws:iam::000000000000:role/any"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("firehose")
    (folder / "functions").mkdir()
    (folder / "functions" / "shape.py").write_text(FUNCTIONS)
    with running_server(folder) as running:
        yield running


@pytest.fixture(scope="module")
def firehose(server: Running) -> Any:
    return aws(server.port, "firehose")


def create(firehose: Any, name: str, seconds: int = 0, **more: Any) -> None:
    destination = {
        "RoleARN": ROLE,
        "BucketARN": "arn:aws:s3:::lake",
        "Prefix": f"{name}/",
        "BufferingHints": {"SizeInMBs": 1, "IntervalInSeconds": seconds},
        **more,
    }
    firehose.create_delivery_stream(DeliveryStreamName=name, ExtendedS3DestinationConfiguration=destination)


def lambda_(name: str) -> dict[str, Any]:
    parameter = {"ParameterName": "LambdaArn", "ParameterValue": f"arn:aws:lambda:us-east-1:0:function:{name}"}
    return {"Type": "Lambda", "Parameters": [parameter]}


def delimiter(text: str) -> dict[str, Any]:
    return {"Type": "AppendDelimiterToRecord", "Parameters": [{"ParameterName": "Delimiter", "ParameterValue": text}]}


DELIMITED = delimiter("\\n")


def files(server: Running, name: str) -> list[Path]:
    folder = server.services.project.data / "buckets" / "lake" / name
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def shown(server: Running, name: str) -> dict[str, Any]:
    """As the API, the console and the command tell it."""
    found = server.http.get("/v1/deliveries").json()["deliveries"]
    [one] = [one["status"] | {"lag": one["lag"]} for one in found if one["status"]["name"] == name]
    return dict(one)


def put(firehose: Any, name: str, values: list[bytes]) -> None:
    answer = firehose.put_record_batch(DeliveryStreamName=name, Records=[{"Data": value} for value in values])
    assert answer["FailedPutCount"] == 0
    assert len({one["RecordId"] for one in answer["RequestResponses"]}) == len(values)


def test_records_become_files_in_dated_folders(firehose: Any, server: Running) -> None:
    create(
        firehose,
        "plain",
        CompressionFormat="GZIP",
        ProcessingConfiguration={"Enabled": True, "Processors": [DELIMITED]},
    )
    put(firehose, "plain", [b"one", b"two"])
    firehose.put_record(DeliveryStreamName="plain", Record={"Data": b"three"})
    wait_for(
        lambda: b"".join(gzip.decompress(f.read_bytes()) for f in files(server, "plain")).count(b"\n") == 3, 30, "files"
    )
    lines = b"".join(gzip.decompress(file.read_bytes()) for file in files(server, "plain")).splitlines()
    assert sorted(lines) == [b"one", b"three", b"two"]
    within = files(server, "plain")[0].relative_to(server.services.project.data / "buckets" / "lake")
    assert re.fullmatch(r"plain/\d{4}/\d\d/\d\d/\d\d/plain-1-[\d-]{19}-[0-9a-f]{16}\.gz", str(within))


def test_folders_are_named_by_the_zone_that_was_asked_for() -> None:
    """And a prefix may hold something random, which is the same when a file is written again."""
    asked = {"BucketARN": "arn:aws:s3:::lake", "CustomTimeZone": "Asia/Tokyo"}
    late = int(datetime(2026, 12, 31, 20, tzinfo=UTC).timestamp() * 1000)
    for prefix, named in (
        ("a/", "a/2027/01/01/05/n-1-2027-01-01-05-00-00-0123456789abcdef"),
        ("day=!{timestamp:yyyy-MM-dd}/", "day=2027-01-01/n-1-2027-01-01-05-00-00-0123456789abcdef"),
        ("!{firehose:random-string}/", "56789abcdef/2027/01/01/05/n-1-2027-01-01-05-00-00-0123456789abcdef"),
    ):
        files = plan_of(EXTENDED, asked | {"Prefix": prefix}).files
        assert files is not None
        assert files.file("n", 1, late, "0123456789abcdef") == named


def test_a_file_is_due_by_size_before_its_time(firehose: Any, server: Running) -> None:
    create(firehose, "large", seconds=900)
    for number in range(3):
        put(firehose, "large", [bytes([97 + number]) * 600_000])
    wait_for(lambda: bool(files(server, "large")), 30, "a file")
    assert files(server, "large")[0].read_bytes() == b"a" * 600_000 + b"b" * 600_000
    wait_for(lambda: shown(server, "large")["buffered"] == 1, 30, "what waits")
    found = shown(server, "large")
    assert (found["state"], found["records"], found["files"], found["lag"]) == ("running", 2, 1, 1)
    assert (found["buffered_bytes"], found["last_file"]) == (
        600_000,
        str(files(server, "large")[0].relative_to(server.services.project.folder)),
    )
    assert (found["source"], found["to"], found["format"]) == ("", "lake/large/", "plain")
    # Asked to wait less, it writes the rest.
    described = firehose.describe_delivery_stream(DeliveryStreamName="large")["DeliveryStreamDescription"]
    assert described["DeliveryStreamStatus"] == "ACTIVE"
    firehose.update_destination(
        DeliveryStreamName="large",
        CurrentDeliveryStreamVersionId=described["VersionId"],
        DestinationId=described["Destinations"][0]["DestinationId"],
        ExtendedS3DestinationUpdate={"BufferingHints": {"SizeInMBs": 1, "IntervalInSeconds": 0}},
    )
    wait_for(lambda: len(files(server, "large")) == 2, 30, "the rest")
    assert files(server, "large")[1].read_bytes() == b"c" * 600_000


def test_a_transform_changes_and_drops_records(firehose: Any, server: Running) -> None:
    create(firehose, "loud", ProcessingConfiguration={"Enabled": True, "Processors": [lambda_("shout"), DELIMITED]})
    put(firehose, "loud", [b"hello", b"quiet please", b"\xff", b"world"])
    wait_for(lambda: bool(files(server, "loud")), 60, "a file")
    assert sorted(b"".join(file.read_bytes() for file in files(server, "loud")).splitlines()) == [b"HELLO", b"WORLD"]
    # It cannot shout what is no text: a dead letter.
    letters = server.http.get("/v1/topics/_firehose.loud/dead-letters").json()["dead_letters"]
    assert [letter["bytes"] for letter in letters] == ["/w=="]
    assert (shown(server, "loud")["transform"], shown(server, "loud")["rejected"]) == ("shout", 1)
    # Mended, it is delivered, once.
    for accepted in (1, 0):
        mended = {"set": {"payload": "'mended'"}}
        done = server.http.post("/v1/topics/_firehose.loud/dead-letters/redrive", json=mended).json()
        assert (done["matched"], done["accepted"]) == (accepted, accepted)
    wait_for(lambda: any(b"MENDED" in file.read_bytes() for file in files(server, "loud")), 60, "the file")


def test_json_becomes_parquet(firehose: Any, server: Running) -> None:
    parquet = {"Enabled": True, "OutputFormatConfiguration": {"Serializer": {"ParquetSerDe": {}}}}
    create(firehose, "rows", DataFormatConversionConfiguration=parquet)
    create(
        firehose,
        "typed",
        DataFormatConversionConfiguration=parquet | {"SchemaConfiguration": {"TableName": "users"}},
    )
    for name in ("rows", "typed"):
        put(firehose, name, [b'{"id": "a", "age": 3}', b"nonsense", b'{"id": "b", "age": 4, "name": "bea"}'])
        wait_for(lambda name=name: bool(files(server, name)), 30, "a file")  # type: ignore[misc]
    tables = [row for file in files(server, "rows") for row in pq.read_table(file).to_pylist()]
    assert tables == [{"id": "a", "age": 3, "name": None}, {"id": "b", "age": 4, "name": "bea"}]
    assert pq.read_table(files(server, "typed")[0]).schema.field("AGE").type == "int32"


def test_no_record_keeps_the_others_from_their_file(firehose: Any, server: Running) -> None:
    """What Parquet has no type for is text; what cannot be read at all is a dead letter."""
    parquet = {"Enabled": True, "OutputFormatConfiguration": {"Serializer": {"ParquetSerDe": {}}}}
    create(firehose, "odd", seconds=1, DataFormatConversionConfiguration=parquet)
    odd = [b'{"n": 1, "a": {}}', b'{"n": 2, "b": 99999999999999999999}', b'{"n": "\xff"}', b"[" * 5000, b'{"n": 3}']
    put(firehose, "odd", odd)
    wait_for(lambda: shown(server, "odd")["records"] == 3, 30, "the file")
    found = [row for file in files(server, "odd") for row in pq.read_table(file).to_pylist()]
    assert sorted((row["n"], row.get("a"), row.get("b")) for row in found) == [
        (1, "{}", None),
        (2, None, "99999999999999999999"),
        (3, None, None),
    ]
    letters = server.http.get("/v1/topics/_firehose.odd/dead-letters").json()["dead_letters"]
    assert sorted(letter["reason"].partition("failed: ")[2] for letter in letters) == [
        "the record is nested too deeply",
        "the record is not UTF-8",
    ]
    assert (shown(server, "odd")["state"], shown(server, "odd")["rejected"]) == ("running", 2)


def test_a_topic_can_be_the_destination(firehose: Any, server: Running) -> None:
    firehose.create_delivery_stream(
        DeliveryStreamName="onward",
        HttpEndpointDestinationConfiguration={
            "EndpointConfiguration": {"Url": "topic:users"},
            "S3Configuration": {"RoleARN": ROLE, "BucketARN": "arn:aws:s3:::lake"},
            "ProcessingConfiguration": {"Enabled": True, "Processors": [lambda_("pick")]},
        },
    )
    put(firehose, "onward", [str(number).encode() for number in range(5)])
    wait_for(lambda: len(server.events("users")) == 5, 60, "the topic")
    assert {event["value"]["age"] for event in server.events("users")} == set(range(5))


def test_a_stream_can_be_the_source(firehose: Any, server: Running) -> None:
    kinesis = aws(server.port)
    kinesis.create_stream(StreamName="fed", ShardCount=2)
    arn = kinesis.describe_stream_summary(StreamName="fed")["StreamDescriptionSummary"]["StreamARN"]
    firehose.create_delivery_stream(
        DeliveryStreamName="from-stream",
        DeliveryStreamType="KinesisStreamAsSource",
        KinesisStreamSourceConfiguration={"KinesisStreamARN": arn, "RoleARN": ROLE},
        S3DestinationConfiguration={
            "RoleARN": ROLE,
            "BucketARN": "arn:aws:s3:::lake",
            "Prefix": "from-stream/!{timestamp:yyyy}/",
            "BufferingHints": {"SizeInMBs": 1, "IntervalInSeconds": 0},
        },
    )
    kinesis.put_records(
        StreamName="fed", Records=[{"Data": f"<{n}>".encode(), "PartitionKey": f"{n}"} for n in range(20)]
    )
    wait_for(lambda: sum(f.read_bytes().count(b"<") for f in files(server, "from-stream")) == 20, 30, "files")
    assert files(server, "from-stream")[0].parent.name.isdecimal()
    assert (
        error_of(firehose.put_record, DeliveryStreamName="from-stream", Record={"Data": b""})
        == "InvalidArgumentException"
    )


def test_delivery_streams_are_listed_tagged_and_deleted(firehose: Any, server: Running) -> None:
    create(firehose, "gone")
    firehose.tag_delivery_stream(DeliveryStreamName="gone", Tags=[{"Key": "a", "Value": "1"}, {"Key": "b"}])
    firehose.untag_delivery_stream(DeliveryStreamName="gone", TagKeys=["b"])
    assert firehose.list_tags_for_delivery_stream(DeliveryStreamName="gone")["Tags"] == [{"Key": "a", "Value": "1"}]
    assert "gone" in firehose.list_delivery_streams(Limit=100)["DeliveryStreamNames"]
    firehose.delete_delivery_stream(DeliveryStreamName="gone")
    assert error_of(firehose.describe_delivery_stream, DeliveryStreamName="gone") == "ResourceNotFoundException"
    assert "_firehose.gone" not in [topic.name for topic in server.services.log.topics()]


@pytest.mark.parametrize(
    "wrong",
    [
        {"BucketARN": "arn:aws:s3:::../etc"},
        {"Prefix": "../out/"},
        {"Prefix": "/abs/"},
        {"Prefix": "!{partitionKeyFromQuery:x}/"},
        {"BufferingHints": {"SizeInMBs": 1000, "IntervalInSeconds": 0}},
        {"CompressionFormat": "Snappy"},
        {"ProcessingConfiguration": {"Enabled": True, "Processors": [lambda_("nobody")]}},
        {"ProcessingConfiguration": {"Enabled": True, "Processors": [{"Type": "Decompression", "Parameters": []}]}},
        {"DynamicPartitioningConfiguration": {"Enabled": True}},
        {"S3BackupMode": "Enabled"},
        {"CustomTimeZone": "Mars/Olympus"},
        {"EncryptionConfiguration": {"KMSEncryptionConfig": {"AWSKMSKeyARN": "arn:aws:kms:us-east-1:0:key/k"}}},
        {"ProcessingConfiguration": {"Enabled": True, "Processors": [delimiter("\\x")]}},
    ],
)
def test_what_is_not_done_here_is_refused(firehose: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as raised:
        create(firehose, "wrong", **wrong)
    assert raised.value.response["Error"]["Code"] == "InvalidArgumentException"
    assert "wrong" not in json.dumps(firehose.list_delivery_streams(Limit=100)["DeliveryStreamNames"])


def test_a_stream_made_while_the_server_starts_has_one_writer(firehose: Any, server: Running) -> None:
    create(firehose, "early")
    server.services.deliveries.start()
    put(firehose, "early", [b"<once>"])
    wait_for(lambda: bool(files(server, "early")), 30, "a file")
    threads = [thread.name for thread in threading.enumerate()]
    assert threads.count("headrace-delivery-early") == 1
