"""Running statements: each checks the catalog, makes its topics, and says what it did in one append of events.

Topics come first and events last, so a statement that is cut short has changed nothing: what it left behind is an empty
topic, which the next attempt takes over. Deleting is the other way round: the events come first, and `recover` ends
what was begun.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import replace
from typing import Any, Literal

from headrace.clock import Clock
from headrace.config import ProjectSettings
from headrace.coordinate.base import QUESTION_PREFIX, QueryDefinition
from headrace.coordinate.catalog import Catalog, CatalogDraft, create_internal_topics
from headrace.coordinate.creating import (
    created,
    created_for_plan,
    created_for_push,
    created_for_question,
    created_source,
    new_query_id,
    place_sink,
    placed_source,
    query_definition,
)
from headrace.coordinate.definitions import query_hint, same_definition, several, substitute
from headrace.coordinate.dropping import check_not_building, droppable, dropped_query, dropped_source, sweep
from headrace.coordinate.events import (
    FilesApplied,
    QueryCreated,
    QueryDropped,
    QueryWanted,
    SourceCreated,
)
from headrace.coordinate.explaining import ANSWERED_HERE, NOT_RUNNING, asked_plan
from headrace.coordinate.functions import (
    DescribeFile,
    create_function,
    drop_function,
)
from headrace.coordinate.insert import insert_rows
from headrace.coordinate.layers import refuse_layered
from headrace.coordinate.other import run_other
from headrace.coordinate.planning import changed_functions, plan_explained
from headrace.coordinate.replace import alter_definition, replace_definition
from headrace.coordinate.result import StatementResult
from headrace.coordinate.schemas import register_schemas, with_inferred_columns
from headrace.coordinate.show import Inspector
from headrace.coordinate.status import EngineStatus
from headrace.coordinate.topics import ensure_declared, ensure_sink, late_spec, sink_spec
from headrace.errors import Conflict, NotFound, SqlError, UsageError
from headrace.functions.describe import describe
from headrace.log.base import Log
from headrace.sql.api import (
    check_replace,
    insert_query_name,
    parse,
    plan_insert_select,
    plan_query,
    source_from,
)
from headrace.sql.ask_plan import AskQuery
from headrace.sql.layered import check_cut
from headrace.sql.plan import PersistentQuery, PushQuery, keeps_headers, may_be_late
from headrace.sql.source import Source
from headrace.sql.statements import (
    AlterSource,
    AssertTopic,
    CreateAsSelect,
    CreateFunction,
    CreateSource,
    Describe,
    DescribeFunction,
    Drop,
    DropFunction,
    Explain,
    InsertSelect,
    InsertValues,
    Pause,
    Print,
    SelectStatement,
    Show,
    Statement,
    Terminate,
)
from headrace.types import display_name

__all__ = ["StatementExecutor", "StatementResult"]


class StatementExecutor:
    """The catalog's only writer. Safe to use from several threads: statements run one at a time."""

    def __init__(
        self,
        log: Log,
        catalog: Catalog,
        clock: Clock,
        settings: ProjectSettings | None = None,
        status: EngineStatus | None = None,
        describe: DescribeFile = describe,
    ) -> None:
        """`describe` runs a file of Python functions to see what is in it."""
        self.describe = describe
        self._log = log
        self._catalog = catalog
        self._clock = clock
        self._settings = settings or ProjectSettings()
        self._status = status or EngineStatus(clock)
        self._inspector = Inspector(log, catalog, self._settings, self._status)
        self._lock = threading.RLock()
        self.rebuild: Callable[[CreateAsSelect], StatementResult] | None = None
        """What CREATE OR REPLACE does where a query cannot go on in place; set by who can deploy."""
        self._left: set[str] = set()
        create_internal_topics(log)
        catalog.refresh()

    def has_failed(self, query: str) -> bool:
        """Whether the engine has given a query up."""
        status = self._status.status(query)
        return status is not None and status.state == "failed"

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    def over(self, draft: CatalogDraft) -> StatementExecutor:
        """The same, for statements that only count once the draft is written."""
        other = copy(self)
        other._catalog = draft
        return other

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while something is changed in several steps."""
        return self._lock

    def execute(self, sql: str, variables: Mapping[str, str] | None = None) -> list[StatementResult]:
        """Run all statements of a text. Raises at the first that fails; those before it have happened."""
        return list(self.run(sql, variables))

    def run(
        self, sql: str, variables: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None
    ) -> Iterator[StatementResult]:
        """The same, one result at a time. Nothing runs if the text as a whole cannot be parsed."""
        for statement in parse(substitute(sql, variables or {}), variables, settings):
            yield self.run_statement(statement)

    def run_statement(self, statement: Statement) -> StatementResult:
        if isinstance(statement, AssertTopic):
            # It may wait for what another statement makes.
            return run_other(statement, self._log, self._catalog)
        if isinstance(statement, Explain) and statement.extended and statement.statement is not None:
            return self._explain_extended(statement)
        with self._lock:
            match statement:
                case CreateSource():
                    return self._create_source(statement)
                case CreateAsSelect():
                    return self._create_as_select(statement)
                case InsertValues():
                    return insert_rows(statement, self._log, self._catalog, self._clock, self._settings.collect)
                case InsertSelect():
                    return self._insert_select(statement)
                case AlterSource():
                    return self._alter(statement)
                case Drop():
                    return self._drop(statement)
                case Terminate():
                    return self._terminate(statement)
                case Pause():
                    return self._pause(statement)
                case Show() | Describe() | DescribeFunction() | Explain():
                    return self._inspector.inspect(statement)
                case CreateFunction():
                    return create_function(statement, self._catalog, self.describe)
                case DropFunction():
                    return drop_function(statement, self._catalog)
                case SelectStatement():
                    raise UsageError("a SELECT is asked as a query", hint="POST /v1/query, or headrace sql")
                case Print():
                    raise UsageError("PRINT is not a statement here", hint=f"headrace topic tail {statement.topic}")
                case _:
                    return run_other(statement, self._log, self._catalog)

    # Creating

    def _create_source(self, statement: CreateSource) -> StatementResult:
        if found := self._existing(statement):
            return found
        check_not_building(self._catalog, statement.name)
        source = placed_source(source_from(with_inferred_columns(statement, self._log), self._catalog), self._catalog)
        partitions_given = any(given.name == "PARTITIONS" for given in statement.properties)
        register_schemas(self._log, self._catalog, source)
        topic = ensure_declared(self._log, source, partitions_given)
        source = replace(source, partitions=topic.spec.partitions)
        self._catalog.append(created_source(source, self._catalog))
        return StatementResult(statement.text, "created", f"{source.kind} `{display_name(source.name)}` is there")

    def _create_as_select(self, statement: CreateAsSelect) -> StatementResult:
        if found := self._existing(statement):
            return found
        plan = plan_query(statement, self._catalog)
        refuse_layered(self._catalog, plan.inputs)
        if plan.refresh_ms is not None:
            # Not where it is planned: what runs already must be planned on.
            check_cut(plan, apart={})
        check_not_building(self._catalog, statement.name, *(source.name for source in plan.inputs))
        query_id = self._next_id("CSAS" if statement.kind == "stream" else "CTAS", plan.sink.name)
        plan = replace(plan, sink=place_sink(plan.sink, self._log, self._catalog))
        register_schemas(self._log, self._catalog, plan.sink)
        ensure_sink(self._log, plan.sink, keeps_headers(plan.root))
        self._make_ledger(plan, query_id)
        self._catalog.append(created(plan, query_id, statement.text, self._catalog, self._clock.now_ms()))
        message = f"{statement.kind} `{display_name(plan.sink.name)}` is kept up to date by query {query_id}"
        return StatementResult(statement.text, "created", message, query_id=query_id)

    def _insert_select(self, statement: InsertSelect) -> StatementResult:
        plan = plan_insert_select(statement, self._catalog)
        refuse_layered(self._catalog, plan.inputs)
        check_not_building(self._catalog, plan.sink.name, *(source.name for source in plan.inputs))
        # With a number whatever it is called: an id that was used before would find what the other one left.
        query_id = f"{insert_query_name(statement)}_{self._catalog.state.last_query_number + 1}"
        query = query_definition(plan, plan.sink, query_id, statement.text, self._clock.now_ms())
        self._make_ledger(plan, query_id)
        self._catalog.append([QueryCreated(query)])
        message = f"query {query_id} writes to stream `{display_name(plan.sink.name)}` too"
        return StatementResult(statement.text, "created", message, query_id=query_id)

    def _make_ledger(self, plan: PersistentQuery, query_id: str) -> None:
        if may_be_late(plan.root):
            self._log.create_topic(late_spec(query_id))

    def _alter(self, statement: AlterSource) -> StatementResult:
        return alter_definition(statement, self._log, self._catalog)

    def _existing(self, statement: CreateSource | CreateAsSelect) -> StatementResult | None:
        """What to answer when the name is taken: nothing if it is free, an error if that is not allowed."""
        source = self._catalog.source(statement.name)
        if source is None:
            return None
        check_replace(statement, self._catalog)
        name = display_name(source.name)
        same = same_definition(source.statement, statement) and not self._changed_functions(source, statement)
        if statement.if_not_exists or (statement.or_replace and same):
            message = f"{source.kind} `{name}` exists already" + ("" if same else ", defined differently")
            return StatementResult(statement.text, "exists", message, query_id=source.query)
        if statement.or_replace:
            return self._replace(statement, source)
        kind = statement.kind.upper()
        hint = f"to change it:  CREATE OR REPLACE {kind} {name} …      to keep both, choose another name"
        raise Conflict(f"{source.kind} `{name}` exists already", hint=hint)

    def _replace(self, statement: CreateSource | CreateAsSelect, source: Source) -> StatementResult:
        """In place if that can be, else as a new version beside the one that serves."""
        check_not_building(self._catalog, source.name)
        try:
            return replace_definition(statement, source, self._log, self._catalog)
        except Conflict:
            if self.rebuild is None or not isinstance(statement, CreateAsSelect) or source.query is None:
                raise
            return self.rebuild(statement)

    def _changed_functions(self, source: Source, statement: CreateSource | CreateAsSelect) -> list[str]:
        query = self._catalog.query(source.query) if source.query else None
        return changed_functions(query, statement, self._catalog) if isinstance(statement, CreateAsSelect) else []

    def _next_id(self, prefix: str, name: str) -> str:
        return new_query_id(prefix, name, self._catalog.state.last_query_number + 1)

    # Queries

    def set_wanted(self, query_id: str, wanted: Literal["running", "stopped"]) -> QueryDefinition:
        """Start or stop a query; the engine sees to it."""
        with self._lock:
            query = self._query(query_id)
            if query.wanted != wanted:
                self._catalog.append([QueryWanted(query_id, wanted)])
            return self._query(query_id)

    def start_transient(self, push: PushQuery, sql_text: str) -> QueryDefinition:
        """Run a push query that needs state in the engine, for as long as somebody listens. Its rows are on the topic
        of the source `definition.sink`."""
        with self._lock:
            refuse_layered(self._catalog, push.inputs)
            query_id = self._next_id("TRANSIENT", "_".join(source.name for source in push.inputs))
            return self._start(created_for_push(push, query_id, sql_text, self._clock.now_ms()))

    def start_question(self, ask: AskQuery, sql_text: str) -> QueryDefinition:
        """Let the engine answer a SELECT without EMIT. Its rows are on the topic of the source `definition.sink`, in
        order, once it has stopped; whoever asked drops it then."""
        with self._lock:
            query_id = self._next_id(QUESTION_PREFIX, "_".join(source.name for source in ask.inputs))
            return self._start(created_for_question(ask, query_id, sql_text, self._clock.now_ms()))

    def _start(self, events: tuple[SourceCreated, QueryCreated]) -> QueryDefinition:
        source, query = events
        self._log.create_topic(sink_spec(source.source))
        self._catalog.append(events)
        return self._query(query.query.id)

    def _explain_extended(self, statement: Explain) -> StatementResult:
        """Others' statements need not wait for the engine."""
        with self._lock:
            found = self._inspector.inspect(statement)
            plan = plan_explained(statement, self._catalog)
            running = self._status.state()["state"] == "running"
            if plan is None or not running:
                return replace(found, text=f"{found.text}\n\n{NOT_RUNNING if plan else ANSWERED_HERE}")
            query_id = self._next_id(QUESTION_PREFIX, "PLAN")
            self._start(created_for_plan(plan, query_id, statement.text, self._clock.now_ms()))
        try:
            return replace(found, text=f"{found.text}\n\n{asked_plan(self._status, query_id)}")
        finally:
            self.drop_transient(query_id)

    def drop_transient(self, query_id: str) -> None:
        """Fine if it is gone already. What cannot be dropped now, because the log is away or the disk is full, is
        dropped by `drop_left`: nobody else will ask for it."""
        with self._lock:
            query = self._catalog.query(query_id)
            if query is not None and query.transient:
                self._left.add(query_id)
                self._catalog.append(dropped_query(query))
                sweep(self._log, self._catalog)
            self._left.discard(query_id)

    def drop_left(self) -> None:
        """Transient queries that nobody listens to any more, and that could not be dropped then."""
        with self._lock:
            if self._left:
                for query_id in sorted(self._left):
                    self.drop_transient(query_id)
                sweep(self._log, self._catalog)

    def _terminate(self, statement: Terminate) -> StatementResult:
        if statement.query is None:
            ids = [query.id for query in self._catalog.queries()]
        else:
            wanted = statement.query.name
            if self._catalog.query(wanted) is None:
                raise self._unknown_query(wanted, statement)
            ids = [wanted]
        stopped: list[str] = []
        ended: list[str] = []
        for query_id in ids:
            query = self._query(query_id)
            if query.transient:
                self.drop_transient(query_id)
            elif query.inserts:
                # Nothing is made of it, so nothing is left of it.
                self._catalog.append([QueryDropped(query_id)])
            else:
                self.set_wanted(query_id, "stopped")
            (ended if query.transient or query.inserts else stopped).append(query_id)
        kept = [f"{several(stopped)} to stop; RESUME goes on from there"] if stopped else []
        message = "; ".join([*kept, *([f"{several(ended)} gone"] if ended else [])]) or "there is no query"
        return StatementResult(statement.text, "terminated", message, query_id=ids[0] if len(ids) == 1 else None)

    def _pause(self, statement: Pause) -> StatementResult:
        """PAUSE and RESUME: a query stops where it is, and goes on from there."""
        ids = [query.id for query in self._catalog.queries() if not query.transient]
        if statement.query is not None:
            wanted = statement.query.name
            if wanted not in ids:
                raise self._unknown_query(wanted, statement)
            ids = [wanted]
        for query_id in ids:
            self.set_wanted(query_id, "running" if statement.resume else "stopped")
        does = "to go on" if statement.resume else "to pause; RESUME goes on from there"
        message = f"{several(ids)} {does}" if ids else "there is no query"
        kind = "resumed" if statement.resume else "paused"
        return StatementResult(statement.text, kind, message, query_id=ids[0] if len(ids) == 1 else None)

    def _query(self, query_id: str) -> QueryDefinition:
        query = self._catalog.query(query_id)
        if query is None:
            hint = query_hint(query_id, self._catalog)
            raise NotFound(f"query `{query_id}` does not exist", hint=hint)
        return query

    def _unknown_query(self, query_id: str, statement: Terminate | Pause) -> SqlError:
        span = statement.query.span if statement.query else None
        hint = query_hint(query_id, self._catalog)
        return statement.script.error(f"query `{query_id}` does not exist", span, hint)

    # Dropping

    def _drop(self, statement: Drop) -> StatementResult:
        source = self._catalog.source(statement.name)
        if source is None and statement.if_exists:
            message = f"there is no {statement.kind} `{display_name(statement.name)}`"
            return StatementResult(statement.text, "exists", message)
        source = droppable(source, statement, self._catalog)
        self._catalog.append(dropped_source(source, statement.delete_topic, self._catalog))
        sweep(self._log, self._catalog)
        kept = f"; topic `{source.topic}` is deleted" if statement.delete_topic else f"; topic `{source.topic}` is kept"
        return StatementResult(statement.text, "dropped", f"{source.kind} `{display_name(source.name)}` is gone{kept}")

    # Tidying up

    def note_files(self, names: Iterable[str]) -> None:
        """The project's files define these. What they defined before stays theirs: that it is gone is a change."""
        with self._lock:
            state = self._catalog.state
            filed = state.filed | {name for name in names if name in state.sources}
            if filed != state.filed:
                self._catalog.append([FilesApplied(tuple(sorted(filed)))])

    def sweep(self) -> None:
        with self._lock:
            sweep(self._log, self._catalog)

    def recover(self) -> None:
        """End what a killed server began: transient queries nobody listens to, topics that were to be deleted."""
        with self._lock:
            for query in self._catalog.queries():
                if query.transient:
                    self._catalog.append(dropped_query(query))
            sweep(self._log, self._catalog)
