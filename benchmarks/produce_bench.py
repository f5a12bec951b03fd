"""Producers and consumers of the local log: throughput in batches, latency of single records at a steady rate.

The baseline of a producer is plain `append`, of a consumer the bare `read` of the same records: what numbering,
batching, retrying, groups and long poll cost. The baseline of a latency is the disk's own: a plain write and fdatasync
at the same pace in the same run, which on a busy machine alone takes milliseconds at times. Everything is durable
before it is acknowledged.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.log_bench import FOR_LARGE, append_all, make_rows
from benchmarks.measure import Measure, percentile
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.lean import collect_seldom, switch_often
from headrace.log.base import Appended, Log, TopicSpec
from headrace.log.local import LocalClient, LocalLog
from headrace.types import BIGINT, VARCHAR, Column

COLUMNS = (Column("PAGEID", VARCHAR), Column("N", BIGINT))
KEY = (Column("USERID", VARCHAR),)
EVENTS = TopicSpec("events", key=KEY, value=COLUMNS, partitions=2)
TEN = TopicSpec("ten", key=KEY, value=COLUMNS, partitions=10)
SIZE = 10_000
Opener = Callable[[], AbstractContextManager[Log]]
RATE, TICK_S = 10_000, 0.001
FLOOR_BYTES = 4096


def run(quick: bool = False) -> list[Measure]:
    rows, seconds = (500_000, 2.0) if quick else (5_000_000, 15.0)
    collect_seldom()  # as the server does
    switch_often()
    return [
        _produce("producer in the owner, batches of 10,000", rows, owned, aim="≥ 2 M records/s"),
        _produce("producer in another process, batches of 10,000", rows, connected, aim="≥ 2 M records/s"),
        *_latency("in the owner", seconds, owned),
        *_latency("in another process", seconds, connected),
        *_consume(rows),
    ]


def _settings() -> LogSettings:
    return LogSettings(min_free_bytes=0)


@contextmanager
def owned() -> Iterator[Log]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        log = LocalLog(Path(folder) / "log", _settings(), SystemClock(), serve=False)
        try:
            yield log
        finally:
            log.close()


@contextmanager
def connected() -> Iterator[Log]:
    """A client; the owner is another process."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        owner = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.produce_bench", folder], stdout=subprocess.PIPE, stdin=subprocess.PIPE
        )
        assert owner.stdout is not None
        assert owner.stdin is not None
        owner.stdout.readline()
        log = LocalClient(Path(folder) / "log")
        try:
            yield log
        finally:
            log.close()
            owner.stdin.close()
            owner.wait()
            owner.stdout.close()


def serve(folder: Path) -> None:
    """Own a log until the other side closes our input."""
    collect_seldom()
    switch_often()
    log = LocalLog(folder / "log", _settings(), SystemClock())
    print("ready", flush=True)
    sys.stdin.read()
    log.close()


def _produce(name: str, rows: int, open_log: Opener, aim: str) -> Measure:
    batch = make_rows(SIZE)
    with open_log() as log:
        log.create_topic(EVENTS)
        append_all(log, batch, 10, FOR_LARGE)
        plain = append_all(log, batch, rows // SIZE, FOR_LARGE)
        with log.producer(linger_ms=1) as producer:
            started = time.perf_counter()
            for _ in range(rows // SIZE):
                producer.send("events", batch)
            producer.flush(120)
            seconds = time.perf_counter() - started
    return Measure(
        name, rows / seconds, "records/s", rows / plain, "plain append", aim, f"{batch.nbytes // SIZE} bytes"
    )


def _latency(where: str, seconds: float, open_log: Opener) -> Iterator[Measure]:
    """Single records at a steady rate, each to one of ten partitions; how long until each is durable."""
    singles = [make_rows(1) for _ in range(100)]
    took: list[float] = []
    floor = _floor(seconds / 2)
    with open_log() as log:
        log.create_topic(TEN)
        with log.producer(linger_ms=0.5) as producer:
            sent: deque[Future[Appended]] = deque()
            for number in range(2000):
                sent.append(producer.send("ten", singles[number % 100], number % 10))
            producer.flush()
            started = time.perf_counter()
            for tick in range(int(seconds / TICK_S)):
                due = started + tick * TICK_S
                if (early := due - time.perf_counter()) > 0:
                    time.sleep(early)
                for number in range(int(RATE * TICK_S)):
                    future = producer.send("ten", singles[number], number % 10)
                    future.add_done_callback(partial(_note, took, due))
            producer.flush()
            rate = len(took) / (time.perf_counter() - started)
    floor += _floor(seconds / 2)
    for share, aim in ((0.5, ""), (0.99, "≤ 5 ms")):
        name = f"produce p{share * 100:.0f}, {where}"
        plain = percentile(floor, share) * 1000
        detail = f"{rate:.0f} records/s, 10 partitions"
        yield Measure(name, percentile(took, share) * 1000, "ms", plain, "write + fdatasync", aim, detail)


def _floor(seconds: float) -> list[float]:
    """How long each plain write takes, one begun at about every tick. What is due does not queue: a log gathers."""
    took = []
    with tempfile.TemporaryFile(prefix="headrace-bench-") as file:
        started = time.perf_counter()
        for tick in range(int(seconds / TICK_S)):
            due = started + tick * TICK_S
            if (early := due - time.perf_counter()) > 0:
                time.sleep(early)
            begun = time.perf_counter()
            os.write(file.fileno(), bytes(FLOOR_BYTES))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - begun)
    return took


def _note(took: list[float], due: float, done: Future[Appended]) -> None:
    took.append(time.perf_counter() - due)


def _consume(rows: int) -> Iterator[Measure]:
    with owned() as log:
        log.create_topic(EVENTS)
        append_all(log, make_rows(SIZE), rows // SIZE, FOR_LARGE)
        plain = min(_read(log) for _ in range(3))
        for name, group in (("consumer", None), ("consumer in a group", "g")):
            seconds = _poll(log, group, rows)
            yield Measure(name, rows / seconds, "records/s", rows / plain, "bare read", detail="all columns")


def _read(log: Log) -> float:
    started = time.perf_counter()
    assert sum(one.batch.num_rows for number in range(EVENTS.partitions) for one in log.read("events", number, 0))
    return time.perf_counter() - started


def _poll(log: Log, group: str | None, rows: int) -> float:
    with log.consumer("events", group=group) as consumer:
        started = time.perf_counter()
        left = rows
        while left > 0:
            left -= sum(records.batch.num_rows for records in consumer.poll(10, max_records=50_000))
            if group is not None:
                consumer.commit()
        return time.perf_counter() - started


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
