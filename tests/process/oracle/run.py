"""Random queries over random records, three ways: as a stream cut at random, as one batch, by DuckDB over the log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.process.batch import run_batch
from tests.process.oracle.layers import layered_rows
from tests.process.oracle.queries import RandomQuery, random_query
from tests.process.oracle.relations import SOURCES
from tests.process.pipeline import Pipeline, Records, Row

# How many queries share one log, and how many run at once.
AT_ONCE, SIDE_BY_SIDE = 20, 3
CUTS = (1_000_000, 12, 5)
Make = Callable[[random.Random], RandomQuery]
SYSTEM = {"ar": pa.int64(), "st": pa.int64(), "tm": pa.int64(), "tomb": pa.bool_()}
COLUMNS = {"s": "k g n", "r": "rk h m", "t": "id w v", "e": "eid y z", "f": "fid ref u"}


def random_events(chance: random.Random, count: int, since: int = 0) -> list[tuple[str, list[Row]]]:
    """Appends. Time goes on by fits and starts; some records come late, by a little or a lot, some twice, some without
    a key or a value."""
    return [append for append, repeats in islice(endless_events(chance, since), count) for _ in range(repeats)]


def endless_events(chance: random.Random, since: int = 0) -> Iterator[tuple[tuple[str, list[Row]], int]]:
    """Appends, each with how often it comes."""
    now = since
    while True:
        topic = chance.choice("ssssrrrttef")
        rows = []
        for _ in range(chance.choice((1, 1, 1, 3))):
            now += chance.choice((0, 0, 500, 3_000, 11_000))
            time = max(0, now - chance.choice((0, 0, 0, 2_000, 7_000, 8_001, 20_000, 50_000)))
            rows.append(random_row(chance, topic) | {"$time": time})
        yield (topic, rows), 2 if chance.random() < 0.05 else 1


def random_row(chance: random.Random, topic: str) -> Row:
    key, text, number = COLUMNS[topic].upper().split()
    keys: tuple[str | None, ...] = ("a", "b", "c") if topic in "tef" else ("a", "a", "b", "c", None)
    if topic == "f":
        keys = ("p", "q", "o")
    texts = ("a", "b", "c", None) if topic == "f" else ("x", "y", "x", None)
    row: Row = {key: chance.choice(keys), "$tombstone": chance.random() < (0.15 if topic in "tef" else 0.05)}
    if row["$tombstone"]:
        return row
    return row | {text: chance.choice(texts), number: chance.choice((None, 0, 1, 2, 3, 7, -4, 30))}


def connect(log: Records, cut: int | None = None) -> duckdb.DuckDBPyConnection:
    """The raw log in DuckDB: all of it, or what has an arrival number below the cut."""
    connection = duckdb.connect()
    for topic, names in COLUMNS.items():
        key, text, number = names.split()
        types = {key: pa.string(), text: pa.string(), number: pa.int32()} | SYSTEM
        wanted = (*names.upper().split(), "$arrival", "$stream_time", "$time", "$tombstone")
        records = [record for record in log.records(topic) if cut is None or record["$arrival"] < cut]
        columns = [
            pa.array([record[name] for record in records], type_)
            for name, type_ in zip(wanted, types.values(), strict=True)
        ]
        # One by one they take a second for a thousand.
        connection.register("records", pa.table(columns, names=list(types)))
        connection.execute(f"CREATE TABLE {topic} AS SELECT * FROM records")
        connection.unregister("records")
    return connection


def compare(
    spark: SparkSession,
    folder: Path,
    seed: int,
    queries: int,
    events: int = 30,
    make: Make = random_query,
    layers: bool = False,
) -> list[str]:
    """What differs, in words; nothing if all agree. With `layers`, of those that can be Lambda views too."""
    chance = random.Random(seed)
    found = [make(chance) for _ in range(queries)]
    cuts = [chance.choice(CUTS) for _ in found]
    statements = [query.whole.format(f"q{number}") for number, query in enumerate(found)]
    with Pipeline(folder, SOURCES + "\n".join(statements)) as pipeline:

        def run(number: int) -> None:
            if found[number].below:
                pipeline.run(spark, f"q{number}_below", max_rows=cuts[number])
            pipeline.run(spark, f"q{number}", max_rows=cuts[number])

        appends = random_events(chance, events)
        half = chance.randint(1, len(appends) - 1)
        # Every query continues once from its checkpoint.
        cut = 0
        for part in (appends[:half], appends[half:]):
            cut = pipeline.log.snapshot().arrival
            for topic, rows in part:
                pipeline.put(topic, rows)
            runs = _side_by_side(run, queries)
        batches = _side_by_side(lambda number: _batch(spark, pipeline, found[number], f"q{number}"), queries)
        merged: list[Any] = [None] * queries
        if layers:
            merged = _side_by_side(lambda n: _layers(spark, pipeline, found[n], f"q{n}", cut, cuts[n]), queries)
        connection = connect(pipeline)
        found_wrong = []
        for number, query in enumerate(found):
            expected = bag(query.expected(connection))
            streamed = bag(pipeline.result(query.names, f"Q{number}", query.table))
            where = f"seed {seed}, cut at {cuts[number]}: {statements[number]}"
            ways = (runs[number], batches[number], merged[number])
            failed = [result for result in ways if isinstance(result, Exception)]
            if failed:
                found_wrong.append(f"failed, {where}\n    {str(failed[0])[:1500]}")
                continue
            found_wrong += differences(f"streamed, {where}", streamed, expected)
            found_wrong += differences(f"in one batch, {where}", bag(batches[number]), expected)
            if merged[number] is not None:
                found_wrong += differences(f"in two layers, {where}", bag(merged[number]), expected)
        return found_wrong


def _side_by_side(work: Callable[[int], Any], count: int) -> list[Any]:
    """What each gave, or how it failed: one does not keep the others from being tried."""

    def tried(number: int) -> Any:
        try:
            return work(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(tried, range(count)))


def _layers(
    spark: SparkSession, pipeline: Pipeline, query: RandomQuery, sink: str, cut: int, max_rows: int
) -> list[tuple[Any, ...]] | None:
    return layered_rows(spark, pipeline, sink, query.names, cut, max_rows) if query.table else None


def _batch(spark: SparkSession, pipeline: Pipeline, query: RandomQuery, sink: str) -> list[tuple[Any, ...]]:
    names = {"$window_start": "WINDOWSTART", "$window_end": "WINDOWEND"}
    rows = run_batch(spark, pipeline.log_folder, pipeline.topic, pipeline.spec(sink).plan).collect()
    return [tuple(row[names.get(name, name)] for name in query.names) for row in rows]


def bag(rows: Iterable[tuple[Any, ...]]) -> Counter[str]:
    return Counter(repr(tuple(round(value, 9) if isinstance(value, float) else value for value in row)) for row in rows)


def differences(what: str, ours: Counter[str], theirs: Counter[str]) -> list[str]:
    if ours == theirs:
        return []
    missing, beyond = "  ".join((theirs - ours).elements()), "  ".join((ours - theirs).elements())
    return [f"{what}\n    missing: {missing or 'nothing'}\n    beyond:  {beyond or 'nothing'}"]
