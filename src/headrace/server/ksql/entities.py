"""What a statement did, as the entities of ksqlDB's `/ksql`."""

from __future__ import annotations

from headrace.coordinate.result import StatementResult
from headrace.server.ksql.descriptions import Entity, description, explained, function_description
from headrace.server.ksql.listings import shown
from headrace.server.services import Services
from headrace.sql.statements import (
    AssertSchema,
    AssertTopic,
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


def entity_of(statement: Statement, result: StatementResult, services: Services) -> Entity:
    body = _body(statement, result, services)
    return {"@type": body.pop("@type"), "statementText": statement.text, **body, "warnings": []}


def _body(statement: Statement, result: StatementResult, services: Services) -> Entity:
    match statement:
        case Show():
            return shown(statement, result, services)
        case Describe():
            source = services.catalog.source(statement.name)
            if source is not None:
                return {
                    "@type": "sourceDescription",
                    "sourceDescription": description(source, statement.extended, services),
                }
        case DescribeFunction():
            return function_description(statement.name, services)
        case Explain():
            return {"@type": "queryDescription", "queryDescription": explained(statement, result, services)}
        case AssertTopic():
            return {"@type": "assert_topic", "topicName": statement.topic, "exists": statement.exists}
        case AssertSchema():
            asked = {"subject": statement.subject, "id": statement.id, "exists": statement.exists}
            return {"@type": "assert_schema", **asked}
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
