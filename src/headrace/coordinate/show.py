"""SHOW, DESCRIBE and EXPLAIN: what there is and what it means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from headrace.config import ProjectSettings
from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.changes import change_text
from headrace.coordinate.definitions import query_hint
from headrace.coordinate.describe import counts
from headrace.coordinate.result import StatementResult, table_result
from headrace.coordinate.status import EngineStatus
from headrace.log.base import Log, Topic
from headrace.log.missing import of_each
from headrace.nearest import did_you_mean
from headrace.sql.api import (
    FUNCTIONS,
    Plan,
    check_function,
    explain,
    parse,
    plan_insert_select,
    plan_query,
    plan_select,
    plan_tree,
)
from headrace.sql.source import Source, Window
from headrace.sql.statements import (
    CreateAsSelect,
    Describe,
    DescribeFunction,
    Explain,
    InsertSelect,
    SelectStatement,
    Show,
)
from headrace.types import display_name

SECRET = "(not shown)"


class Inspector:
    """Answers questions about the catalog; changes nothing."""

    def __init__(self, log: Log, catalog: Catalog, settings: ProjectSettings, status: EngineStatus) -> None:
        self._log = log
        self._catalog = catalog
        self._settings = settings
        self._status = status

    def inspect(self, statement: Show | Describe | DescribeFunction | Explain) -> StatementResult:
        match statement:
            case Show():
                return self._show(statement)
            case Describe():
                return self._describe(statement)
            case DescribeFunction():
                return self._describe_function(statement)
            case Explain():
                return self._explain(statement)

    def _show(self, statement: Show) -> StatementResult:
        text = statement.text
        match statement.subject:
            case "STREAMS" | "TABLES":
                kind = statement.subject[:-1].lower()
                sources = [source for source in self._catalog.sources() if source.kind == kind]
                columns = ["name", "topic", "format", "windowed", "written by"]
                empty = f"no {kind}s; CREATE {kind.upper()} makes one"
                listed = table_result(text, columns, map(_source_row, sources), empty)
                if statement.extended and sources:
                    return replace(listed, text="\n\n".join(self._facts_text(source, True) for source in sources))
                return listed
            case "TOPICS":
                topics = [topic for topic in self._log.topics() if statement.all or not topic.internal]
                columns = ["topic", "role", "partitions", counts(self._log)]
                return table_result(text, columns, of_each(topics, self._topic_row), "no topics")
            case "QUERIES":
                columns = ["id", "state", "writes", "reads", "statement"]
                queries = map(self._query_row, self._catalog.queries())
                return table_result(text, columns, queries, "no queries; CREATE TABLE … AS SELECT makes one")
            case "FUNCTIONS":
                known = {**FUNCTIONS, **self._catalog.functions()}
                rows = [[f.name, f.kind, f.summary, f.origin or None] for _, f in sorted(known.items())]
                return table_result(text, ["name", "kind", "summary", "from"], rows)
            case "TYPES":
                types = [[name, str(type_)] for name, type_ in sorted(self._catalog.types().items())]
                return table_result(text, ["name", "type"], types, "no types; CREATE TYPE … AS … makes one")
            case "VARIABLES":
                empty = "variables are known while a text runs: DEFINE name = 'value'; and then ${name}"
                return table_result(text, ["name", "value"], [], empty)
            case "PROPERTIES":
                return table_result(text, ["property", "value"], properties(self._settings))

    def _topic_row(self, topic: Topic) -> list[Any]:
        return [topic.name, topic.spec.role, topic.spec.partitions, self._log.stats(topic.name).records]

    def _query_row(self, query: QueryDefinition) -> list[Any]:
        reads = ", ".join(map(display_name, query.sources))
        return [query.id, self._state(query), display_name(query.sink), reads, " ".join(query.statement.split())]

    def _state(self, query: QueryDefinition) -> str:
        status = self._status.status(query.id)
        if status is not None:
            return status.state
        return "stopped" if query.wanted == "stopped" else "starting"

    # DESCRIBE

    def _describe(self, statement: Describe) -> StatementResult:
        source = self._catalog.source(statement.name)
        if source is None:
            known = [known.name for known in self._catalog.sources()]
            hint = did_you_mean(statement.name, known, "SHOW STREAMS; and SHOW TABLES; list all", display_name)
            message = f"stream or table `{display_name(statement.name)}` does not exist"
            raise statement.script.error(message, statement.target.span, hint)
        rows = [[display_name(column.name), str(column.type), _role(source, column.name)] for column in source.columns]
        described = table_result(statement.text, ["column", "type", "key"], rows)
        return replace(described, text=self._facts_text(source, statement.extended), query_id=source.query)

    def _facts_text(self, source: Source, extended: bool) -> str:
        return "\n".join(f"{name:<12} {value}" for name, value in self._facts(source, extended))

    def _facts(self, source: Source, extended: bool) -> list[tuple[str, str]]:
        facts = [
            (source.kind, display_name(source.name)),
            ("topic", f"{source.topic}, {source.partitions} partition{'s' if source.partitions != 1 else ''}"),
            ("format", f"key {source.key_format}, value {source.value_format}"),
            ("time", f"from {display_name(source.timestamp)}" if source.timestamp else "of arrival"),
        ]
        if source.window:
            facts.append(("window", window_text(source.window)))
        facts.append(("read by", ", ".join(self._readers(source)) or "no query"))
        if source.query:
            facts.append(("written by", self._writer(source.query)))
        if extended:
            facts += self._more_facts(source)
        return facts

    def _readers(self, source: Source) -> list[str]:
        """Queries that read it, and streams and tables over its topic that none reads yet."""
        catalog, found = self._catalog, []
        over = [one.name for one in catalog.declared_over(source.name)]
        for query in catalog.readers(source.name):
            through = [display_name(name) for name in over if name in query.sources]
            direct = source.name in query.sources
            found.append(query.id if direct else f"{query.id} (through {', '.join(through)})")
        return found + [display_name(name) for name in over if not catalog.readers(name)]

    def _more_facts(self, source: Source) -> list[tuple[str, str]]:
        stats = self._log.stats(source.topic)
        view = self._catalog.view(source.name)
        stored = (
            f"  ({stats.bytes:,} bytes in {stats.segments:,} segments)" if "sizes" in self._log.capabilities else ""
        )
        facts: list[tuple[str, str]] = [(counts(self._log), f"{stats.records:,}{stored}")]
        if view:
            facts.append(("served", f"version {view.version}"))
        return [*facts, ("statement", source.statement)]

    def _writer(self, query_id: str) -> str:
        query = self._catalog.query(query_id)
        return f"{query_id} ({self._state(query)})" if query else query_id

    def _describe_function(self, statement: DescribeFunction) -> StatementResult:
        function = check_function(statement, self._catalog)
        signatures = "\n".join(f"  {function.name}{signature.text}" for signature in function.signatures)
        text = f"{function.name}: {function.summary}\n{signatures}"
        if function.example:
            text += f"\n  for example {function.example}"
        if function.origin:
            text += f"\n  {function.kind}, in Python: {function.origin}, version {function.version}"
        return StatementResult(statement.text, "text", text=text)

    # EXPLAIN

    def _explain(self, statement: Explain) -> StatementResult:
        if statement.query_id is not None:
            return self._explain_query(statement, statement.query_id)
        inner = statement.statement
        assert inner is not None
        plan = self._plan(inner)
        parts = [explain(plan)]
        if isinstance(inner, CreateAsSelect) and (change := change_text(inner, self._log, self._catalog)):
            parts.append(change)
        return StatementResult(statement.text, "text", text="\n\n".join(parts), plan=plan_tree(plan))

    def _explain_query(self, statement: Explain, query_id: str) -> StatementResult:
        query = self._catalog.query(query_id)
        if query is None:
            span = statement.query.span if statement.query else None
            hint = query_hint(query_id, self._catalog)
            raise statement.script.error(f"query `{query_id}` does not exist", span, hint)
        status = self._status.status(query_id)
        plan = self._query_plan(query)
        parts = [query.statement, f"{query.id} is {self._state(query)}", explain(plan)]
        if statement.extended:
            parts.append((status and status.spark_plan) or "Spark has no plan of it yet: it has not run a batch")
        tree = plan_tree(plan)
        return StatementResult(statement.text, "text", text="\n\n".join(parts), query_id=query_id, plan=tree)

    def _query_plan(self, query: QueryDefinition) -> Plan:
        [statement] = parse(query.statement)
        assert isinstance(statement, CreateAsSelect | InsertSelect | SelectStatement)
        return self._plan(statement)

    def _plan(self, statement: CreateAsSelect | InsertSelect | SelectStatement) -> Plan:
        if isinstance(statement, CreateAsSelect):
            return plan_query(statement, self._catalog)
        if isinstance(statement, InsertSelect):
            return plan_insert_select(statement, self._catalog)
        return plan_select(statement, self._catalog)


def _source_row(source: Source) -> list[Any]:
    windowed = window_text(source.window) if source.window else None
    return [display_name(source.name), source.topic, source.value_format, windowed, source.query]


def _role(source: Source, name: str) -> str | None:
    if any(column.name == name for column in source.key):
        return "primary key" if source.kind == "table" else "key"
    if any(header.name == name for header in source.headers):
        return "headers"
    is_value = any(column.name == name for column in source.value)
    return None if is_value else "window"


def window_text(window: Window) -> str:
    """
    >>> window_text(Window("hopping", 300_000, 60_000, 10_000))
    'hopping 300 s, advance 60 s, grace 10 s'
    """
    parts = [f"{window.kind} {window.size_ms / 1000:g} s"]
    if window.kind == "hopping":
        parts.append(f"advance {window.advance_ms / 1000:g} s")
    parts.append(f"grace {window.grace_ms / 1000:g} s")
    return ", ".join(parts)


def properties(settings: ProjectSettings) -> list[tuple[str, str]]:
    """Every setting that is in force, by its path. Keys stay secret."""
    found: list[tuple[str, str]] = []

    def collect(path: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                collect(f"{path}.{name}" if path else name, inner)
        elif path == "auth.keys":
            found.append((path, f"{len(value)} keys {SECRET}" if value else "none"))
        else:
            found.append((path, str(value)))

    collect("", msgspec.to_builtins(settings))
    return found
