"""Pull queries and feeds, in process: a lookup by key against bare sqlite3 on the same file, changes applied per second
against the same upserts by hand, and one change to two hundred feeds against two hundred queues."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import Measure, percentile
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.coordinate.base import ViewDefinition
from headrace.deliver.base import Delivery, FeedEvent
from headrace.deliver.feed import feed
from headrace.deliver.pull import pull
from headrace.lean import switch_often
from headrace.log.base import Append, TopicSpec
from headrace.log.local.open import LocalLog
from headrace.sql.api import parse, plan_select
from headrace.sql.ask_plan import AskQuery
from headrace.sql.functions.function import Function
from headrace.sql.plan import PullQuery, PushQuery
from headrace.sql.source import Source
from headrace.sql.statements import SelectStatement
from headrace.store.follow import Followers
from headrace.store.sqlite import SqliteStore
from headrace.types import BIGINT, VARCHAR, Column, DataType
from tests.support import wait_for

COUNTS = Source(
    "COUNTS", "table", "counts", (Column("PAGE", VARCHAR),), (Column("VIEWS", BIGINT), Column("USERS", BIGINT))
)
BARE = 'SELECT "PAGE", "VIEWS", "USERS" FROM rows WHERE "PAGE" = ?'
CLIENTS = 200


class Sources:
    def source(self, name: str) -> Source | None:
        return COUNTS if name == COUNTS.name else None

    def sources(self) -> list[Source]:
        return [COUNTS]

    def types(self) -> Mapping[str, DataType]:
        return {}

    def functions(self) -> Mapping[str, Function]:
        return {}


def run(quick: bool = False) -> list[Measure]:
    keys, seconds = (10_000, 1.0) if quick else (200_000, 5.0)
    switch_often()  # as the server does: followers and readers are threads
    with tempfile.TemporaryDirectory() as folder, _serving(Path(folder)) as (log, delivery, followers):
        measures = [_applying(log, followers, Path(folder), keys)]
        bare = sqlite3.connect(followers_file(Path(folder)), isolation_level=None)

        def ours(page: str) -> None:
            assert pull(delivery, plan(page), 10.0, 100).rows

        def by_hand(page: str) -> None:
            assert bare.execute(BARE, (page,)).fetchone()

        measures += _pulls(log, keys, seconds, ours, by_hand)
        measures += _questions(delivery, bare, keys)
        bare.close()
        measures += _fan_out(log, delivery, 50 if quick else 300)
    return measures


def followers_file(folder: Path) -> Path:
    return folder / "views" / "COUNTS" / "v1.sqlite"


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[LocalLog, Delivery, Followers]]:
    log = LocalLog(folder / "log", LogSettings(), SystemClock(), serve=False)
    log.create_topic(TopicSpec("counts", COUNTS.key, COUNTS.value, role="derived"))
    store = SqliteStore(folder / "views")
    followers = Followers(log, store)
    followers.sync([ViewDefinition("COUNTS", 1, None, "counts")], Sources().source)
    delivery = Delivery(log, followers)
    yield log, delivery, followers
    delivery.close()
    followers.close()
    store.close()
    log.close()


def plan(page: str) -> PullQuery:
    """From the text, as a client sends it: parsing and planning are part of a pull."""
    planned = _plan(f"SELECT * FROM counts WHERE page = '{page}';")
    assert isinstance(planned, PullQuery)
    return planned


def _plan(sql: str) -> PullQuery | AskQuery:
    [statement] = parse(sql)
    assert isinstance(statement, SelectStatement)
    planned = plan_select(statement, Sources())
    assert not isinstance(planned, PushQuery)
    return planned


def changes(numbers: range) -> pa.RecordBatch:
    counted = pa.array(numbers, pa.int64())
    return pa.record_batch({"PAGE": [f"/page/{n}" for n in numbers], "VIEWS": counted, "USERS": counted})


def _applying(log: LocalLog, followers: Followers, folder: Path, keys: int) -> Measure:
    """Changed keys per second, from the log into the view."""
    started = time.perf_counter()
    for start in range(0, keys, 10_000):
        log.append([Append("counts", changes(range(start, start + 10_000)))]).result()
    wait_for(lambda: followers.lag("COUNTS") == 0, 120, "the view to be filled")
    applied = keys / (time.perf_counter() - started)
    connection = sqlite3.connect(folder / "by_hand.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE rows (page TEXT PRIMARY KEY, views INTEGER, users INTEGER)")
    started = time.perf_counter()
    for start in range(0, keys, 10_000):
        connection.execute("BEGIN")
        rows = ((f"/page/{n}", n, n) for n in range(start, start + 10_000))
        connection.executemany("INSERT INTO rows VALUES (?, ?, ?) ON CONFLICT (page) DO UPDATE SET views = 1", rows)
        connection.execute("COMMIT")
    by_hand = keys / (time.perf_counter() - started)
    connection.close()
    return Measure(
        "changed keys appended and applied to a view",
        applied,
        "keys/s",
        by_hand,
        "upserts by hand",
        detail=f"{keys:,} keys",
    )


def _pulls(
    log: LocalLog, keys: int, seconds: float, ours: Callable[[str], None], by_hand: Callable[[str], None]
) -> list[Measure]:
    baseline, rate = _as_fast_as_it_goes(by_hand, keys, seconds), _as_fast_as_it_goes(ours, keys, seconds)
    with _writing(log, keys):
        bare, paced = _at_a_pace(by_hand, keys, seconds), _at_a_pace(ours, keys, seconds)
    detail = "from SQL text; 1,000/s, 500 changes/s written beside"
    return [
        Measure("pulls by key", rate, "pulls/s", baseline, "bare sqlite3", detail="one thread, from SQL text"),
        Measure(
            "pull by key p50",
            percentile(paced, 0.5) * 1e3,
            "ms",
            percentile(bare, 0.5) * 1e3,
            "bare sqlite3",
            "",
            detail,
        ),
        Measure(
            "pull by key p99",
            percentile(paced, 0.99) * 1e3,
            "ms",
            percentile(bare, 0.99) * 1e3,
            "bare sqlite3",
            "≤ 5 ms",
            detail,
        ),
    ]


def _as_fast_as_it_goes(lookup: Callable[[str], None], keys: int, seconds: float) -> float:
    chance, done, started = random.Random(5), 0, time.perf_counter()
    while time.perf_counter() < started + seconds:
        for _ in range(100):
            lookup(f"/page/{chance.randrange(keys)}")
        done += 100
    return done / (time.perf_counter() - started)


def _at_a_pace(lookup: Callable[[str], None], keys: int, seconds: float) -> list[float]:
    """Latencies at 1,000 lookups a second, counted from when each was due: waiting for the one before is part of it."""
    chance, pause, took = random.Random(6), threading.Event(), []
    started = time.perf_counter()
    for number in range(int(seconds * 1000)):
        due = started + number / 1000
        pause.wait(max(0.0, due - time.perf_counter()))
        begun = max(due, time.perf_counter()) if time.perf_counter() < due + 0.001 else due
        lookup(f"/page/{chance.randrange(keys)}")
        took.append(time.perf_counter() - begun)
    return took


@contextmanager
def _writing(log: LocalLog, keys: int) -> Iterator[None]:
    stop = threading.Event()

    def write() -> None:
        chance = random.Random(7)
        while not stop.wait(0.1):
            start = chance.randrange(keys - 50)
            log.append([Append("counts", changes(range(start, start + 50)))]).result()

    writer = threading.Thread(target=write)
    writer.start()
    yield
    stop.set()
    writer.join()


QUESTIONS = {
    "GROUP BY, 100 groups": "SELECT users % 100 AS part, COUNT(*), SUM(views) FROM {} GROUP BY users % 100;",
    "self-join by a column": "SELECT COUNT(*) FROM {} a JOIN {} b ON a.views = b.users;",
    "RANK() OVER, the first of each": "SELECT COUNT(*) FROM (SELECT users, RANK() OVER (PARTITION BY users % 100 "
    "ORDER BY views DESC) AS place FROM {}) x WHERE place = 1;",
    "ORDER BY an expression, 10 rows": "SELECT page FROM {} ORDER BY users % 1000, page LIMIT 10;",
}


def _questions(delivery: Delivery, bare: sqlite3.Connection, keys: int) -> list[Measure]:
    """Rows looked at per second, against SQLite's own answer to the same text."""
    found: list[Measure] = []
    for name, text in QUESTIONS.items():
        started = time.perf_counter()
        answer = pull(delivery, _plan(text.replace("{}", "counts")), 60.0, 1_000)
        ours = keys / (time.perf_counter() - started)
        started = time.perf_counter()
        by_hand = bare.execute(text.replace("{}", "rows")).fetchall()
        theirs = keys / (time.perf_counter() - started)
        assert len(answer.rows) == len(by_hand)
        found.append(Measure(name, ours, "rows/s", theirs, "bare sqlite3", detail=f"{keys:,} rows"))
    return found


