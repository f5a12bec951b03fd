"""Kinesis, spoken by AWS's own client."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import cbor2
import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from headrace.access.owner import find_owner_key
from headrace.clock import SystemClock
from headrace.log.writing.reshape import MD5_PLACES, md5_place
from headrace.server.collector import create_app, open_intake
from headrace.server.services import Intake
from tests.server.running import PAGEVIEWS, Running, running_server

QUOTA = 'type = "kinesis"\ntopic = "slow"\nshard_records_per_second = 5\n'


SHED = """
type = "kinesis"
topic = "scores"
[shed]
policy = "priority"
field = "score"
events_per_second = 0.001
burst_seconds = 2000
"""
SCORES = "CREATE STREAM scores (score INTEGER) WITH (KAFKA_TOPIC='scores', VALUE_FORMAT='JSON', PARTITIONS=1);"
NODE = Path(__file__).parents[1] / "clients" / "node"
LARGE = b"x" * 1024 * 1024


def aws(port: int, service: str = "kinesis", key: str = "test", secret: str = "test") -> Any:
    return boto3.client(
        service,
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="eu-central-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"max_attempts": 1}, proxies={}),
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("kinesis")
    (folder / "collectors").mkdir()
    (folder / "collectors" / "slow.toml").write_text(QUOTA)
    (folder / "collectors" / "scores.toml").write_text(SHED)
    with running_server(folder, sql=PAGEVIEWS + SCORES) as running:
        yield running


@pytest.fixture(scope="module")
def kinesis(server: Running) -> Any:
    return aws(server.port)


def read_shard(kinesis: Any, stream: str, shard: str, **start: Any) -> list[dict[str, Any]]:
    """All records of a shard from a place on."""
    how = start or {"ShardIteratorType": "TRIM_HORIZON"}
    iterator = kinesis.get_shard_iterator(StreamName=stream, ShardId=shard, **how)["ShardIterator"]
    found: list[dict[str, Any]] = []
    while iterator:
        page = kinesis.get_records(ShardIterator=iterator, Limit=7)
        found += page["Records"]
        if not page["Records"] and page["MillisBehindLatest"] == 0:
            return found
        iterator = page.get("NextShardIterator")
    return found


def error_of(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    return str(raised.value.response["Error"]["Code"])


def test_a_stream_is_made_described_listed_and_deleted(kinesis: Any) -> None:
    kinesis.create_stream(StreamName="made", ShardCount=3, Tags={"team": "web"})
    kinesis.get_waiter("stream_exists").wait(StreamName="made")
    described = kinesis.describe_stream(StreamName="made")["StreamDescription"]
    assert (described["StreamStatus"], described["RetentionPeriodHours"]) == ("ACTIVE", 24)
    assert [shard["ShardId"] for shard in described["Shards"]] == [f"shardId-{n:012}" for n in range(3)]
    ranges = [shard["HashKeyRange"] for shard in described["Shards"]]
    edges = [(int(one["StartingHashKey"]), int(one["EndingHashKey"])) for one in ranges]
    assert (edges[0][0], edges[2][1]) == (0, MD5_PLACES - 1)
    assert all(before[1] + 1 == after[0] for before, after in pairwise(edges))
    by_arn = kinesis.describe_stream_summary(StreamARN=described["StreamARN"])["StreamDescriptionSummary"]
    assert (by_arn["StreamName"], by_arn["OpenShardCount"]) == ("made", 3)
    assert abs(by_arn["StreamCreationTimestamp"] - datetime.now(UTC)) < timedelta(minutes=5)
    assert "made" in kinesis.list_streams()["StreamNames"]
    assert error_of(kinesis.create_stream, StreamName="made", ShardCount=3) == "ResourceInUseException"
    kinesis.delete_stream(StreamName="made")
    assert error_of(kinesis.describe_stream, StreamName="made") == "ResourceNotFoundException"


def test_records_come_back_as_they_were_put(kinesis: Any) -> None:
    kinesis.create_stream(StreamName="clicks", ShardCount=2)
    sent = [(f"user {n % 7}", f"click {n}".encode()) for n in range(40)]
    before = datetime.now(UTC) - timedelta(seconds=1)
    answer = kinesis.put_records(
        StreamName="clicks", Records=[{"PartitionKey": key, "Data": data} for key, data in sent]
    )
    assert answer["FailedRecordCount"] == 0
    shards = [f"shardId-{n:012}" for n in range(2)]
    found = {shard: read_shard(kinesis, "clicks", shard) for shard in shards}
    got = sorted((one["PartitionKey"], one["Data"]) for records in found.values() for one in records)
    assert got == sorted(sent)
    for number, shard in enumerate(shards):
        half = MD5_PLACES // 2
        assert all(md5_place(one["PartitionKey"].encode()) // half == number for one in found[shard])
        numbers = [int(one["SequenceNumber"]) for one in found[shard]]
        assert numbers == sorted(set(numbers))
        answered = [int(one["SequenceNumber"]) for one in answer["Records"] if one["ShardId"] == shard]
        assert answered == numbers
        assert all(before < one["ApproximateArrivalTimestamp"] <= datetime.now(UTC) for one in found[shard])
    middle = found[shards[0]][3]["SequenceNumber"]
    after = read_shard(
        kinesis, "clicks", shards[0], ShardIteratorType="AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=middle
    )
    at = read_shard(kinesis, "clicks", shards[0], ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber=middle)
    assert (after, at) == (found[shards[0]][4:], found[shards[0]][3:])
    assert read_shard(kinesis, "clicks", shards[0], ShardIteratorType="LATEST") == []
    since = read_shard(kinesis, "clicks", shards[1], ShardIteratorType="AT_TIMESTAMP", Timestamp=before)
    assert since == found[shards[1]]
    later = datetime.now(UTC) + timedelta(seconds=5)
    assert read_shard(kinesis, "clicks", shards[1], ShardIteratorType="AT_TIMESTAMP", Timestamp=later) == []


def test_an_explicit_hash_key_decides_the_shard(kinesis: Any) -> None:
    kinesis.create_stream(StreamName="placed", ShardCount=4)
    for number in range(4):
        hash_key = str(number * MD5_PLACES // 4 + 5)
        put = kinesis.put_record(StreamName="placed", PartitionKey="k", Data=b"d", ExplicitHashKey=hash_key)
        assert put["ShardId"] == f"shardId-{number:012}"
    assert (
        error_of(kinesis.put_record, StreamName="placed", PartitionKey="k", Data=b"d", ExplicitHashKey=str(MD5_PLACES))
        == "InvalidArgumentException"
    )


def test_shards_are_split_and_merged_and_their_children_named(kinesis: Any) -> None:
    kinesis.create_stream(StreamName="shaped", ShardCount=2)
    for n in range(20):
        kinesis.put_record(StreamName="shaped", PartitionKey=f"k{n}", Data=b"before")
    at = MD5_PLACES // 4 + 99
    kinesis.split_shard(StreamName="shaped", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(at))
    shards = kinesis.list_shards(StreamName="shaped")["Shards"]
    assert [shard.get("ParentShardId") for shard in shards] == [None, None, *["shardId-000000000000"] * 2]
    assert shards[3]["HashKeyRange"]["StartingHashKey"] == str(at)
    assert "EndingSequenceNumber" in shards[0]["SequenceNumberRange"]
    assert "EndingSequenceNumber" not in shards[3]["SequenceNumberRange"]
    iterator = kinesis.get_shard_iterator(
        StreamName="shaped", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    page = kinesis.get_records(ShardIterator=iterator)
    assert "NextShardIterator" not in page or page["NextShardIterator"] is None
    assert [child["ShardId"] for child in page["ChildShards"]] == ["shardId-000000000002", "shardId-000000000003"]
    assert max(int(r["SequenceNumber"]) for r in page["Records"]) < int(
        shards[2]["SequenceNumberRange"]["StartingSequenceNumber"]
    )
    kinesis.merge_shards(
        StreamName="shaped", ShardToMerge="shardId-000000000003", AdjacentShardToMerge="shardId-000000000001"
    )
    merged = kinesis.list_shards(StreamName="shaped")["Shards"][4]
    assert {merged["ParentShardId"], merged["AdjacentParentShardId"]} == {
        "shardId-000000000001",
        "shardId-000000000003",
    }
    assert (
        error_of(
            kinesis.merge_shards,
            StreamName="shaped",
            ShardToMerge="shardId-000000000000",
            AdjacentShardToMerge="shardId-000000000001",
        )
        == "InvalidArgumentException"
    )
    open_ = kinesis.list_shards(StreamName="shaped", ShardFilter={"Type": "AT_LATEST"})["Shards"]
    assert [shard["ShardId"] for shard in open_] == ["shardId-000000000002", "shardId-000000000004"]
    long_ago = kinesis.list_shards(StreamName="shaped", ShardFilter={"Type": "AT_TIMESTAMP", "Timestamp": 1000})
    assert [shard["ShardId"] for shard in long_ago["Shards"]] == [f"shardId-{n:012}" for n in range(2)]


def test_a_stream_is_brought_to_a_number_of_even_shards(kinesis: Any) -> None:
    kinesis.create_stream(StreamName="scaled", ShardCount=3)
    for target in (5, 2):
        kinesis.update_shard_count(StreamName="scaled", TargetShardCount=target, ScalingType="UNIFORM_SCALING")
        open_ = kinesis.list_shards(StreamName="scaled", ShardFilter={"Type": "AT_LATEST"})["Shards"]
        starts = sorted(int(shard["HashKeyRange"]["StartingHashKey"]) for shard in open_)
        assert starts == [number * MD5_PLACES // target for number in range(target)]
    listed: list[str] = []
    token: dict[str, Any] = {"StreamName": "scaled"}
    while token:
        page = kinesis.list_shards(**token, MaxResults=4)
        listed += [shard["ShardId"] for shard in page["Shards"]]
        token = {"NextToken": page["NextToken"]} if "NextToken" in page else {}
    described = kinesis.describe_stream(StreamName="scaled")["StreamDescription"]["Shards"]
    assert listed == [shard["ShardId"] for shard in described]


def test_retention_tags_and_mode(kinesis: Any) -> None:
    kinesis.create_stream(StreamName="kept", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    assert len(kinesis.list_shards(StreamName="kept")["Shards"]) == 4
    kinesis.increase_stream_retention_period(StreamName="kept", RetentionPeriodHours=48)
    assert (
        error_of(kinesis.increase_stream_retention_period, StreamName="kept", RetentionPeriodHours=30)
        == "InvalidArgumentException"
    )
    kinesis.decrease_stream_retention_period(StreamName="kept", RetentionPeriodHours=24)
    kinesis.add_tags_to_stream(StreamName="kept", Tags={"a": "1", "b": "2"})
    kinesis.remove_tags_from_stream(StreamName="kept", TagKeys=["a"])
    assert kinesis.list_tags_for_stream(StreamName="kept")["Tags"] == [{"Key": "b", "Value": "2"}]
    arn = kinesis.describe_stream_summary(StreamName="kept")["StreamDescriptionSummary"]["StreamARN"]
    kinesis.update_stream_mode(StreamARN=arn, StreamModeDetails={"StreamMode": "PROVISIONED"})
    summary = kinesis.describe_stream_summary(StreamName="kept")["StreamDescriptionSummary"]
    assert (summary["StreamModeDetails"]["StreamMode"], summary["RetentionPeriodHours"]) == ("PROVISIONED", 24)
    assert kinesis.describe_limits()["OpenShardCount"] >= 4


def test_a_repeated_call_lands_once_and_gets_the_same_numbers(kinesis: Any, server: Running) -> None:
    """What an SDK does after an answer was lost: the same call with the same invocation id."""
    kinesis.create_stream(StreamName="once", ShardCount=2)
    body = {"StreamName": "once", "Records": [{"PartitionKey": f"k{n}", "Data": "ZGF0YQ=="} for n in range(6)]}
    headers = {"X-Amz-Target": "Kinesis_20131202.PutRecords", "amz-sdk-invocation-id": "7c3e-try"}
    first = server.http.post("/", json=body, headers=headers).json()
    kinesis.split_shard(StreamName="once", ShardToSplit="shardId-000000000000", NewStartingHashKey="77")
    again = server.http.post("/", json=body, headers=headers).json()
    assert first == again
    assert first["FailedRecordCount"] == 0
    shards = kinesis.list_shards(StreamName="once")["Shards"]
    assert sum(len(read_shard(kinesis, "once", shard["ShardId"])) for shard in shards) == 6


def test_a_topic_with_columns_takes_json_and_keeps_the_rest_as_dead_letters(kinesis: Any, server: Running) -> None:
    good = [b'{"userid": "ann", "pageid": "p1"}', b'{"userid": "bob", "pageid": "p2", "new": [1]}']
    answer = kinesis.put_records(
        StreamName="pageviews",
        Records=[{"PartitionKey": "x", "Data": data} for data in (good[0], b"not json", good[1])],
    )
    assert answer["FailedRecordCount"] == 1
    assert answer["Records"][1]["ErrorCode"] == "InvalidArgumentException"
    [letter] = server.dead_letters("pageviews")
    assert letter["text"] == "not json"
    for one, data in zip((answer["Records"][0], answer["Records"][2]), good, strict=True):
        [record, *_] = read_shard(
            kinesis,
            "pageviews",
            one["ShardId"],
            ShardIteratorType="AT_SEQUENCE_NUMBER",
            StartingSequenceNumber=one["SequenceNumber"],
        )
        assert json.loads(data).items() <= {k.lower(): v for k, v in json.loads(record["Data"]).items()}.items()


def test_a_shard_above_its_rate_refuses_single_records(kinesis: Any, server: Running) -> None:
    kinesis.create_stream(StreamName="slow", ShardCount=1)
    answer = kinesis.put_records(
        StreamName="slow", Records=[{"PartitionKey": "k", "Data": f"{n}".encode()} for n in range(20)]
    )
    failed = [one for one in answer["Records"] if "ErrorCode" in one]
    # On a busy machine more of a second may pass in between than one would think.
    assert 1 <= len(failed) == answer["FailedRecordCount"] <= 15
    assert {one["ErrorCode"] for one in failed} == {"ProvisionedThroughputExceededException"}
    taken = read_shard(kinesis, "slow", "shardId-000000000000")
    assert len(taken) == 20 - len(failed)

    [counted] = [gate.counters.status() for gate in server.services.gates.all() if gate.name == "slow"]
    assert (counted.received, counted.accepted, counted.refused) == (20, 20 - len(failed), len(failed))


def test_a_record_that_is_shed_is_answered_as_throttled(kinesis: Any, server: Running) -> None:
    """It may come again under the id it has. That it failed, or was stored, would be a lie."""
    events = (b'{"score": 1}', b"[", b'{"score": 9}', b'{"score": 5}')
    answer = kinesis.put_records(StreamName="scores", Records=[{"PartitionKey": "k", "Data": data} for data in events])
    codes = [one.get("ErrorCode") for one in answer["Records"]]
    throttled = "ProvisionedThroughputExceededException"
    assert codes == [throttled, throttled, None, None]
    assert [event["value"]["score"] for event in server.events("scores")] == [9, 5]
    assert error_of(kinesis.put_record, StreamName="scores", PartitionKey="k", Data=b'{"score": 99}') == throttled


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("put_record", {"StreamName": "nobody", "PartitionKey": "k", "Data": b""}, "ResourceNotFoundException"),
        ("put_record", {"StreamName": "clicks", "PartitionKey": "k" * 257, "Data": b""}, "ValidationException"),
        (
            "put_record",
            {"StreamName": "clicks", "PartitionKey": "k", "Data": b"x" * 1048577},
            "InvalidArgumentException",
        ),
        ("put_record", {"StreamName": "_catalog", "PartitionKey": "k", "Data": b""}, "ResourceNotFoundException"),
        ("get_records", {"ShardIterator": "bm90IG9uZQ=="}, "InvalidArgumentException"),
        (
            "get_shard_iterator",
            {"StreamName": "clicks", "ShardId": "shardId-000000000009", "ShardIteratorType": "LATEST"},
            "ResourceNotFoundException",
        ),
        (
            "get_shard_iterator",
            {
                "StreamName": "clicks",
                "ShardId": "shardId-000000000000",
                "ShardIteratorType": "AT_SEQUENCE_NUMBER",
                "StartingSequenceNumber": "12",
            },
            "InvalidArgumentException",
        ),
        ("create_stream", {"StreamName": "many", "ShardCount": 100_000}, "LimitExceededException"),
        ("create_stream", {"StreamName": "_own", "ShardCount": 1}, "ValidationException"),
        (
            "split_shard",
            {"StreamName": "clicks", "ShardToSplit": "shardId-000000000000", "NewStartingHashKey": "0"},
            "InvalidArgumentException",
        ),
        (
            "start_stream_encryption",
            {"StreamName": "clicks", "EncryptionType": "KMS", "KeyId": "k"},
            "InvalidArgumentException",
        ),
        (
            "register_stream_consumer",
            {"StreamARN": "arn:aws:kinesis:x:0:stream/clicks", "ConsumerName": "c"},
            "InvalidArgumentException",
        ),
    ],
)
def test_errors_have_the_names_clients_know(kinesis: Any, name: str, arguments: dict[str, Any], code: str) -> None:
    assert error_of(getattr(kinesis, name), **arguments) == code


def test_cbor_is_read_and_answered(server: Running, kinesis: Any) -> None:
    """As Java's client writes it: bytes as they are, moments in milliseconds."""

    def call(action: str, body: Any) -> Any:
        headers = {"X-Amz-Target": f"Kinesis_20131202.{action}", "Content-Type": "application/x-amz-cbor-1.1"}
        answer = server.http.post("/", content=cbor2.dumps(body), headers=headers)
        assert answer.headers["content-type"] == "application/x-amz-cbor-1.1"
        milliseconds = {1: lambda value, immutable: value}
        return cbor2.loads(answer.content, semantic_decoders=milliseconds) if answer.content else None

    call("CreateStream", {"StreamName": "binary", "ShardCount": 1})
    call("PutRecord", {"StreamName": "binary", "PartitionKey": "k", "Data": b"\x00\xff"})
    shard = {"StreamName": "binary", "ShardId": "shardId-000000000000", "ShardIteratorType": "AT_TIMESTAMP"}
    iterator = call("GetShardIterator", shard | {"Timestamp": cbor2.CBORTag(1, 1_000)})["ShardIterator"]
    [record] = call("GetRecords", {"ShardIterator": iterator})["Records"]
    assert record["Data"] == b"\x00\xff"
    assert abs(record["ApproximateArrivalTimestamp"] - datetime.now(UTC).timestamp() * 1000) < 600_000
    assert call("DescribeStream", {"StreamName": "none"})["__type"] == "ResourceNotFoundException"
    assert call("PutRecord", {"StreamName": "binary"})["__type"] == "ValidationException"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"StreamName": 1}', b"\xff", b"[" * 10_000])
