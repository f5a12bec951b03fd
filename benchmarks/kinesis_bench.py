"""Kinesis's PutRecords and GetRecords, as AWS's clients send them: 500 records of 100 bytes, each call with an
invocation id of its own, so that the index of ids does all its work; beside an endpoint that only reads the body."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx

from benchmarks.http_bench import baseline_server, is_answering, send_each, server_process
from benchmarks.measure import Measure, percentile
from tests.support import free_port, wait_for

CONNECTIONS = 4
RECORDS, RECORD_BYTES = 500, 100
REQUESTS = 600


def run(quick: bool = False) -> list[Measure]:
    count = REQUESTS // 10 if quick else REQUESTS
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        baseline_server() as plain,
    ):
        (Path(folder) / "headrace.toml").write_text("")
        with server_process("headrace.server.main", Path(folder), port):
            wait_for(lambda: is_answering(port, "/healthz"), 30, "the server")
            call(port, "CreateStream", {"StreamName": "bench", "ShardCount": 4})
            body = _body()
            reading, _ = flood(plain, body, count)
            reached, latencies = flood(port, body, count)
            put = _measure("Kinesis PutRecords, 500 records", reached, reading, latencies, "50 k/s")
            return [put, _reading(port, count)]


def _measure(name: str, reached: float, reading: float, latencies: list[float], target: str) -> Measure:
    spread = f"p50 {percentile(latencies, 0.5) * 1000:.1f} ms, p99 {percentile(latencies, 0.99) * 1000:.1f} ms"
    detail = f"{CONNECTIONS} connections, {RECORD_BYTES} bytes a record, {spread}"
    return Measure(name, reached * RECORDS, "records/s", reading * RECORDS, "reading the body only", target, detail)


def _reading(port: int, count: int) -> Measure:
    """Everything that was put, shard after shard, beside the same in pages of the plain API."""
    started, records = time.perf_counter(), 0
    for shard in range(4):
        start = {"StreamName": "bench", "ShardId": f"shardId-{shard:012}", "ShardIteratorType": "TRIM_HORIZON"}
        iterator = call(port, "GetShardIterator", start)["ShardIterator"]
        while page := call(port, "GetRecords", {"ShardIterator": iterator}):
            if not page["Records"]:
                break
            records += len(page["Records"])
            iterator = page["NextShardIterator"]
    kinesis = records / (time.perf_counter() - started)
    started, seen, at = time.perf_counter(), 0, None
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as http:
        while seen < records:
            place: dict[str, str] = {} if at is None else {"at": at}
            page = http.get("/v1/topics/bench/records", params={"limit": 10_000, **place}).json()
            seen, at = seen + len(page["records"]), page["next"]
    plain = seen / (time.perf_counter() - started)
    return Measure("Kinesis GetRecords", kinesis, "records/s", plain, "pages of /v1/topics/…/records")


def call(port: int, action: str, body: object) -> dict[str, list[object]]:
    headers = {"X-Amz-Target": f"Kinesis_20131202.{action}", "Content-Type": "application/x-amz-json-1.1"}
    answer = httpx.post(f"http://127.0.0.1:{port}/", json=body, headers=headers, timeout=60, trust_env=False)
    answer.raise_for_status()
    found: dict[str, list[object]] = answer.json() if answer.content else {}
    return found


def _body() -> bytes:
    records = [
        {
            "PartitionKey": f"user {random.randrange(10_000)}",
            "Data": base64.b64encode(os.urandom(RECORD_BYTES)).decode(),
        }
        for _ in range(RECORDS)
    ]
    return json.dumps({"StreamName": "bench", "Records": records}).encode()


def requests(body: bytes) -> Iterator[bytes]:
    """For ever, each with an id of its own."""
    for _ in itertools.count():
        head = (
            "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-amz-json-1.1\r\n"
            f"X-Amz-Target: Kinesis_20131202.PutRecords\r\namz-sdk-invocation-id: {uuid4()}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        yield head.encode() + body


def flood(port: int, body: bytes, count: int) -> tuple[float, list[float]]:
    """Requests per second over a few connections, and how long each took."""
    send_each(port, itertools.islice(requests(body), 10), [])
    latencies: list[list[float]] = [[] for _ in range(CONNECTIONS)]
    threads = [
        threading.Thread(target=send_each, args=(port, itertools.islice(requests(body), count // CONNECTIONS), one))
        for one in latencies
    ]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [each for one in latencies for each in one]
    return len(taken) / (time.perf_counter() - started), taken
