"""Creating: the events that say a query, its source and its view are there. A query that lives for one listener or one
question is made of the same parts, and has no view."""

from __future__ import annotations

from dataclasses import replace

from headrace.coordinate.base import TRANSIENT_PREFIX, QueryDefinition, ViewDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.dropping import check_not_building
from headrace.coordinate.events import Event, QueryCreated, SourceCreated, ViewCreated
from headrace.coordinate.functions import used_files
from headrace.coordinate.layers import refuse_layered
from headrace.coordinate.topics import check_sink
from headrace.errors import Conflict
from headrace.log.base import Log
from headrace.sql.api import transient_query
from headrace.sql.ask_plan import AskQuery
from headrace.sql.plan import PersistentQuery, PushQuery
from headrace.sql.source import Source
from headrace.types import VARCHAR, Column, display_name
from headrace.views.public import place_over, public_topic
from headrace.views.versions import version_topic


def new_query_id(prefix: str, name: str, number: int) -> str:
    """Ids are names of folders and topics too: what those cannot have becomes `_`, and long names are cut."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    return f"{prefix}_{plain[:100]}_{number}"


def query_definition(
    plan: PersistentQuery | AskQuery, sink: Source, query_id: str, text: str, now_ms: int, transient: bool = False
) -> QueryDefinition:
    return QueryDefinition(
        id=query_id,
        version=1,
        statement=text,
        sink=sink.name,
        sources=tuple(dict.fromkeys(source.name for source in plan.inputs)),
        transient=transient,
        created_ms=now_ms,
        functions=used_files(plan),
    )


def place_sink(sink: Source, log: Log, catalog: Catalog) -> Source:
    """What a new query is to write, with a topic that is free. A name that was dropped, or rolled back to nothing, may
    have versions that are kept, and one of them its topic."""
    over = {source.name for source in catalog.over_topic(sink.topic)} | catalog.publishing(sink.topic)
    if sink.name in over and sink.name not in catalog.state.sources:
        over.remove(sink.name)
        sink = replace(sink, topic=version_topic(sink.topic, catalog.state.view_versions.get(sink.name, 0) + 1))
    if over:
        raise Conflict(
            f"topic `{sink.topic}` belongs to `{', '.join(map(display_name, sorted(over)))}`",
            hint="give the query a topic of its own:  WITH (KAFKA_TOPIC='…')",
        )
    check_sink(log, sink)
    return sink


def placed_source(source: Source, catalog: Catalog) -> Source:
    """Return a declared stream or table with the topic that it reads: where it names the topic of a stream or table
    that a query writes, the topic of the version that serves. Later switches take it along (`views.plan`)."""
    owner = catalog.owner(source.topic)
    if owner is not None and owner.name != source.name:
        # The switch would leave behind what is declared while it is being prepared.
        check_not_building(catalog, owner.name)
        refuse_layered(catalog, [owner])
        return place_over(source, owner)
    made = catalog.maker(source.topic)
    if made is not None and (public := public_topic(made.source)) != source.topic:
        raise Conflict(
            f"topic `{source.topic}` is internal: it is version {made.number} of `{display_name(made.name)}`",
            hint=f"read the version that serves:  KAFKA_TOPIC='{public}'",
        )
    return source


def created(plan: PersistentQuery, query_id: str, text: str, catalog: Catalog, now_ms: int) -> list[Event]:
    sink = replace(plan.sink, statement=text, query=query_id)
    query = query_definition(plan, sink, query_id, text, now_ms)
    return [*created_source(sink, catalog), QueryCreated(query)]


def created_source(source: Source, catalog: Catalog) -> list[Event]:
    """A table is a view too."""
    if source.kind == "stream":
        return [SourceCreated(source)]
    version = catalog.state.view_versions.get(source.name, 0) + 1
    return [SourceCreated(source), ViewCreated(ViewDefinition(source.name, version, source.query, source.topic))]


def created_for_push(push: PushQuery, query_id: str, text: str, now_ms: int) -> tuple[SourceCreated, QueryCreated]:
    plan = transient_query(push, query_id)
    return _temporary(plan, plan.sink, query_id, text, now_ms)


def created_for_question(ask: AskQuery, query_id: str, text: str, now_ms: int) -> tuple[SourceCreated, QueryCreated]:
    # Names nobody else has: an answer may have columns that are called like those every source has.
    columns = tuple(Column(f"C{place}", column.type) for place, column in enumerate(ask.columns))
    return _temporary(ask, Source(query_id, "stream", query_id, (), columns), query_id, text, now_ms)


def created_for_plan(
    plan: PersistentQuery, query_id: str, text: str, now_ms: int
) -> tuple[SourceCreated, QueryCreated]:
    """EXPLAIN EXTENDED: the answer is in the engine's report, and the topic stays empty."""
    sink = Source(query_id, "stream", query_id, (), (Column("PLAN", VARCHAR),))
    return _temporary(plan, sink, query_id, text, now_ms)


def _temporary(
    plan: PersistentQuery | AskQuery, sink: Source, query_id: str, text: str, now_ms: int
) -> tuple[SourceCreated, QueryCreated]:
    sink = replace(sink, topic=TRANSIENT_PREFIX + query_id, statement=text, query=query_id)
    return SourceCreated(sink), QueryCreated(query_definition(plan, sink, query_id, text, now_ms, transient=True))