@pytest.mark.parametrize("kind", ["application/x-amz-json-1.1", "application/x-amz-cbor-1.1"])
def test_bad_bodies_are_errors_of_the_client(server: Running, body: bytes, kind: str) -> None:
    headers = {"X-Amz-Target": "Kinesis_20131202.PutRecord", "Content-Type": kind}
    assert server.http.post("/", content=body, headers=headers).status_code == 400
    assert server.http.post("/", content=b"{}", headers={"X-Amz-Target": "Kinesis.No"}).status_code == 400
    assert server.http.post("/", content=b"{}").status_code == 404


def test_with_keys_requests_have_to_be_signed_with_one(tmp_path: Path) -> None:
    toml = (
        '[[auth.keys]]\nname = "writer"\nkey = "secret-writer-0123"\nrole = "write"\n'
        '[[auth.keys]]\nname = "boss"\nkey = "secret-admin-01234"\nrole = "admin"\n'
    )
    with running_server(tmp_path, toml, key="secret-admin-01234") as server:
        aws(server.port, key="boss", secret="secret-admin-01234").create_stream(StreamName="s", ShardCount=1)
        writer = aws(server.port, key="secret-writer-0123", secret="secret-writer-0123")
        writer.put_record(StreamName="s", PartitionKey="k", Data=b"d")
        assert error_of(writer.delete_stream, StreamName="s") == "AccessDeniedException"
        for key, secret in (("writer", "wrong"), ("nobody", "secret-writer-0123"), ("boss", "secret-writer-0123")):
            wrong = aws(server.port, key=key, secret=secret)
            assert error_of(wrong.list_streams) == "UnrecognizedClientException"
        plain = server.http.post("/", content=b"{}", headers={"X-Amz-Target": "Kinesis_20131202.ListStreams"})
        assert plain.json()["__type"] == "MissingAuthenticationTokenException"


