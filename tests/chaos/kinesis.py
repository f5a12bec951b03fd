"""Kinesis through a server that is killed: AWS's own client puts records with its own retries, shards are split and
merged meanwhile, and at the end both ways of reading give what was put: each record once, each key in order. A function
that copies the stream and a delivery stream that writes it to files are killed with it, and have each record once too;
and so has what the JavaScript client and Firehose's put meanwhile.

    python -m tests.chaos.kinesis --records 100000 --seed 7
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.support import free_port, let_pass, wait_for

STREAM = "chaos"
COPY, FROM_NODE = "copied", "from-node"
NODE = Path(__file__).parents[1] / "clients" / "node"
PRODUCERS, BATCH, KEYS = 4, 250, 8
PER_CLIENT = 10
"""Calls of one client: each has a quota of retries that many kills on a slow machine would use up."""
FUNCTION = f"""
from headrace import on_topic

@on_topic("{STREAM}", to="{COPY}", batch=200, start="earliest")
def copy(records):
    return [(record.key, record.value) for record in records]
"""
DELIVERY = {
    "RoleARN": "arn:aws:iam::000000000000:role/any",
    "BucketARN": "arn:aws:s3:::lake",
    "BufferingHints": {"SizeInMBs": 1, "IntervalInSeconds": 1},
    "ProcessingConfiguration": {"Enabled": True, "Processors": [{"Type": "AppendDelimiterToRecord", "Parameters": []}]},
}


@dataclass
class Outcome:
    put: int = 0
    kills: int = 0
    reshaped: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.put > 0 and self.kills > 0 and not self.differences

    def __str__(self) -> str:
        first = f"{self.put} records put, {self.kills} kills, {self.reshaped} splits and merges"
        return "\n".join([first, *self.differences[:20]])


class Server:
    """A server process without Spark, at one port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "headrace.toml").write_text("")
        (folder / "functions").mkdir(exist_ok=True)
        (folder / "functions" / "copy.py").write_text(FUNCTION)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "headrace.server.main", "--project", str(self.folder)]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--port", str(self.port)], stderr=log, stdout=log)
        url = f"http://127.0.0.1:{self.port}/healthz"
        wait_for(lambda: httpx.get(url, trust_env=False).status_code == 200, 30, "the server")

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)

    def client(self, service: str = "kinesis") -> Any:
        return boto3.client(
            service,
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
            # The client's own way to get over a lost server; a restart takes seconds.
            config=Config(retries={"mode": "standard", "total_max_attempts": 60}, read_timeout=20, proxies={}),
        )