def _fan_out(log: LocalLog, delivery: Delivery, batches: int) -> list[Measure]:
    late, rate = asyncio.run(_to_feeds(log, delivery, batches))
    baseline = asyncio.run(_to_queues(batches * 10))
    return [
        Measure(
            f"changes delivered to {CLIENTS} feeds",
            rate,
            "events/s",
            baseline,
            "the same objects through queues",
            detail="one core",
        ),
        Measure(
            f"commit to the last of {CLIENTS} feeds p99",
            percentile(late, 0.99) * 1e3,
            "ms",
            detail="10 changes at a time, p50 " + f"{percentile(late, 0.5) * 1e3:.1f} ms",
        ),
    ]


async def _to_feeds(log: LocalLog, delivery: Delivery, batches: int) -> tuple[list[float], float]:
    arrived = asyncio.Semaphore(0)

    async def client(events: AsyncIterator[FeedEvent]) -> None:
        async for event in events:
            if event.event == "change":
                arrived.release()

    # A feed begins where the log is when it is made: all before the first change.
    clients = [asyncio.create_task(client(events)) for events in [feed(delivery, "COUNTS") for _ in range(CLIENTS)]]
    late, started = [], time.perf_counter()
    for number in range(batches):
        await asyncio.to_thread(log.append([Append("counts", changes(range(number, number + 10)))]).result)
        committed = time.perf_counter()
        for _ in range(10 * CLIENTS):
            await arrived.acquire()
        late.append(time.perf_counter() - committed)
    rate = batches * 10 * CLIENTS / (time.perf_counter() - started)
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return late, rate


async def _to_queues(events: int) -> float:
    queues: list[asyncio.Queue[int]] = [asyncio.Queue() for _ in range(CLIENTS)]
    arrived = asyncio.Semaphore(0)

    async def client(queue: asyncio.Queue[int]) -> None:
        while True:
            await queue.get()
            arrived.release()

    clients = [asyncio.create_task(client(queue)) for queue in queues]
    started = time.perf_counter()
    for first in range(0, events, 10):
        for number in range(first, first + 10):
            for queue in queues:
                queue.put_nowait(number)
        for _ in range(10 * CLIENTS):
            await arrived.acquire()
    rate = events * CLIENTS / (time.perf_counter() - started)
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return rate
