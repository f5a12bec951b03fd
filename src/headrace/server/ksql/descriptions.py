"""Sources, queries and functions in detail, as the entities of ksqlDB's DESCRIBE, EXPLAIN and `SHOW … EXTENDED`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.describe import counts
from headrace.coordinate.result import StatementResult
from headrace.errors import UsageError
from headrace.server.ksql.schemas import schema_json, schema_text
from headrace.server.services import Services
from headrace.sql.api import FUNCTIONS, plan_insert_select, plan_query, plan_select
from headrace.sql.ask_plan import AskQuery
from headrace.sql.functions.signatures import Signature
from headrace.sql.plan import PersistentQuery, PullQuery, PushQuery
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect, Explain, InsertSelect, SelectStatement
from headrace.types import Column

Entity = dict[str, Any]


def query_entity(query: QueryDefinition, services: Services) -> Entity:
    state = query_state(query, services)
    sink = services.catalog.source(query.sink)
    return {
        "queryString": query.statement,
        "sinks": [] if query.transient else [query.sink],
        "sinkKafkaTopics": [] if query.transient or sink is None else [sink.topic],
        "id": query.id,
        "statusCount": {state: 1},
        "queryType": "PUSH" if query.transient else "PERSISTENT",
        "state": state,
    }


def query_state(query: QueryDefinition, services: Services) -> str:
    """One of Kafka Streams' states that these clients know."""
    status = services.engine.status(query.id)
    if query.wanted == "stopped":
        return "PAUSED"
    known = {"running": "RUNNING", "failed": "ERROR", "stalled": "ERROR"}
    return known.get(status.state if status else "", "REBALANCING")


def description(source: Source, extended: bool, services: Services) -> Entity:
    readers = services.catalog.readers(source.name)
    writer = services.catalog.query(source.query) if source.query else None
    statistics = ""
    if extended:
        stats = services.log.stats(source.topic)
        what = "messages" if counts(services.log) == "records" else "offsets"
        statistics = f"total-{what}: {stats.records}  total-bytes: {stats.bytes}"
    return {
        "name": source.name,
        "windowType": source.window.kind.upper() if source.window else None,
        "readQueries": [query_entity(query, services) for query in readers],
        "writeQueries": [query_entity(writer, services)] if writer else [],
        "fields": [*_fields(source.key, "KEY"), *_fields(source.value)],
        "type": source.kind.upper(),
        "timestamp": source.timestamp or "",
        "statistics": statistics,
        "errorStats": "",
        "extended": extended,
        "keyFormat": source.key_format,
        "valueFormat": source.value_format,
        "topic": source.topic,
        "partitions": source.partitions,
        "replication": 1,
        "statement": source.statement,
        "queryOffsetSummaries": [],
        "sourceConstraints": [],
    }


def _fields(columns: Sequence[Column], role: str | None = None) -> Iterator[Entity]:
    for column in columns:
        yield {"name": column.name, "schema": schema_json(column.type)} | ({"type": role} if role else {})


def function_description(name: str, services: Services) -> Entity:
    function = {**FUNCTIONS, **services.catalog.functions()}[name.upper()]
    return {
        "@type": "describe_function",
        "name": function.name,
        "description": function.summary,
        "author": "Headrace",
        "version": function.version,
        "path": function.origin or "internal",
        "functions": [_signature(function.name, signature) for signature in function.signatures],
        "type": function.kind.upper(),
    }


def _signature(name: str, signature: Signature) -> Entity:
    last = len(signature.parameters) - 1
    arguments = [
        {"name": "", "type": text, "description": "", "isVariadic": signature.variadic and place == last}
        for place, text in enumerate(signature.parameter_texts)
    ]
    return {
        "arguments": arguments,
        "returnType": signature.result_text,
        "description": f"{name}{signature.text}",
        # The older name of the same, which clients of before 0.6 read.
        "argumentTypes": [argument["type"] for argument in arguments],
    }


def explained(statement: Explain, result: StatementResult, services: Services) -> Entity:
    """Of a query that runs, or of one that might."""
    query = services.catalog.query(result.query_id) if result.query_id else None
    if query is not None:
        return query_description(query, services, result.text or "")
    plan = plan_of(statement, services)
    return _described(plan, statement.text) | {"executionPlan": result.text or ""}


def plan_of(statement: Explain, services: Services) -> PersistentQuery | PushQuery | PullQuery | AskQuery:
    match statement.statement:
        case CreateAsSelect() as inner:
            return plan_query(inner, services.catalog)
        case InsertSelect() as inner:
            return plan_insert_select(inner, services.catalog)
        case SelectStatement() as inner:
            return plan_select(inner, services.catalog)
        case _:
            raise UsageError("there is nothing to explain", hint="EXPLAIN and a SELECT, or the id of a query")


def _described(plan: PersistentQuery | PushQuery | PullQuery | AskQuery, text: str) -> Entity:
    match plan:
        case PersistentQuery():
            keys, columns, sinks, kind = plan.sink.key, plan.sink.value, [plan.sink.name], "PERSISTENT"
            window = plan.sink.window
        case PushQuery():
            keys, columns, sinks, kind, window = (), plan.root.columns, [], "PUSH", None
        case AskQuery():
            keys, columns, sinks, kind, window = (), plan.columns, [], "PULL", None
        case PullQuery():
            keys, columns, sinks, kind = (), tuple(item.column for item in plan.items), [], "PULL"
            window = plan.source.window
    sources = [plan.source.name] if isinstance(plan, PullQuery) else [source.name for source in plan.inputs]
    return _query_fields(text, sources, sinks, kind, keys, columns) | {
        "windowType": window.kind.upper() if window else None
    }


def query_description(query: QueryDefinition, services: Services, plan_text: str) -> Entity:
    sink = services.catalog.source(query.sink)
    keys, columns = (sink.key, sink.value) if sink else ((), ())
    described = _query_fields(query.statement, list(query.sources), [query.sink], "PERSISTENT", keys, columns)
    state = query_state(query, services)
    return described | {
        "id": query.id,
        "windowType": sink.window.kind.upper() if sink and sink.window else None,
        "executionPlan": plan_text,
        "ksqlHostQueryStatus": {"": state},
        "state": state,
    }


def _query_fields(
    text: str, sources: list[str], sinks: list[str], kind: str, keys: Sequence[Column], columns: Sequence[Column]
) -> Entity:
    return {
        "id": "",
        "statementText": text,
        "windowType": None,
        "fields": [*_fields(keys, "KEY"), *_fields(columns)],
        "sources": sources,
        "sinks": sinks,
        "topology": "",
        "executionPlan": "",
        "overriddenProperties": {},
        "ksqlHostQueryStatus": {},
        "queryType": kind,
        "queryErrors": [],
        "state": None,
        "schema": schema_text((*keys, *columns), {column.name for column in keys}),
    }
