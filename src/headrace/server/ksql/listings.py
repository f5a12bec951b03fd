"""What SHOW lists, as ksqlDB's entities."""

from __future__ import annotations

from headrace.coordinate.result import StatementResult
from headrace.coordinate.show import properties
from headrace.log.base import Topic
from headrace.server.ksql.descriptions import Entity, description, query_description, query_entity
from headrace.server.ksql.schemas import schema_json
from headrace.server.queries import plan_text
from headrace.server.services import Services
from headrace.sql.api import FUNCTIONS
from headrace.sql.source import Source
from headrace.sql.statements import Show


def shown(statement: Show, result: StatementResult, services: Services) -> Entity:
    match str(statement.subject):
        case "STREAMS" | "TABLES" as subject:
            return _sources(subject, statement.extended, services)
        case "QUERIES":
            return _queries(statement.extended, services)
        case "TOPICS":
            topics = [topic for topic in services.log.topics() if statement.all or not topic.internal]
            listed = [_topic(topic, statement.extended) for topic in topics]
            return {"@type": "kafka_topics_extended" if statement.extended else "kafka_topics", "topics": listed}
        case "FUNCTIONS":
            known = {**FUNCTIONS, **services.catalog.functions()}.values()
            named = sorted((function.name, function.kind.upper()) for function in known)
            functions = [{"name": name, "type": kind, "category": ""} for name, kind in named]
            return {"@type": "function_names", "functions": functions}
        case "TYPES":
            types = {name: schema_json(type_) for name, type_ in sorted(services.catalog.types().items())}
            return {"@type": "type_list", "types": types}
        case "VARIABLES":
            return {"@type": "variables", "variables": [{"name": n, "value": v} for n, v in result.rows or ()]}
        case _:
            return _properties(services)


def _properties(services: Services) -> Entity:
    settings = properties(services.project.settings)
    listed = [{"name": name, "scope": "KSQL", "value": value, "editable": False} for name, value in settings]
    names = [name for name, _ in settings]
    return {"@type": "properties", "properties": listed, "overwrittenProperties": [], "defaultProperties": names}


def _sources(subject: str, extended: bool, services: Services) -> Entity:
    found = [source for source in services.catalog.sources() if source.kind == subject[:-1].lower()]
    if extended:
        described = [description(source, True, services) for source in found]
        return {"@type": "source_descriptions", "sourceDescriptions": described}
    return {"@type": subject.lower(), subject.lower(): [_listed(source) for source in found]}


def _queries(extended: bool, services: Services) -> Entity:
    queries = services.catalog.queries()
    if extended:
        described = [query_description(query, services, plan_text(query, services)) for query in queries]
        return {"@type": "queryDescriptions", "queryDescriptions": described}
    return {"@type": "queries", "queries": [query_entity(query, services) for query in queries]}


def _topic(topic: Topic, extended: bool) -> Entity:
    consumers = {"consumerCount": 0, "consumerGroupCount": 0} if extended else {}
    return {"name": topic.name, "replicaInfo": [1] * topic.spec.partitions, **consumers}


def _listed(source: Source) -> Entity:
    return {
        "type": source.kind.upper(),
        "name": source.name,
        "topic": source.topic,
        "keyFormat": source.key_format,
        "valueFormat": source.value_format,
        "isWindowed": source.window is not None,
    }
