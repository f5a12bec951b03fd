"""Runs a project's tests: each on a log of its own, through the real collector, planner and Spark."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.collect.base import RawEvents
from headrace.collect.decode import EventCollector
from headrace.config import Project, ProjectSettings
from headrace.coordinate.base import late_topic
from headrace.coordinate.catalog import Catalog, create_internal_topics
from headrace.coordinate.planning import query_spec
from headrace.coordinate.project import apply_project
from headrace.coordinate.statements import StatementExecutor
from headrace.deliver.base import Delivery
from headrace.deliver.pull import pull
from headrace.errors import HeadraceError, UsageError
from headrace.log.base import Log
from headrace.log.local.open import LocalLog
from headrace.log.registry.schemas import RegistrySchemas
from headrace.process.session import query_session
from headrace.process.streaming import start_query
from headrace.sql.api import parse, plan_select
from headrace.sql.plan import PullQuery
from headrace.sql.statements import SelectStatement
from headrace.store.follow import Followers
from headrace.store.memory import MemoryStore
from headrace.testing.cases import Case, Expectation, load_cases
from headrace.types import display_name, quote_name

MOST_ROWS = 100_000
FOLLOW_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TestResult:
    """One case and what differed; nothing if it passed."""

    __test__ = False

    file: str
    name: str
    differences: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.differences


def run_project_tests(
    project: Project,
    only: Sequence[str] = (),
    spark: SparkSession | None = None,
    report: Callable[[TestResult], None] = lambda result: None,
) -> list[TestResult]:
    """Run the cases whose names contain one of `only` (all, if there is none)."""
    cases = [
        (file, case) for file, case in load_cases(project.folder) if not only or any(word in case.name for word in only)
    ]
    if not cases:
        raise UsageError("there is no such test" if only else "there are no tests", hint="tests/*.toml holds them")
    if spark is None:
        from headrace.process.jvm import spark_session

        spark = spark_session(project.settings.spark, f"tests of {project.name}")
    results = []
    for file, case in cases:
        started = time.monotonic()
        try:
            differences = _run_case(project, case, spark)
        except HeadraceError as error:
            differences = [str(error)]
        result = TestResult(file.name, case.name, tuple(differences), time.monotonic() - started)
        report(result)
        results.append(result)
    return results


def _run_case(project: Project, case: Case, spark: SparkSession) -> list[str]:
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="headrace-test-") as name:
        folder = Path(name)
        log = LocalLog(folder / "log", ProjectSettings().log, clock)
        log.schemas = RegistrySchemas.of_log(log)
        try:
            create_internal_topics(log)
            catalog = Catalog(log)
            executor = StatementExecutor(log, catalog, clock)
            _define(project, case, executor)
            rejected = _send(case, EventCollector(log, clock, project.settings.collect))
            _compute(catalog, log, folder, spark, project)
            return [
                *([f"{rejected} events were rejected, expected {case.rejected}"] if rejected != case.rejected else []),
                *_compare_late(case, catalog, log),
                *_compare_rows(case, catalog, log),
            ]
        finally:
            log.close()


def _define(project: Project, case: Case, executor: StatementExecutor) -> None:
    if case.statements is not None:
        executor.execute(case.statements)
        return
    problems = [problem for applied in apply_project(executor, project) for problem in applied.problems]
    if problems:
        raise UsageError("the pipelines cannot be run", detail="\n  ".join(str(problem) for problem in problems))


def _send(case: Case, collector: EventCollector) -> int:
    """One event at a time, so that they arrive in the order they are written down. Returns how many were rejected."""
    rejected = 0
    for part in case.input:
        for event in part.events:
            body = msgspec.json.encode(event)
            rejected += len(collector.collect(RawEvents(part.topic, body, source="test")).result().rejected)
    return rejected


def _compute(catalog: Catalog, log: Log, folder: Path, spark: SparkSession, project: Project) -> None:
    """Each query reads what is there and ends. They were created inputs first, so one round is enough."""
    session = query_session(spark)
    session.conf.set("spark.sql.shuffle.partitions", "1")
    for query in catalog.queries():
        spec = query_spec(query, catalog, folder / "checkpoints")
        running = start_query(
            session, folder / "log", lambda name: log.topic(name).spec, project.settings.spark, spec, available_now=True
        )
        running.awaitTermination()


def _compare_late(case: Case, catalog: Catalog, log: Log) -> list[str]:
    found = []
    for name, expected in case.late.items():
        view = catalog.view(_source_name(catalog, name))
        count = log.stats(late_topic(view.query_id)).records if view is not None and view.query_id else 0
        if count != expected:
            found.append(f"{count} records came too late for `{name}`, expected {expected}")
    return found


def _compare_rows(case: Case, catalog: Catalog, log: Log) -> list[str]:
    store = MemoryStore()
    followers = Followers(log, store, SystemClock())
    delivery = Delivery(log, followers)
    try:
        followers.sync(catalog.views(), catalog.source)
        deadline = time.monotonic() + FOLLOW_SECONDS
        while any(followers.lag(name) for name in followers.names()):
            if time.monotonic() > deadline:
                raise UsageError("the views did not catch up")
            log.wait(log.snapshot().arrival, 0.01)
        return [line for expectation in case.expect for line in _compare(expectation, catalog, delivery)]
    finally:
        delivery.close()
        followers.close()
        store.close()


def _compare(expectation: Expectation, catalog: Catalog, delivery: Delivery) -> list[str]:
    name = _source_name(catalog, expectation.source)
    [statement] = parse(f"SELECT * FROM {quote_name(name)};")
    assert isinstance(statement, SelectStatement)
    query = plan_select(statement, catalog)
    assert isinstance(query, PullQuery)
    answer = pull(delivery, query, max_rows=MOST_ROWS)
    shown = [display_name(column.name) for column in answer.columns]
    wanted = list(dict.fromkeys(key for row in expectation.rows for key in row))
    if unknown := [key for key in wanted if key.lower() not in {name.lower() for name in shown}]:
        return [f"`{expectation.source}` has no column `{unknown[0]}`; it has {', '.join(shown)}"]
    places = [[name.lower() for name in shown].index(key.lower()) for key in wanted]
    actual = Counter(_frozen([row[place] for place in places]) for row in answer.rows)
    expected = Counter(_frozen([_plain(row.get(key)) for key in wanted]) for row in expectation.rows)
    lines = [f"{expectation.source}: missing     {_row(wanted, row)}" for row in (expected - actual).elements()]
    lines += [f"{expectation.source}: unexpected  {_row(wanted, row)}" for row in (actual - expected).elements()]
    return lines


def _source_name(catalog: Catalog, name: str) -> str:
    """Any case will do, as in SQL."""
    for candidate in (name, name.upper()):
        if catalog.source(candidate) is not None:
            return candidate
    known = ", ".join(sorted(display_name(source.name) for source in catalog.sources()))
    raise UsageError(f"stream or table `{name}` does not exist", hint=f"there are {known}")


def _plain(value: Any) -> Any:
    """TOML's moments as the API shows them."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date | time_of_day) else value


def _frozen(values: Sequence[Any]) -> bytes:
    """Something that can be counted, equal for equal JSON: 1 and 1.0 are."""
    return msgspec.json.encode([_number(value) for value in values], order="deterministic")


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _row(names: Sequence[str], row: bytes) -> str:
    return msgspec.json.encode(dict(zip(names, msgspec.json.decode(row), strict=True))).decode()
