"""Why this number? A row of a plain and of a windowed count computed again with all its records, against Arrow alone
looking for the key in the whole topic."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measure import Measure
from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.base import TIME, Append
from headrace.log.local.open import LocalLog
from headrace.sql.functions.arrays import hashable
from headrace.views.evaluate import Evaluation, Question, answer
from headrace.views.reading import Reader
from headrace.views.traced import Bounds

KEYS, BATCH, MINUTE, PER_MS = 10_000, 200_000, 60_000, 20
SQL = """
CREATE STREAM views (pageid VARCHAR KEY, userid BIGINT) WITH (KAFKA_TOPIC='views', PARTITIONS=2);
CREATE TABLE by_page AS SELECT pageid, COUNT(*) AS n, MAX(userid) AS most FROM views GROUP BY pageid;
CREATE TABLE per_minute AS SELECT pageid, COUNT(*) AS n FROM views
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY pageid;
"""


def run(quick: bool = False) -> list[Measure]:
    from headrace.coordinate.catalog import Catalog
    from headrace.coordinate.planning import plan_definition
    from headrace.coordinate.statements import StatementExecutor

    events = 1_000_000 if quick else 20_000_000
    with tempfile.TemporaryDirectory() as folder:
        log = LocalLog(Path(folder) / "log", LogSettings(linger_ms=0), SystemClock(), serve=False)
        try:
            catalog = Catalog(log)
            StatementExecutor(log, catalog, SystemClock()).execute(SQL)
            _fill(log, events)
            plans = {query.sink: plan_definition(query, catalog) for query in catalog.queries()}
            bare = _time(lambda: _bare(log))
            measures = []
            middle = events // PER_MS // MINUTE // 2 * MINUTE
            asked: dict[str, Bounds | None] = {"BY_PAGE": None, "PER_MINUTE": (middle, middle + MINUTE)}
            for sink, window in asked.items():
                question = Question(plans[sink], (hashable("/page/7"),), window)
                took = _time(lambda question=question: _ask(log, question))  # type: ignore[misc]
                detail = f"{events / 1e6:.0f} M events, {sink.lower()}"
                measures.append(Measure("why", took, "s", bare, "Arrow alone, all of the topic", "≤ 5 s", detail))
            return measures
        finally:
            log.close()


def _fill(log: LocalLog, events: int) -> None:
    chance = np.random.default_rng(7)
    pages = pa.array([f"/page/{number}" for number in range(KEYS)])
    for first in range(0, events, BATCH):
        batch = pa.record_batch(
            {
                "PAGEID": pages.take(pa.array(chance.integers(0, KEYS, BATCH))),
                "USERID": pa.array(chance.integers(0, 1_000_000, BATCH)),
                TIME: pa.array((np.arange(first, first + BATCH) // PER_MS).astype(np.int64)),
            }
        )
        log.append([Append("views", batch)]).result()


def _bare(log: LocalLog) -> None:
    for number, ends in enumerate(log.snapshot().ends["views"]):
        for records in log.read("views", number, ends.start, ends.end, ["PAGEID"]):
            records.batch.filter(pc.equal(records.batch.column("PAGEID"), "/page/7"))


def _ask(log: LocalLog, question: Question) -> None:
    [row] = answer(Evaluation(Reader(log, log.snapshot().arrival)), question)
    assert row.values["N"] == len(row.origins) > 0


def _time(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