def run(folder: Path, records: int, kills: int, seed: int) -> Outcome:
    chance = random.Random(seed)
    server, outcome = Server(folder), Outcome()
    server.start()
    try:
        kinesis = server.client()
        kinesis.create_stream(StreamName=COPY, ShardCount=1)
        kinesis.create_stream(StreamName=STREAM, ShardCount=4)
        arn = kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
        firehose = server.client("firehose")
        firehose.create_delivery_stream(
            DeliveryStreamName="lake",
            DeliveryStreamType="KinesisStreamAsSource",
            KinesisStreamSourceConfiguration={"KinesisStreamARN": arn, "RoleARN": DELIVERY["RoleARN"]},
            ExtendedS3DestinationConfiguration=DELIVERY | {"Prefix": "lake/"},
        )
        stop = threading.Event()
        each = records // PRODUCERS
        kinesis.create_stream(StreamName=FROM_NODE, ShardCount=1)
        firehose.create_delivery_stream(
            DeliveryStreamName="direct", ExtendedS3DestinationConfiguration=DELIVERY | {"Prefix": "direct/"}
        )
        with ThreadPoolExecutor(PRODUCERS + 3) as pool:
            others = [pool.submit(put_with_node, server, each), pool.submit(put_with_firehose, server, each)]
            progress = [0] * PRODUCERS
            reshaping = pool.submit(reshape, server, random.Random(seed + 1), stop, outcome)
            producing = [pool.submit(produce, server, number, each, progress) for number in range(PRODUCERS)]
            try:
                for at in sorted(chance.randrange(records // 10, records * 8 // 10) for _ in range(kills)):
                    wait_for(partial(_come_to, at, progress, producing), 240, f"record {at}")
                    let_pass(chance.random() * 0.05)
                    server.kill()
                    outcome.kills += 1
                    server.start()
                for one in (*producing, *others):
                    one.result()
            finally:
                stop.set()
            reshaping.result()
        outcome.put = each * PRODUCERS
        compare(server, each, outcome)
    finally:
        server.stop()
    return outcome


def _come_to(at: int, progress: list[int], producing: list[Any]) -> bool:
    return sum(progress) >= at or any(future.done() for future in producing)


def produce(server: Server, number: int, count: int, progress: list[int]) -> None:
    """Numbered records under a few keys of its own; a call returns when it is acknowledged."""
    for first in range(0, count, BATCH):
        if first % (BATCH * PER_CLIENT) == 0:
            kinesis = server.client()
        numbers = range(first, min(count, first + BATCH))
        batch = [{"PartitionKey": f"{number}-{n % KEYS}", "Data": f"{number}-{n % KEYS}:{n}".encode()} for n in numbers]
        answer = kinesis.put_records(StreamName=STREAM, Records=batch)
        assert answer["FailedRecordCount"] == 0, answer
        progress[number] = numbers[-1] + 1


def put_with_node(server: Server, count: int) -> None:
    command = ["node", "kinesis_put.js", str(server.port), FROM_NODE, str(count)]
    ran = subprocess.run(command, cwd=NODE, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def put_with_firehose(server: Server, count: int) -> None:
    for first in range(0, count, BATCH):
        if first % (BATCH * PER_CLIENT) == 0:
            firehose = server.client("firehose")
        records = [{"Data": f"direct:{n}".encode()} for n in range(first, min(count, first + BATCH))]
        answer = firehose.put_record_batch(DeliveryStreamName="direct", Records=records)
        assert answer["FailedPutCount"] == 0, answer


def reshape(server: Server, chance: random.Random, stop: threading.Event, outcome: Outcome) -> None:
    """Splits and merges, until told to stop."""
    kinesis = server.client()
    while not stop.is_set():
        try:
            open_ = kinesis.list_shards(StreamName=STREAM, ShardFilter={"Type": "AT_LATEST"})["Shards"]
            ordered = sorted(open_, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))
            place = chance.randrange(len(ordered))
            if len(ordered) < 6 or place == 0:
                low, high = (int(ordered[place]["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
                at = str(chance.randrange(low + 1, high))
                shard = ordered[place]["ShardId"]
                kinesis.split_shard(StreamName=STREAM, ShardToSplit=shard, NewStartingHashKey=at)
            else:
                one, other = ordered[place - 1]["ShardId"], ordered[place]["ShardId"]
                kinesis.merge_shards(StreamName=STREAM, ShardToMerge=one, AdjacentShardToMerge=other)
            outcome.reshaped += 1
        except (ClientError, BotoCoreError):
            # Tried again after a kill, it may have been done the first time: the shard is closed.
            pass
        stop.wait(0.3)


def compare(server: Server, each: int, outcome: Outcome) -> None:
    kinesis = server.client()
    sent = Counter(f"{number}-{n % KEYS}:{n}" for number in range(PRODUCERS) for n in range(each))
    for name, read in (("TRIM_HORIZON", from_the_horizon), ("AFTER_SEQUENCE_NUMBER", page_by_page)):
        found: list[str] = []
        for shard in parents_first(kinesis.list_shards(StreamName=STREAM)["Shards"]):
            found += read(kinesis, STREAM, shard["ShardId"])
        check(name, sent, found, outcome, in_order=True)
    total = sent.total()
    with suppress(TimeoutError):
        wait_for(lambda: len(copied(kinesis)) >= total, 60, "the function")
    check("function", sent, copied(kinesis), outcome, in_order=True)
    for stream, expected in (("lake", sent), ("direct", Counter(f"direct:{n}" for n in range(each)))):
        with suppress(TimeoutError):
            wait_for(partial(_are_delivered, server, stream, expected.total()), 60, "the files")
        check(f"files of {stream}", expected, delivered(server, stream), outcome, in_order=False)
    node = from_the_horizon(kinesis, FROM_NODE, "shardId-000000000000")
    check("node", Counter(f"node:{n}" for n in range(each)), node, outcome, in_order=True)


def check(name: str, sent: Counter[str], found: list[str], outcome: Outcome, in_order: bool) -> None:
    counted = Counter(found)
    outcome.differences += [f"{name}: {one} lost" for one in (sent - counted)]
    outcome.differences += [f"{name}: {one} more than once" for one in (counted - sent)]
    last: dict[str, int] = {}
    for one in found if in_order else ():
        key, _, text = one.partition(":")
        if int(text) <= last.get(key, -1):
            outcome.differences.append(f"{name}: {one} is not in order")
        last[key] = int(text)


def copied(kinesis: Any) -> list[str]:
    return from_the_horizon(kinesis, COPY, "shardId-000000000000")


def _are_delivered(server: Server, stream: str, records: int) -> bool:
    return len(delivered(server, stream)) >= records


def delivered(server: Server, stream: str) -> list[str]:
    bucket = server.folder / ".headrace" / "buckets" / "lake" / stream
    files = [path for path in bucket.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return [line for file in sorted(files) for line in file.read_text().splitlines()]


def parents_first(shards: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    done: set[str] = set()
    left = list(shards)
    while left:
        ready = [one for one in left if {one.get("ParentShardId"), one.get("AdjacentParentShardId")} - {None} <= done]
        assert ready, "shards are each other's parents"
        yield from ready
        done |= {one["ShardId"] for one in ready}
        left = [one for one in left if one["ShardId"] not in done]


def from_the_horizon(kinesis: Any, stream: str, shard: str) -> list[str]:
    iterator = _iterator(kinesis, stream, shard, ShardIteratorType="TRIM_HORIZON")
    found: list[str] = []
    while iterator:
        page = kinesis.get_records(ShardIterator=iterator)
        found += [record["Data"].decode() for record in page["Records"]]
        if not page["Records"] and not page["MillisBehindLatest"]:
            break
        iterator = page.get("NextShardIterator")
    return found


def page_by_page(kinesis: Any, stream: str, shard: str) -> list[str]:
    """Each page from the last number of the one before, as a reader does that remembers no iterators."""
    found: list[str] = []
    start: dict[str, str] = {"ShardIteratorType": "TRIM_HORIZON"}
    while True:
        page = kinesis.get_records(ShardIterator=_iterator(kinesis, stream, shard, **start), Limit=777)["Records"]
        if not page:
            return found
        found += [record["Data"].decode() for record in page]
        start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": page[-1]["SequenceNumber"]}


def _iterator(kinesis: Any, stream: str, shard: str, **start: str) -> str:
    found: str = kinesis.get_shard_iterator(StreamName=stream, ShardId=shard, **start)["ShardIterator"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(Path(folder) / "project", options.records, options.kills, options.seed)
    print(outcome)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
