"""Dropping: whether a source may go, who is in the way, and the events that say it is gone."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.coordinate.base import TRANSIENT_PREFIX, QueryDefinition, late_topic
from headrace.coordinate.catalog import BUILT_IN, Catalog
from headrace.coordinate.definitions import drop_text
from headrace.coordinate.events import Event, QueryDropped, SourceDropped, TopicDeleted, VersionDropped, ViewDropped
from headrace.coordinate.topics import find_topic
from headrace.errors import Conflict, SqlError
from headrace.log.base import Log
from headrace.nearest import did_you_mean
from headrace.sql.source import Source
from headrace.sql.statements import Drop
from headrace.types import display_name
from headrace.views.public import public_topic
from headrace.views.versions import NONE, Version, query_ids

LATE_PREFIX = late_topic("")


def dropped_version(version: Version) -> list[Event]:
    """A version that does not serve, its query, and its topic if that is its own. What is only declared over a topic
    has none: what was sent there cannot be computed again, and another may be declared over it."""
    queries = [QueryDropped(id_) for id_ in query_ids(version)]
    topic = version.source.topic if queries else None
    return [*queries, VersionDropped(version.name, version.number, topic)]


def dropped_with_readers(version: Version, catalog: Catalog) -> list[Event]:
    """The same, with the versions that are declared over its topic: that goes, so they have nothing to read."""
    over = [one for one in catalog.beside() if one.source.topic == version.source.topic and one.source.query is None]
    declared = over if version.source.query is not None else []
    events = [*(event for one in declared for event in dropped_version(one)), *dropped_version(version)]
    public = public_topic(version.source)
    if version.source.query is not None and public != version.source.topic and len(catalog.versions(version.name)) == 1:
        events.append(VersionDropped(version.name, NONE, public))  # the last one: nobody publishes any more
    return events


def dropped_query(query: QueryDefinition) -> list[Event]:
    """A query and the source it writes."""
    return [SourceDropped(query.sink), QueryDropped(query.id)]


def dropped_source(source: Source, delete_topic: bool, catalog: Catalog) -> list[Event]:
    """A source with its view and versions, the query that writes it, and the push queries that read it."""
    events: list[Event] = []
    for reader in catalog.readers(source.name):
        events += dropped_query(reader)
    for version in catalog.versions(source.name):
        if version.source.topic != source.topic:
            events += dropped_with_readers(version, catalog)
    public, over = public_topic(source), catalog.declared_over(source.name)
    # A version's own topic is nobody's but what is declared over it; the public one goes if that was said.
    internal = source.query is not None and public != source.topic
    events.append(SourceDropped(source.name, source.topic if delete_topic or (internal and not over) else None))
    if internal and delete_topic:
        events.append(VersionDropped(source.name, NONE, public))
    if source.query:
        events.append(QueryDropped(source.query))
    if catalog.view(source.name):
        events.append(ViewDropped(source.name))
    return events


def droppable(source: Source | None, statement: Drop, catalog: Catalog) -> Source:
    """The source, if it may go."""

    def refuse(message: str, hint: str | None) -> SqlError:
        return statement.script.error(message, statement.target.span, hint)

    if source is None:
        known = [known.name for known in catalog.sources() if known.kind == statement.kind]
        hint = did_you_mean(statement.name, known, f"SHOW {statement.kind.upper()}S; lists all", display_name)
        raise refuse(f"{statement.kind} `{display_name(statement.name)}` does not exist", hint)
    name = display_name(source.name)
    if source in BUILT_IN:
        raise refuse(f"`{name}` is built in", None)
    if source.kind != statement.kind:
        raise refuse(f"`{name}` is a {source.kind}", drop_text(source))
    if source.read_only and statement.delete_topic:
        raise refuse(f"`{name}` is a SOURCE: its topic is not deleted with it", "leave out DELETE TOPIC")
    check_not_building(catalog, source.name)
    _check_unused(source, statement.delete_topic, catalog)
    return source


def check_not_building(catalog: Catalog, *names: str) -> None:
    """What is changed now would be another with the switch, and what is made from it now would stay with what goes."""
    for deployment in catalog.deployments():
        changing = [] if deployment.over else [name for name in names if name in deployment.changes()]
        if changing:
            raise Conflict(
                f"deployment {deployment.id} is changing `{display_name(changing[0])}`",
                hint=f"wait for it, or end it:  headrace deploy cancel {deployment.id}",
            )


def _check_unused(source: Source, delete_topic: bool, catalog: Catalog) -> None:
    """A push query does not hold anything up: it ends. What others were made of does."""
    readers = [query for query in catalog.readers(source.name) if not query.transient]
    writers = [query.id for query in catalog.writers(source) if query.id != source.query]
    if writers:
        name = display_name(source.name)
        raise Conflict(
            f"{source.kind} `{name}` is written by {', '.join(writers)} of INSERT INTO",
            hint=f"first:  TERMINATE {writers[0]};",
        )
    if readers:
        who = ", ".join(f"{query.id} ({_writes(query, catalog)})" for query in readers)
        raise Conflict(
            f"{source.kind} `{display_name(source.name)}` is read by {who}", hint=_freed_by(readers, catalog)
        )
    others = [display_name(o.name) for o in catalog.over_topic(source.topic) if o.name != source.name]
    if delete_topic and others:
        raise Conflict(
            f"topic `{source.topic}` is also under `{', '.join(others)}`",
            hint="drop those first, or keep the topic",
        )


def _writes(query: QueryDefinition, catalog: Catalog) -> str:
    version = catalog.version_of(query)
    kept = f", version {version.number}, {version.state}" if version and version.state != "serving" else ""
    return f"writes `{display_name(query.sink)}`{kept}"


def _freed_by(readers: Sequence[QueryDefinition], catalog: Catalog) -> str:
    """Return what to do about readers that are in the way: those that serve first, all by name."""
    serving: list[Source] = []
    for query in readers:
        version, source = catalog.version_of(query), catalog.source(query.sink)
        if source is not None and (version is None or version.state != "retired"):
            serving.append(source)
    if not serving:
        forgotten = dict.fromkeys(f"headrace view forget {display_name(query.sink)}" for query in readers)
        return f"kept for a rollback; give that up:  {'  '.join(forgotten)}"
    return f"first change what reads it, or drop that too:  {'  '.join(map(drop_text, serving))}"


def sweep(log: Log, catalog: Catalog) -> None:
    """Delete topics that were dropped, and ledgers and transient topics whose query is gone."""
    for name in sorted(catalog.state.doomed_topics):
        if find_topic(log, name):
            log.delete_topic(name)
        catalog.append([TopicDeleted(name)])
    versions = (version for known in catalog.state.versions.values() for version in known.values())
    alive = {query.id for query in catalog.queries()} | {id_ for version in versions for id_ in query_ids(version)}
    for topic in log.topics():
        for prefix in (LATE_PREFIX, TRANSIENT_PREFIX):
            if topic.name.startswith(prefix) and topic.name.removeprefix(prefix) not in alive:
                log.delete_topic(topic.name)
