"""Kinesis's PutRecords and GetRecords, as AWS's clients send them: 500 records of 100 bytes, each call with an
invocation id of its own, so that the index of ids does all its work; beside an endpoint that only reads the body.

"One core" is the server alone; "two" is the server and a collector process beside it, with half of the connections
each."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx

from benchmarks.http_bench import baseline_server, is_answering, send_each, server_process
from benchmarks.measure import Measure, percentile
from tests.support import free_port, wait_for

CONNECTIONS = 4
RECORDS, RECORD_BYTES = 500, 100
REQUESTS = 600


def run(quick: bool = False) -> Iterator[Measure]:
    count = REQUESTS // 10 if quick else REQUESTS
    ports = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, baseline_server() as plain:
        (Path(folder) / "headrace.toml").write_text("[server]\nworkers = 2\n")
        with (
            server_process("headrace.server.main", Path(folder), ports[0]),
            server_process("headrace.server.collector", Path(folder), ports[1]),
        ):
            for port in ports:
                wait_for(partial(is_answering, port, "/healthz"), 60, "the server")
            call(ports[0], "CreateStream", {"StreamName": "bench", "ShardCount": 4})
            body = _body()
            reading, _ = flood([plain], body, count)
            for cores, used in (("one core", ports[:1]), ("two", ports)):
                reached, latencies = flood(used, body, count)
                yield _measure(f"Kinesis PutRecords, 500 records, {cores}", reached, reading, latencies)
            yield _reading(ports[0])


def _measure(name: str, reached: float, reading: float, latencies: list[float]) -> Measure:
    spread = f"p50 {percentile(latencies, 0.5) * 1000:.1f} ms, p99 {percentile(latencies, 0.99) * 1000:.1f} ms"
    detail = f"{CONNECTIONS} connections, {RECORD_BYTES} bytes a record, {spread}"
    return Measure(name, reached * RECORDS, "records/s", reading * RECORDS, "reading the body only", "50 k/s", detail)


def _reading(port: int) -> Measure:
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


def flood(ports: Sequence[int], body: bytes, count: int) -> tuple[float, list[float]]:
    """Requests per second over a few connections, and how long each took."""
    for port in ports:
        send_each(port, itertools.islice(requests(body), 10), [])
    latencies: list[list[float]] = [[] for _ in range(CONNECTIONS)]
    each = count // CONNECTIONS
    threads = [
        threading.Thread(target=send_each, args=(port, itertools.islice(requests(body), each), one))
        for port, one in zip(itertools.cycle(ports), latencies, strict=False)
    ]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [each for one in latencies for each in one]
    return len(taken) / (time.perf_counter() - started), taken
