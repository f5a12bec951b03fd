"""The ways a test is run. All must lead to the rows it expects.

- `stream`: everything is there before the queries start; one micro-batch.
- `pieces`: some events, the queries, a restart of everything, the rest; several micro-batches, other numbers of
  partitions, and events of different keys in another order where that must not matter.
- `batch`: each expected stream or table computed from its inputs by the same plan over a bounded range.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from headrace.config import SparkSettings
from headrace.coordinate.base import QueryDefinition, late_topic
from headrace.deliver.base import Delivery
from headrace.deliver.pull import pull
from headrace.errors import UsageError
from headrace.log.schema import arrow_type
from headrace.process.batch import run_batch
from headrace.sql.api import parse, plan_select
from headrace.sql.plan import Join, PersistentQuery, PullQuery, scanned, walk
from headrace.sql.source import WINDOW_COLUMNS
from headrace.sql.statements import SelectStatement
from headrace.store.columns import python_values
from headrace.store.json_rows import to_json_rows
from headrace.testing.cases import Case, Expectation, Input, Row
from headrace.testing.compare import differences
from headrace.testing.shuffle import movable_topics, shuffled
from headrace.testing.stage import Stage, places_matter
from headrace.types import Column, display_name, quote_name

MOST_ROWS = 100_000
QUERY_SECONDS = 60.0
Event = tuple[Input, Row]


def all_events(case: Case) -> list[Event]:
    return [(part, event) for part in case.input for event in (part.records or part.events)]


def settled_places(case: Case) -> set[int]:
    """Before which events everything has to be computed."""
    counts = [len(part.records or part.events) for part in case.input]
    return {sum(counts[:number]) for number, part in enumerate(case.input) if part.settled}


def stretches(count: int, cuts: set[int]) -> list[tuple[int, int]]:
    """From cut to cut; there is always one, for there may be rows without events.

    >>> stretches(5, {2, 5}), stretches(0, {0})
    ([(0, 2), (2, 5)], [(0, 0)])
    """
    return list(pairwise(sorted({0, *cuts, count}))) or [(0, 0)]


def restart_places(plans: Sequence[PersistentQuery], count: int, settled: set[int]) -> list[int]:
    """After how many events there may be a stop. Anywhere, unless something is joined that a query writes: what is
    there when depends on when that query ran, so a stop may only be where the test says that it is done."""
    written = {plan.sink.topic for plan in plans}
    joins = [node for plan in plans for node in walk(plan.root) if isinstance(node, Join)]
    if any(source.topic in written for join in joins for source in scanned(join)):
        return sorted(settled | {count})
    return list(range(1, count)) or [count]


def run_stream(stage: Stage, case: Case) -> list[str]:
    events, rejected = all_events(case), list[str]()
    for start, end in stretches(len(events), settled_places(case)):
        rejected += stage.send(events[start:end])
        stage.compute(needed_queries(stage, case), SparkSettings(shuffle_partitions=1))
    return [*_compare_rejected(case, rejected), *_compare_late(stage, case), *_compare_rows(stage, case)]


def run_pieces(stage: Stage, case: Case, events: Sequence[Event], chance: random.Random) -> list[str]:
    """The restart forgets all but what is on disk, as a killed process does."""
    plans = [stage.plan(query) for query in needed_queries(stage, case)]
    cut = chance.choice(restart_places(plans, len(events), settled_places(case)))
    settings = SparkSettings(shuffle_partitions=2, max_rows_per_batch=max(1, len(events) // 4))
    rejected: list[str] = []
    for start, end in stretches(len(events), settled_places(case) | {cut}):
        rejected += stage.send(events[start:end])
        stage.compute(needed_queries(stage, case), settings)
        if end == cut:
            stage.restart()
    return [*_compare_rejected(case, rejected), *_compare_late(stage, case), *_compare_rows(stage, case)]


def run_batches(stage: Stage, case: Case) -> list[str]:
    """Over what the stream's run left in the log."""
    found: list[str] = []
    for expectation in case.expect:
        queries = [] if expectation.source is None else _writers(stage, expectation.source)
        if len(queries) == 1 and not queries[0].insert:
            [query] = queries
            names, rows = _batch_rows(stage, query)
            found += differences(expectation.title, expectation.rows or [], names, rows)
    return found


