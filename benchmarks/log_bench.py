"""The local log: durable appends in large and in single batches, through the socket in transactions, and a scan.

The baseline of a write is the same bytes in the same number of groups with plain writes and fdatasync; the baseline of
the scan is the same rows in one Arrow file, mapped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from benchmarks.measure import Measure
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.base import Append, Appended, Log, Route, TopicConfig, TopicSpec
from headrace.log.local import LocalClient, LocalLog
from headrace.types import BIGINT, VARCHAR, Column

COLUMNS = (Column("PAGEID", VARCHAR), Column("N", BIGINT))
EVENTS = TopicSpec("events", key=(Column("USERID", VARCHAR),), value=COLUMNS, partitions=2)
COUNTS = TopicSpec("counts", key=(Column("USERID", VARCHAR),), value=COLUMNS, partitions=2, role="derived")
FOR_LARGE, FOR_SINGLE = 32, 512
"""Appends that may be on their way at once."""


def run(quick: bool = False) -> list[Measure]:
    rows, singles = (500_000, 5_000) if quick else (5_000_000, 40_000)
    return [
        _appends("durable appends, batches of 10,000", rows, 10_000, FOR_LARGE, aim="≥ 2 M records/s"),
        _appends("durable appends, batches of 1", singles, 1, FOR_SINGLE, aim="thousands/s"),
        _transactions(rows),
        _scan(rows),
        *_compressed(rows // 2),
        _open_after_crash(rows),
    ]


def make_rows(count: int) -> pa.RecordBatch:
    """Records of about 100 bytes."""
    numbers = np.arange(count)
    return pa.RecordBatch.from_pydict(
        {
            "USERID": [f"user_{n % 10_000:06}" for n in numbers.tolist()],
            "PAGEID": [f"/page/{n % 500:04}/" + "x" * 48 for n in numbers.tolist()],
            "N": numbers,
            "$time": 1_700_000_000_000 + numbers,
        }
    )


@contextmanager
def opened(serve: bool = False) -> Iterator[LocalLog]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        log = LocalLog(Path(folder) / "log", LogSettings(min_free_bytes=0), SystemClock(), serve=serve)
        try:
            for spec in (EVENTS, COUNTS):
                log.create_topic(spec)
            yield log
        finally:
            log.close()


def append_all(log: Log, batch: pa.RecordBatch, times: int, outstanding: int) -> float:
    """Seconds until everything is durable."""
    waiting: deque[Future[list[Appended]]] = deque()
    started = time.perf_counter()
    for _ in range(times):
        waiting.append(log.append([Append("events", batch)]))
        if len(waiting) >= outstanding:
            waiting.popleft().result()
    while waiting:
        waiting.popleft().result()
    return time.perf_counter() - started


def _appends(name: str, rows: int, size: int, outstanding: int, aim: str) -> Measure:
    batch = make_rows(size)
    with opened() as log:
        append_all(log, batch, max(1, outstanding // 4), outstanding)
        groups, before = log.commits(), log.stats("events").bytes
        seconds = append_all(log, batch, rows // size, outstanding)
        groups, written = log.commits() - groups, log.stats("events").bytes - before
        plain = _plain_writes(log.folder, written, groups)
    detail = f"{written / rows:.0f} bytes each on disk, {groups} groups"
    return Measure(name, rows / seconds, "records/s", rows / plain, "plain write + fdatasync", aim, detail)


def _plain_writes(folder: Path, size: int, groups: int) -> float:
    """The same bytes in as many pieces, each synced."""
    piece = os.urandom(max(1, size // groups))
    descriptor = os.open(folder / "baseline", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    started = time.perf_counter()
    for _ in range(groups):
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fdatasync(descriptor)
    seconds = time.perf_counter() - started
    os.close(descriptor)
    return seconds


def _transactions(rows: int) -> Measure:
    """As Spark's sink does it: batches through the socket, one commit."""
    size = 20_000
    batch = make_rows(size)
    routes = [Route("counts", {name: name for name in batch.schema.names})]
    with opened(serve=True) as log:
        client = LocalClient(log.folder)
        before, started = log.stats("counts").bytes, time.perf_counter()
        for number in range(max(1, rows // size // 10)):
            client.stage(f"t{number}", 0, 0, routes, iter([batch] * 10))
            client.commit(f"t{number}", [(0, 0)])
        seconds = time.perf_counter() - started
        written, count = log.stats("counts").bytes - before, log.snapshot().arrival
        plain = _plain_writes(log.folder, written, max(1, rows // size // 10))
        client.close()
    detail = "200,000 rows each, through the socket"
    return Measure("transactions", count / seconds, "rows/s", count / plain, "plain write + fdatasync", detail=detail)


def _scan(rows: int) -> Measure:
    batch = make_rows(10_000)
    with opened() as log:
        append_all(log, batch, rows // 10_000, FOR_LARGE)
        file = log.folder / "baseline.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            for _ in range(rows // 10_000):
                writer.write_batch(batch)
        seconds = min(_scan_log(log) for _ in range(3))
        plain = min(_scan_file(file, rows) for _ in range(3))
    return Measure("scan", rows / seconds, "rows/s", rows / plain, "mapped Arrow file", detail="sum of one column")


def _open_after_crash(rows: int) -> Measure:
    """The writer is gone without a word. What opening costs must not depend on what is stored."""
    seconds = {}
    for count in (rows // 10, rows):
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
            writer = subprocess.run([sys.executable, "-c", _CRASH, folder, str(count)], check=True, capture_output=True)
            started = time.perf_counter()
            LocalLog(Path(folder) / "log", LogSettings(min_free_bytes=0), SystemClock()).close()
            seconds[count] = time.perf_counter() - started
            stored = int(writer.stdout)
    detail = f"{stored // 1_000_000} MB stored, opened and closed"
    small = seconds[rows // 10]
    return Measure("open after a crash", seconds[rows], "s", small, "with a tenth of it", "≤ 2 s", detail)


_CRASH = """
import os, sys
from pathlib import Path
from benchmarks.log_bench import EVENTS, append_all, make_rows
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.local import LocalLog
log = LocalLog(Path(sys.argv[1]) / "log", LogSettings(min_free_bytes=0), SystemClock(), serve=False)
log.create_topic(EVENTS)
append_all(log, make_rows(10_000), int(sys.argv[2]) // 10_000, 32)
print(log.stats("events").bytes, flush=True)
os._exit(0)
"""


def _compressed(rows: int) -> Iterator[Measure]:
    """Words and numbers as events have them, not one letter repeated."""
    draw = np.random.default_rng(7)
    numbers = draw.integers(0, 10**9, 10_000)
    batch = make_rows(10_000).set_column(1, "PAGEID", pa.array([f"/item/{n:09}/{n * 7919 % 1000}" for n in numbers]))
    sizes: dict[str, tuple[int, float, float]] = {}
    compressions: tuple[Literal["none", "lz4", "zstd"], ...] = ("none", "lz4", "zstd")
    for compression in compressions:
        with opened() as log:
            log.alter_topic(replace(EVENTS, config=TopicConfig(compression=compression)))
            written = append_all(log, batch, rows // 10_000, FOR_LARGE)
            sizes[compression] = (log.stats("events").bytes, written, min(_scan_log(log) for _ in range(2)))
    plain = sizes["none"]
    for name in ("lz4", "zstd"):
        size, written, scanned = sizes[name]
        detail = f"{size / rows:.0f} bytes a record against {plain[0] / rows:.0f}"
        yield Measure(f"appends, {name}", rows / written, "records/s", rows / plain[1], "not compressed", detail=detail)
        yield Measure(f"scan, {name}", rows / scanned, "rows/s", rows / plain[2], "not compressed")


def _scan_log(log: Log) -> float:
    started = time.perf_counter()
    total = 0
    for partition in range(EVENTS.partitions):
        for records in log.read("events", partition, 0, columns=["N"]):
            total += int(records.batch.column(0).to_numpy().sum())
    assert total
    return time.perf_counter() - started


def _scan_file(file: Path, rows: int) -> float:
    started = time.perf_counter()
    with pa.memory_map(str(file)) as source, pa.ipc.open_file(source) as reader:
        total = sum(
            int(reader.get_batch(number).column("N").to_numpy().sum()) for number in range(reader.num_record_batches)
        )
    assert total
    return time.perf_counter() - started
