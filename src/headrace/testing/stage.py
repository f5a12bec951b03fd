"""What a test runs on: a log of its own, with a catalog, the real collector, and Spark for its queries."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.collect.base import RawEvents
from headrace.collect.decode import EventCollector
from headrace.config import LogSettings, Project, SparkSettings
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.planning import plan_definition, query_spec
from headrace.coordinate.project import apply_functions, apply_project
from headrace.coordinate.result import StatementResult
from headrace.coordinate.statements import StatementExecutor
from headrace.coordinate.topics import find_topic
from headrace.deliver.base import Delivery
from headrace.errors import UsageError
from headrace.fluent.pipeline import pipeline_text
from headrace.log.base import ARRIVAL, TIME, Log
from headrace.log.local.open import LocalLog
from headrace.log.registry.schemas import RegistrySchemas
from headrace.process.session import query_session
from headrace.process.streaming import start_query
from headrace.sql.clauses import Property
from headrace.sql.plan import PersistentQuery
from headrace.sql.statements import CreateSource, Statement
from headrace.store.follow import Followers
from headrace.store.memory import MemoryStore
from headrace.testing.cases import Case, Input, Row
from headrace.testing.files import typed_event
from headrace.testing.shuffle import Arrived
from headrace.types import display_name

MEMORY = Path("/dev/shm")
FOLLOW_SECONDS = 30.0
PLACED = re.compile(r"\b(ROWPARTITION|ROWOFFSET)\b", re.IGNORECASE)


class PartitionedExecutor(StatementExecutor):
    """Gives every declared topic another number of partitions: results must not depend on it."""

    partitions: int | None = None

    def run_statement(self, statement: Statement) -> StatementResult:
        if self.partitions is not None and isinstance(statement, CreateSource):
            kept = tuple(given for given in statement.properties if given.name != "PARTITIONS")
            topic = next((str(given.value) for given in kept if given.name == "KAFKA_TOPIC"), statement.name)
            number = () if find_topic(self._log, topic) else (Property("PARTITIONS", self.partitions),)
            statement = replace(statement, properties=kept + number)
        return super().run_statement(statement)


class Stage:
    def __init__(self, project: Project, case: Case, spark: SparkSession, partitions: int | None = None) -> None:
        """With the case's statements, or the project's pipelines. `partitions` for all topics that are declared."""
        self.project = project
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-test-", dir=MEMORY if MEMORY.is_dir() else None))
        self.spark = query_session(spark)
        try:
            self.open()
            self.executor.partitions = None if places_matter(project, case) else partitions
            self._define(case)
        except BaseException:
            self.close()
            raise

    def open(self) -> None:
        """Nothing is known but what the folder holds."""
        clock = SystemClock()
        settings = LogSettings(linger_ms=0, min_free_bytes=0)
        self.log: Log = LocalLog(self.folder / "log", settings, clock)
        self.log.schemas = RegistrySchemas.of_log(self.log)
        self.catalog = Catalog(self.log)
        self.executor = PartitionedExecutor(self.log, self.catalog, clock)
        self.collector = EventCollector(self.log, clock, self.project.settings.collect)

    def restart(self) -> None:
        self.log.close()
        self.open()

    def close(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _define(self, case: Case) -> None:
        own = case.statements is not None
        applied = (apply_functions if own else apply_project)(self.executor, self.project)
        problems = [problem for one in applied for problem in one.problems]
        if case.statements is not None and not problems:
            self.executor.execute(case.statements)
        if problems:
            raise UsageError("the pipelines cannot be run", detail="\n  ".join(str(problem) for problem in problems))

    # Events

    def send(self, events: Iterable[tuple[Input, Row]]) -> list[str]:
        """One at a time, so that they arrive in this order. Why some were rejected."""
        rejected: list[str] = []
        for part, event in events:
            if part.records:
                raw = RawEvents(part.topic, msgspec.json.encode({"records": [event]}), "records", "test")
            else:
                topic = self.log.topic(part.topic).spec
                event = typed_event(event, topic.key + topic.value) if part.texts else event
                raw = RawEvents(part.topic, msgspec.json.encode(event), "json", "test")
            rejected += [rejection.reason for rejection in self.collector.collect(raw).result().rejected]
        return rejected

    def arrived(self, topic: str) -> list[Arrived]:
        """What the topic holds, in order of arrival."""
        spec, rows = self.log.topic(topic).spec, list[Row]()
        columns = [ARRIVAL, TIME, *(column.name for column in spec.key)]
        for number, ends in enumerate(self.log.snapshot().ends[topic]):
            for records in self.log.read(topic, number, ends.start, ends.end, columns):
                rows += records.batch.to_pylist()
        rows.sort(key=lambda row: row[ARRIVAL])
        return [
            Arrived(str([row[column.name] for column in spec.key]) if spec.key else None, row[TIME]) for row in rows
        ]

    # Queries

    def queries(self, needed: Sequence[str]) -> list[QueryDefinition]:
        """Those that write these sources, and those that write what they read, in the order they were created."""
        wanted, ids = set(needed), set[str]()
        while True:
            more = [query for query in self.catalog.queries() if query.sink in wanted and query.id not in ids]
            if not more:
                return [query for query in self.catalog.queries() if query.id in ids]
            ids |= {query.id for query in more}
            topics = {source.topic for query in more for name in query.sources if (source := self.catalog.source(name))}
            # Another stream over the same topic may be what is written.
            wanted |= {source.name for source in self.catalog.sources() if source.topic in topics}

    def plan(self, query: QueryDefinition) -> PersistentQuery:
        return plan_definition(query, self.catalog)

    def compute(self, queries: Sequence[QueryDefinition], settings: SparkSettings) -> None:
        """Each query reads what is there and ends; they were created inputs first, so one round is enough."""
        self.spark.conf.set("spark.sql.shuffle.partitions", settings.shuffle_partitions)
        for query in queries:
            spec = query_spec(query, self.catalog, self.folder / "checkpoints")
            running = start_query(
                self.spark,
                self.folder / "log",
                lambda name: self.log.topic(name).spec,
                settings,
                spec,
                available_now=True,
            )
            running.awaitTermination()

    @contextmanager
    def delivery(self) -> Iterator[Delivery]:
        """Views that have seen everything."""
        store = MemoryStore()
        followers = Followers(self.log, store, SystemClock())
        delivery = Delivery(self.log, followers)
        clock = SystemClock()
        try:
            followers.sync(self.catalog.views(), self.catalog.source)
            deadline = clock.monotonic() + FOLLOW_SECONDS
            while any(followers.lag(name) for name in followers.names()):
                if clock.monotonic() > deadline:
                    raise UsageError("the views did not catch up")
                self.log.wait(self.log.snapshot().arrival, 0.01)
            yield delivery
        finally:
            delivery.close()
            followers.close()
            store.close()

    def source_name(self, name: str) -> str:
        """Any case will do, as in SQL."""
        for candidate in (name, name.upper()):
            if self.catalog.source(candidate) is not None:
                return candidate
        known = ", ".join(sorted(display_name(source.name) for source in self.catalog.sources()))
        raise UsageError(f"stream or table `{name}` does not exist", hint=f"there are {known}")


def places_matter(project: Project, case: Case) -> bool:
    """Whether something looks at where its rows lie: then they must lie where they would."""
    texts = [case.statements] if case.statements is not None else [pipeline_text(file) for file in project.pipelines]
    return any(PLACED.search(text) for text in texts)
