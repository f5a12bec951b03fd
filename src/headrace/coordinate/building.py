"""The versions that a deployment builds: their topics, and the queries that fill them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.creating import new_query_id
from headrace.coordinate.events import Event, QueryCreated, VersionCreated
from headrace.coordinate.functions import used_files
from headrace.coordinate.layers import batch_events, partial_sink
from headrace.coordinate.schemas import register_schemas
from headrace.coordinate.starts import starts_from
from headrace.coordinate.topics import ensure_declared, ensure_sink, late_spec
from headrace.log.base import Log
from headrace.sql.plan import keeps_headers, may_be_late
from headrace.views.change import Change
from headrace.views.versions import Deployment, Version


def version_events(
    log: Log, catalog: Catalog, changes: Sequence[Change], deployment: Deployment, start: str = "beginning"
) -> list[Event]:
    """What begins them. Their topics are made first: what is cut short here leaves an empty topic, which the next
    attempt takes."""
    events: list[Event] = []
    last = catalog.state.last_query_number
    built = [change for change in changes if change.verdict not in ("drops", "serves again")]
    new_topics = {change.source.topic for change in built if change.source is not None and change.query is not None}
    for change in built:
        if change.query is None:
            events.append(VersionCreated(_declared_version(log, change, deployment)))
            continue
        prefix, last = "CSAS" if change.kind == "stream" else "CTAS", last + 1
        id_ = new_query_id(prefix, change.name, last)
        sink = replace(change.query.sink, query=id_, statement=change.statement)
        register_schemas(log, catalog, sink)
        written = partial_sink(change.query) if change.strategy == "lambda" else sink
        ensure_sink(log, written, keeps_headers(change.query.root))
        if may_be_late(change.query.root):
            log.create_topic(late_spec(id_))
        inputs = {source.name: source.topic for source in change.query.inputs}
        first = [topic for topic in inputs.values() if topic not in new_topics]
        query = QueryDefinition(
            id=id_,
            version=1,
            statement=change.statement,
            sink=sink.name,
            sources=tuple(inputs),
            created_ms=deployment.started_ms,
            sink_topic=sink.topic,
            reads=inputs,
            starts=starts_from(start, log, first),
            rows_per_second=deployment.rows_per_second if first else 0,
            functions=used_files(change.query),
        )
        version = Version(sink.name, change.number, sink, "building", deployment.id, deployment.started_ms)
        if change.strategy == "lambda":
            last += 1
            events += batch_events(log, version, query, new_query_id("BATCH", change.name, last))
        else:
            events += [VersionCreated(version), QueryCreated(query)]
    return events


def _declared_version(log: Log, change: Change, deployment: Deployment) -> Version:
    """The version of a declaration that reads a version of something else, which is built or serves again."""
    assert change.source is not None
    source = replace(change.source, statement=change.statement)
    topic = ensure_declared(log, source, partitions_given=False)
    source = replace(source, partitions=topic.spec.partitions)
    return Version(source.name, change.number, source, "building", deployment.id, deployment.started_ms)
