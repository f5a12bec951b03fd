"""What a statement did, as the entities of ksqlDB's `/ksql`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.result import StatementResult
from headrace.coordinate.show import properties
from headrace.server.ksql.schemas import schema_json, schema_text
from headrace.server.services import Services
from headrace.sql.api import FUNCTIONS
from headrace.sql.source import Source
from headrace.sql.statements import (
    CreateAsSelect,
    CreateSource,
    Describe,
    DescribeFunction,
    Drop,
    Explain,
    InsertValues,
    Show,
    Statement,
    Terminate,
)

Entity = dict[str, Any]


def entity_of(statement: Statement, result: StatementResult, services: Services) -> Entity:
    body = _body(statement, result, services)
    return {"@type": body.pop("@type"), "statementText": statement.text, **body, "warnings": []}


def _body(statement: Statement, result: StatementResult, services: Services) -> Entity:
    match statement:
        case Show():
            return _shown(statement, result, services)
        case Describe():
            source = services.catalog.source(statement.name)
            if source is not None:
                return {
                    "@type": "sourceDescription",
                    "sourceDescription": description(source, statement.extended, services),
                }
        case DescribeFunction():
            return _function(statement.name, services)
        case Explain():
            return {"@type": "queryDescription", "queryDescription": _explained(statement, result, services)}
    if result.kind in ("table", "text"):
        return {"@type": "text", "text": result.text, "columns": _names(result), "rows": result.rows or []}
    return {
        "@type": "currentStatus",
        "commandId": command_id(statement),
        "commandStatus": {"status": "SUCCESS", "message": result.message, "queryId": result.query_id},
        "commandSequenceNumber": services.catalog.state.events,
    }


def _names(result: StatementResult) -> list[str]:
    return [column.name for column in result.columns or ()]


def command_id(statement: Statement) -> str:
    """
    >>> from headrace.sql.api import parse
    >>> command_id(parse("DROP STREAM pageviews;")[0])
    'stream/PAGEVIEWS/drop'
    """
    match statement:
        case CreateSource() | CreateAsSelect():
            return f"{statement.kind}/{statement.name}/create"
        case Drop():
            return f"{statement.kind}/{statement.name}/drop"
        case InsertValues():
            return f"stream/{statement.target.name}/insert"
        case Terminate(query=query):
            return f"terminate/{query.name if query else 'ALL'}/execute"
        case _:
            return f"statement/{type(statement).__name__.upper()}/execute"


# SHOW


def _shown(statement: Show, result: StatementResult, services: Services) -> Entity:
    catalog, subject = services.catalog, str(statement.subject)
    match subject:
        case "STREAMS" | "TABLES":
            kind = subject[:-1].lower()
            found = [_listed(source) for source in catalog.sources() if source.kind == kind]
            return {"@type": subject.lower(), subject.lower(): found}
        case "QUERIES":
            return {"@type": "queries", "queries": [_query(query, services) for query in catalog.queries()]}
        case "TOPICS":
            topics = [topic for topic in services.log.topics() if statement.all or not topic.internal]
            listed = [{"name": topic.name, "replicaInfo": [1] * topic.spec.partitions} for topic in topics]
            return {"@type": "kafka_topics", "topics": listed}
        case "FUNCTIONS":
            kinds = {"scalar": "SCALAR", "aggregate": "AGGREGATE", "table": "TABLE"}
            named = sorted((f.name, kinds.get(f.kind, "SCALAR")) for f in {**FUNCTIONS, **catalog.functions()}.values())
            return {
                "@type": "function_names",
                "functions": [{"name": n, "type": kind, "category": ""} for n, kind in named],
            }
        case "PROPERTIES":
            settings = properties(services.project.settings)
            return {
                "@type": "properties",
                "properties": [{"name": n, "scope": "KSQL", "value": v, "editable": False} for n, v in settings],
                "overwrittenProperties": [],
                "defaultProperties": [n for n, _ in settings],
            }
        case _:
            return {"@type": "text", "text": result.text, "columns": _names(result), "rows": result.rows or []}


def _listed(source: Source) -> Entity:
    return {
        "type": source.kind.upper(),
        "name": source.name,
        "topic": source.topic,
        "keyFormat": source.key_format,
        "valueFormat": source.value_format,
        "isWindowed": source.window is not None,
    }


def _query(query: QueryDefinition, services: Services) -> Entity:
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
    return {"running": "RUNNING", "failed": "ERROR"}.get(status.state if status else "", "REBALANCING")


# DESCRIBE


def description(source: Source, extended: bool, services: Services) -> Entity:
    readers = services.catalog.readers(source.name)
    writer = services.catalog.query(source.query) if source.query else None
    statistics = ""
    if extended:
        stats = services.log.stats(source.topic)
        statistics = f"total-messages: {stats.records}  total-bytes: {stats.bytes}"
    return {
        "name": source.name,
        "windowType": source.window.kind.upper() if source.window else None,
        "readQueries": [_query(query, services) for query in readers],
        "writeQueries": [_query(writer, services)] if writer else [],
        "fields": list(_fields(source)),
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


def _fields(source: Source) -> Iterator[Entity]:
    for column in source.key:
        yield {"name": column.name, "schema": schema_json(column.type), "type": "KEY"}
    for column in source.value:
        yield {"name": column.name, "schema": schema_json(column.type)}


def _function(name: str, services: Services) -> Entity:
    function = {**FUNCTIONS, **services.catalog.functions()}[name.upper()]
    return {
        "@type": "describe_function",
        "name": function.name,
        "description": function.summary,
        "author": "Headrace",
        "version": function.version,
        "path": function.origin or "internal",
        "functions": [
            {"arguments": [], "returnType": "", "description": f"{function.name}{signature.text}"}
            for signature in function.signatures
        ],
        "type": function.kind.upper(),
    }


def _explained(statement: Explain, result: StatementResult, services: Services) -> Entity:
    query = services.catalog.query(result.query_id) if result.query_id else None
    sink = services.catalog.source(query.sink) if query else None
    return {
        "id": query.id if query else "",
        "statementText": query.statement if query else statement.text,
        "windowType": sink.window.kind.upper() if sink and sink.window else None,
        "fields": list(_fields(sink)) if sink else [],
        "sources": list(query.sources) if query else [],
        "sinks": [query.sink] if query else [],
        "topology": "",
        "executionPlan": result.text or "",
        "overriddenProperties": {},
        "ksqlHostQueryStatus": {},
        "queryType": "PERSISTENT" if query else "UNKNOWN",
        "queryErrors": [],
        "state": query_state(query, services) if query else None,
        "schema": schema_text(sink.key + sink.value, {c.name for c in sink.key}) if sink else "",
    }