def other_order(stage: Stage, case: Case, seed: int) -> list[Event]:
    """The events so that the result must be the same: `stage` is where they arrived in the order written."""
    events = all_events(case)
    if not case.shuffle or places_matter(stage.project, case):
        return events
    plans = [stage.plan(query) for query in needed_queries(stage, case)]
    chance = random.Random(seed)
    for topic, timed in movable_topics(plans, dict.fromkeys(part.topic for part, _ in events)).items():
        places = [place for place, (part, _) in enumerate(events) if part.topic == topic]
        arrived = stage.arrived(topic)
        # One that was rejected, or came twice, has left no trace to go by.
        if len(arrived) == len(places):
            moved = [events[places[place]] for place in shuffled(arrived, timed, chance)]
            for place, event in zip(places, moved, strict=True):
                events[place] = event
    return events


def seed_of(case: Case, seed: int) -> int:
    """The same on every run, another one for every test."""
    return zlib.crc32(f"{case.name}/{seed}".encode())


def needed_queries(stage: Stage, case: Case) -> list[QueryDefinition]:
    return stage.queries([*_sources(stage, case), *(stage.source_name(name) for name in case.late)])


def _sources(stage: Stage, case: Case) -> Iterator[str]:
    for expectation in case.expect:
        if expectation.source is not None:
            yield stage.source_name(expectation.source)
        else:
            yield from (source.name for source in [_planned(stage, expectation).source])


def _writers(stage: Stage, name: str) -> list[PersistentQuery]:
    sink = stage.source_name(name)
    return [stage.plan(query) for query in stage.catalog.queries() if query.sink == sink]


def _planned(stage: Stage, expectation: Expectation) -> PullQuery:
    text = expectation.query
    if text is None:
        text = f"SELECT * FROM {quote_name(stage.source_name(expectation.source or ''))};"
    statements = parse(text if text.rstrip().endswith(";") else f"{text};")
    if len(statements) != 1 or not isinstance(statements[0], SelectStatement):
        raise UsageError(f"`{expectation.title}` is not one SELECT", hint="a `query` of a test is a pull query")
    query = plan_select(statements[0], stage.catalog)
    if not isinstance(query, PullQuery):
        raise UsageError(f"`{expectation.title}` never ends", hint="leave out EMIT CHANGES")
    return query


def _compare_rejected(case: Case, rejected: Sequence[str]) -> list[str]:
    if len(rejected) == case.rejected:
        return []
    return [f"{len(rejected)} events were rejected, expected {case.rejected}", *(f"    {why}" for why in rejected[:5])]


def _compare_late(stage: Stage, case: Case) -> list[str]:
    found = []
    for name, expected in case.late.items():
        source = stage.catalog.source(stage.source_name(name))
        ledger = late_topic(source.query) if source is not None and source.query else None
        known = ledger is not None and any(topic.name == ledger for topic in stage.log.topics())
        count = stage.log.stats(ledger).records if ledger is not None and known else 0
        if count != expected:
            found.append(f"{count} records came too late for `{name}`, expected {expected}")
    return found


def _compare_rows(stage: Stage, case: Case) -> list[str]:
    with stage.delivery() as delivery:
        return [line for one in case.expect for line in _compare(stage, one, delivery)]


def _compare(stage: Stage, expectation: Expectation, delivery: Delivery) -> list[str]:
    answer = pull(delivery, _planned(stage, expectation), QUERY_SECONDS, MOST_ROWS)
    names = [display_name(column.name) for column in answer.columns]
    return differences(expectation.title, expectation.rows or [], names, answer.rows)


def _batch_rows(stage: Stage, query: PersistentQuery) -> tuple[list[str], list[list[Any]]]:
    frame = run_batch(stage.spark, stage.folder / "log", lambda name: stage.log.topic(name).spec, query)
    columns = [*query.sink.key, *(WINDOW_COLUMNS if query.sink.window else ()), *query.sink.value]
    table: Any = frame.toArrow()
    values = [_values(table.column(place).combine_chunks(), column) for place, column in enumerate(columns)]
    rows = to_json_rows(columns, list(zip(*values, strict=True)))
    return [display_name(column.name) for column in columns], rows


def _values(array: pa.Array, column: Column) -> list[Any]:
    return python_values(array.cast(arrow_type(column.type)), column.type)
