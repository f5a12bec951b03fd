"""Queues: how many messages are received and acknowledged, and how long one takes from its append to its ack.

The baseline is what one machine would use without a broker: a table of SQLite's, as durable (`synchronous=FULL`), with
a lease for each row. There as here, a delivery and an acknowledgement are synced before they are answered.
"""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.log_bench import COLUMNS, FOR_LARGE, make_rows
from benchmarks.measure import Measure, percentile
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.base import Append, Appended, TopicSpec
from headrace.log.dead_letters import bury_spent
from headrace.log.local import LocalLog
from headrace.log.queues import QueueDefinition, Queues
from headrace.log.queues.queue import Queue
from headrace.types import VARCHAR, Column

JOBS = TopicSpec("jobs", key=(Column("USERID", VARCHAR),), value=COLUMNS, partitions=2)
LEASE_S = 600.0
AT_ONCE, WORKERS = 100, 8
Work = Callable[[int], int]
"""Receive and acknowledge up to so many messages; how many there were."""


def run(quick: bool = False) -> list[Measure]:
    many, few = (10_000, 400) if quick else (200_000, 5_000)
    measures = []
    for name, messages, at_once, workers in (
        (f"received and acknowledged, {AT_ONCE} at a time", many, AT_ONCE, 1),
        (f"received and acknowledged one by one, {WORKERS} workers", few, 1, WORKERS),
    ):
        with _queue(messages) as (_, queue), _table(messages) as table:
            rate, plain = _drain(_worker(queue), messages, at_once, workers), _drain(table, messages, at_once, 1)
        measures.append(Measure(name, rate, "messages/s", plain, "a table of SQLite's"))
    return [*measures, *_latency(200 if quick else 2_000)]


@contextmanager
def _queue(messages: int) -> Iterator[tuple[LocalLog, Queue]]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        log = LocalLog(Path(folder) / "log", LogSettings(min_free_bytes=0, linger_ms=0.0), SystemClock(), serve=False)
        try:
            log.create_topic(JOBS)
            _fill(log, messages)
            yield log, Queues(log, SystemClock(), bury_spent).create(QueueDefinition("work", "jobs", lease_s=LEASE_S))
        finally:
            log.close()


def _fill(log: LocalLog, messages: int) -> None:
    size = 100
    waiting: deque[Future[list[Appended]]] = deque()
    for _ in range(0, messages, size):
        waiting.append(log.append([Append("jobs", make_rows(size))]))
        if len(waiting) == FOR_LARGE:
            waiting.popleft().result()
    for future in waiting:
        future.result()


def _worker(queue: Queue) -> Work:
    def work(limit: int) -> int:
        received = queue.receive(limit)
        return queue.ack([message.receipt for message in received]).done if received else 0

    return work


@contextmanager
def _table(messages: int) -> Iterator[Work]:
    """For one thread at a time: SQLite has one writer."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        connection = sqlite3.connect(Path(folder) / "queue.sqlite", isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, body TEXT, leased_until REAL DEFAULT 0)")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO jobs (body) VALUES (?)", (("x" * 80,) for _ in range(messages)))
        connection.execute("COMMIT")
        lease = (
            "UPDATE jobs SET leased_until = ? WHERE id IN "
            "(SELECT id FROM jobs WHERE leased_until < ? ORDER BY id LIMIT ?) RETURNING id, body"
        )

        def work(limit: int) -> int:
            now = time.time()
            found = connection.execute(lease, (now + LEASE_S, now, limit)).fetchall()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM jobs WHERE id = ?", [(number,) for number, _ in found])
            connection.execute("COMMIT")
            return len(found)

        try:
            yield work
        finally:
            connection.close()


def _drain(work: Work, messages: int, at_once: int, workers: int) -> float:
    """Messages a second."""
    left, lock = messages, threading.Lock()

    def drain() -> None:
        nonlocal left
        while left > 0:
            done = work(at_once)
            with lock:
                left -= done

    started = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        for worker in [pool.submit(drain) for _ in range(workers)]:
            worker.result()
    return messages / (time.perf_counter() - started)


def _latency(messages: int) -> Iterator[Measure]:
    """One message at a time: appended, received, acknowledged, each durably."""
    took: list[float] = []
    one = make_rows(1)
    with _queue(0) as (log, queue):
        work = _worker(queue)
        for _ in range(messages):
            started = time.perf_counter()
            log.append([Append("jobs", one)]).result()
            assert work(1) == 1
            took.append(time.perf_counter() - started)
    for share in (0.5, 0.99):
        name = f"append, receive and acknowledge, p{share * 100:.0f}"
        yield Measure(name, percentile(took, share) * 1000, "ms", detail="three syncs")
