"""Reading a Lambda view against reading a plain one that has the same rows; and applying changes to both."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.measure import Measure
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.coordinate.base import ViewDefinition
from headrace.coordinate.topics import sink_spec
from headrace.deliver.base import Delivery
from headrace.deliver.pull import pull
from headrace.log.base import Append
from headrace.log.local.open import LocalLog
from headrace.sql.api import Draft, parse, plan_query, plan_select, source_from
from headrace.sql.layered import LayeredQuery, layered_query
from headrace.sql.plan import PullQuery
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect, CreateSource, SelectStatement
from headrace.store.follow import Followers
from headrace.store.layers import Merging
from headrace.store.sqlite import SqliteStore

HITS = "CREATE STREAM hits (page VARCHAR KEY, ms INT) WITH (KAFKA_TOPIC='hits', PARTITIONS=1);"
VIEW = "CREATE TABLE {} AS SELECT page, COUNT(*) AS n, AVG(ms) AS mean FROM hits GROUP BY page;"
ROUNDS = 5
LOOKUPS = 2_000


@dataclass(frozen=True, slots=True)
class Pair:
    plain: Source
    layered: LayeredQuery
    draft: Draft


def merged_reads(rows: int) -> list[Measure]:
    pair = _planned()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        log = LocalLog(folder / "log", LogSettings(), SystemClock())
        store = SqliteStore(folder / "views")
        followers = Followers(log, store)
        try:
            return _measured(log, followers, pair, rows)
        finally:
            followers.close()
            store.close()
            log.close()


def _planned() -> Pair:
    draft = Draft()
    [declared] = parse(HITS)
    assert isinstance(declared, CreateSource)
    draft.add(source_from(declared, draft))
    plans = []
    for name in ("plain", "layers"):
        [statement] = parse(VIEW.format(name))
        assert isinstance(statement, CreateAsSelect)
        plans.append(plan_query(statement, draft))
    for plan in plans:
        draft.add(plan.sink)
    return Pair(plans[0].sink, layered_query(plans[1]), draft)


def _measured(log: LocalLog, followers: Followers, pair: Pair, rows: int) -> list[Measure]:
    partial, view = pair.layered.partial.sink, pair.layered.query.sink
    log.create_topic(sink_spec(pair.plain))
    log.create_topic(sink_spec(partial))
    _write(log, partial, rows)
    merging = Merging(pair.layered, {0: rows})
    views = [ViewDefinition(source.name, 1, None, source.topic) for source in (pair.plain, view)]
    sources = {source.name: source for source in (pair.plain, view)}
    followers.sync(views, sources.get, (), {(view.name, 1): merging})
    _write(log, pair.plain, rows)
    _caught_up(followers, "PLAIN", "LAYERS")
    # Every row changes once: in the Lambda view each is now of both layers.
    applied = [_applied(log, followers, source, rows) for source in (pair.plain, partial)]
    delivery = Delivery(log, followers)
    try:
        return [
            *_reads(delivery, pair.draft, rows),
            Measure("changes into a Lambda view", applied[1], "rows/s", applied[0], "into a plain one"),
        ]
    finally:
        delivery.close()


def _write(log: LocalLog, source: Source, rows: int) -> None:
    for first in range(0, rows, 50_000):
        pages = range(first, min(first + 50_000, rows))
        columns = {"PAGE": pa.array([f"/{page}" for page in pages]), "$time": pa.array([0] * len(pages), pa.int64())}
        for column in source.value:
            columns[column.name] = pa.array([page % 97 + 1 for page in pages]).cast(
                pa.float64() if column.name == "MEAN" else pa.int64()
            )
        log.append([Append(source.topic, pa.record_batch(columns))]).result()


def _applied(log: LocalLog, followers: Followers, source: Source, rows: int) -> float:
    started = time.monotonic()
    _write(log, source, rows)
    _caught_up(followers, source.name)
    return rows / (time.monotonic() - started)


def _caught_up(followers: Followers, *names: str) -> None:
    while any(followers.lag(name) for name in names):
        time.sleep(0.01)


def _reads(delivery: Delivery, draft: Draft, rows: int) -> list[Measure]:
    chance = random.Random(1)
    pages = [f"/{chance.randrange(rows)}" for _ in range(LOOKUPS)]
    kinds: dict[str, Callable[[str], list[str]]] = {
        "by key": lambda name: [f"SELECT * FROM {name} WHERE page = '{page}';" for page in pages],
        "largest by value": lambda name: [f"SELECT page, n FROM {name} WHERE n > 90 ORDER BY n DESC LIMIT 100;"] * 5,
    }
    found = []
    for kind, texts in kinds.items():
        plans = {name: [_plan(text, draft) for text in texts(name)] for name in ("plain", "layers")}
        best = dict.fromkeys(plans, 0.0)
        for _ in range(ROUNDS):
            for name, queries in plans.items():
                started = time.monotonic()
                for query in queries:
                    assert pull(delivery, query, 60.0, 100).rows
                best[name] = max(best[name], len(queries) / (time.monotonic() - started))
        # As times, so that less is better and the aim reads as it is set.
        merged, plain = (1_000_000 / best[name] for name in ("layers", "plain"))
        found.append(Measure(f"merged reads, {kind}", merged, "µs", plain, "of a plain view", "≤ 2 × plain"))
    return found


def _plan(text: str, draft: Draft) -> PullQuery:
    [statement] = parse(text)
    assert isinstance(statement, SelectStatement)
    plan = plan_select(statement, draft)
    assert isinstance(plan, PullQuery)
    return plan
