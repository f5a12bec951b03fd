"""Kill -9 of the engine under load, with joins, a session window and aggregates running: results equal to what DuckDB
makes of the raw log.

    python -m tests.chaos.operators --rounds 30 --seed 7
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.log.base import Append, Log
from headrace.log.local.open import LocalClient
from tests.chaos.crash import Installation, ready
from tests.process.oracle.queries import RandomQuery, aggregation, projection, regroup, session, tumbling
from tests.process.oracle.relations import SOURCES, STREAM, TABLE, foreign_key, stream_stream, stream_table
from tests.process.oracle.run import bag, connect, differences, random_events
from tests.process.pipeline import Records, Row, batch_of
from tests.support import wait_for


@dataclass
class Outcome:
    records: int = 0
    results: int = 0
    kills: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.results > 0 and not self.differences

    def __str__(self) -> str:
        head = f"{self.records} records, {self.kills} × engine killed, {self.results} rows of results"
        return "\n".join([head, *self.differences])


def random_queries(chance: random.Random) -> list[RandomQuery]:
    """One of each operator that keeps state."""
    return [
        projection(chance, stream_stream(chance)),
        projection(chance, stream_table(chance)),
        projection(chance, foreign_key(chance)),
        aggregation(chance, STREAM, session),
        aggregation(chance, stream_table(chance), tumbling),
        regroup(chance, TABLE),
    ]


class Load(threading.Thread):
    """Appends records until told to stop."""

    def __init__(self, log: Log, seed: int) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.chance = random.Random(seed)
        self.finish = threading.Event()
        self.records = 0
        self.failure: str | None = None

    def run(self) -> None:
        try:
            for topic, rows in self.appends():
                self.log.append([Append(topic, batch_of(self.log.topic(topic), rows))]).result(60)
                self.records += len(rows)
                if self.finish.wait(0.02):
                    return
        except Exception as error:
            self.failure = repr(error)

    def appends(self) -> Iterator[tuple[str, list[Row]]]:
        now = 0
        while True:
            appends = random_events(self.chance, 100, since=now)
            now = max(row["$time"] for _, rows in appends for row in rows)
            yield from appends


def run(folder: Path, rounds: int, seed: int, say: Callable[[str], None] = lambda line: None) -> Outcome:
    chance = random.Random(seed)
    queries = random_queries(chance)
    statements = "\n".join(query.sql.format(f"q{number}") for number, query in enumerate(queries))
    installation = Installation(folder / "project", SOURCES + statements)
    outcome = Outcome()
    try:
        installation.up()
        wait_for(lambda: ready(installation), 90, "the first start")
        wait_for(lambda: len(installation.get("/v1/queries")["queries"]) == len(queries), 60, "the queries")
        log = LocalClient(installation.folder / ".headrace" / "log")
        load = Load(log, seed)
        load.start()
        while outcome.kills < rounds and load.failure is None:
            # A real pause: the moment of the kill is what is tried here, be it while it starts or within a batch.
            threading.Event().wait(chance.choice((chance.uniform(0, 4), chance.uniform(4, 16))))
            if installation.kill("engine"):
                outcome.kills += 1
                say(f"{outcome.kills}: killed the engine; {load.records} records so far")
        load.finish.set()
        load.join(70)
        outcome.records = load.records
        if load.failure is not None or load.is_alive():
            outcome.differences.append(load.failure or "the load never ended")
            return outcome
        _compare(log, queries, outcome)
        log.close()
        return outcome
    finally:
        installation.down()


def _compare(log: Log, queries: list[RandomQuery], outcome: Outcome) -> None:
    """What is doubled or lost never heals, what is only not there yet does: so the last look counts."""
    records = Records(log)
    connection = connect(records)
    expected = [bag(query.expected(connection)) for query in queries]

    def found() -> list[Counter[str]]:
        return [bag(records.result(query.names, f"Q{number}", query.table)) for number, query in enumerate(queries)]

    with contextlib.suppress(TimeoutError):
        wait_for(lambda: found() == expected, 180, "the results")
    outcome.results = sum(sum(rows.values()) for rows in expected)
    for query, ours, theirs in zip(queries, found(), expected, strict=True):
        outcome.differences += differences(query.sql, ours, theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        outcome = run(Path(folder), options.rounds, options.seed, lambda line: print(line, flush=True))
    print(outcome)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