@pytest.mark.slow
def test_the_javascript_client_speaks_it_over_cleartext_http_2(tmp_path: Path) -> None:
    """Signed, too: what was signed as `host` comes as `:authority`."""
    toml = '[[auth.keys]]\nname = "node"\nkey = "secret-node-012345"\nrole = "admin"\n'
    with running_server(tmp_path, toml, key="secret-node-012345") as server:
        command = ["node", "kinesis.js", str(server.port), "node", "secret-node-012345"]
        ran = subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    sent = [*([f"user {n % 11}", f"click {n}"] for n in range(300)), ["one", "more"]]
    assert sorted(said["records"]) == sorted(sent)
    assert (said["status"], said["failed"], said["error"]) == ("ACTIVE", 0, "ResourceNotFoundException")
    assert said["protocol"] == "h2"


def test_a_collector_process_takes_records_and_nothing_else(server: Running, kinesis: Any) -> None:
    """Over the owner's socket; a call that is tried again at the server itself lands once, too."""
    kinesis.create_stream(StreamName="beside", ShardCount=2)
    body = {"StreamName": "beside", "Records": [{"PartitionKey": f"k{n}", "Data": "ZGF0YQ=="} for n in range(6)]}

    def headers(action: str) -> dict[str, str]:
        return {"X-Amz-Target": f"Kinesis_20131202.{action}", "amz-sdk-invocation-id": "beside-1"}

    owner = find_owner_key(server.services.project)

    async def send(http: httpx.AsyncClient, wanted: dict[str, Any], headers: dict[str, str]) -> Any:
        """Signed with the owner's key: without a connection there is no user."""
        request = AWSRequest("POST", "http://127.0.0.1/", headers=headers, data=json.dumps(wanted).encode())
        SigV4Auth(Credentials("owner", owner), "kinesis", "us-east-1").add_auth(request)
        return (await http.post("/", content=request.data, headers=dict(request.headers.items()))).json()

    async def call(intake: Intake) -> tuple[Any, Any, Any]:
        transport = httpx.ASGITransport(create_app(intake))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            put = await send(http, body, headers("PutRecords"))
            shard, at = "shardId-000000000001", str(2**127 + 9)
            kinesis.split_shard(StreamName="beside", ShardToSplit=shard, NewStartingHashKey=at)
            more = body | {"Records": [{"PartitionKey": "k1", "Data": ""}]}
            after = await send(http, more, headers("PutRecords") | {"amz-sdk-invocation-id": "2"})
            return put, after, await send(http, {}, headers("ListStreams"))

    with open_intake(server.services.project, SystemClock()) as intake:
        put, after, refused = asyncio.run(call(intake))
    assert put == server.http.post("/", json=body, headers=headers("PutRecords")).json()
    assert (put["FailedRecordCount"], after["FailedRecordCount"]) == (0, 0)
    assert refused["__type"] == "UnknownOperationException"
    shards = kinesis.list_shards(StreamName="beside")["Shards"]
    assert sum(len(read_shard(kinesis, "beside", shard["ShardId"])) for shard in shards) == 7
