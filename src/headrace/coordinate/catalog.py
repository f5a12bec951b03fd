"""The catalog: streams, tables, queries and views, folded from the events on `_catalog`.

Only the server writes events (`StatementExecutor`); whoever wants to know follows the topic. The state is an
immutable value that is replaced as a whole, so readers need no lock.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from headrace.coordinate.base import CATALOG_TOPIC, QueryDefinition, ViewDefinition
from headrace.coordinate.events import (
    Event,
    QueryCreated,
    QueryDropped,
    QueryWanted,
    SourceCreated,
    SourceDropped,
    TopicDeleted,
    TypeCreated,
    TypeDropped,
    ViewCreated,
    ViewDropped,
    decode_event,
    encode_event,
)
from headrace.log.base import Append, Log, TopicSpec
from headrace.log.dead_letters import DEAD_LETTERS_SPEC
from headrace.sql.functions.function import Function
from headrace.sql.source import Source
from headrace.types import VARCHAR, Column, DataType

T = TypeVar("T")

EVENT_COLUMN = "EVENT"
CATALOG_SPEC = TopicSpec(CATALOG_TOPIC, value=(Column(EVENT_COLUMN, VARCHAR),), role="derived")

# Every project can query what was rejected.
DEAD_LETTERS = Source(
    name="DEAD_LETTERS",
    kind="stream",
    topic=DEAD_LETTERS_SPEC.name,
    key=(),
    value=DEAD_LETTERS_SPEC.value,
    statement="-- built in",
)
BUILT_IN = (DEAD_LETTERS,)


@dataclass(frozen=True, slots=True)
class CatalogState:
    """Everything that is defined, after the first `events` events."""

    sources: Mapping[str, Source] = field(default_factory=lambda: {source.name: source for source in BUILT_IN})
    queries: Mapping[str, QueryDefinition] = field(default_factory=dict)
    views: Mapping[str, ViewDefinition] = field(default_factory=dict)
    last_query_number: int = 0
    """Numbers of dropped queries are not used again: their checkpoints and ledgers may still be lying about."""
    view_versions: Mapping[str, int] = field(default_factory=dict)
    """The newest version a view of this name ever had, dropped or not, for the same reason."""
    doomed_topics: frozenset[str] = frozenset()
    """Topics dropped with their source that may not be deleted yet: somebody may have been killed in between."""
    types: Mapping[str, DataType] = field(default_factory=dict)
    events: int = 0


def fold(state: CatalogState, event: Event) -> CatalogState:
    """The state after `event`. Pure: the same events give the same catalog anywhere."""
    state = replace(state, events=state.events + 1)
    match event:
        case SourceCreated(source):
            return replace(state, sources={**state.sources, source.name: source})
        case SourceDropped(name, doomed):
            topics = state.doomed_topics | ({doomed} if doomed else set())
            return replace(state, sources=_without(state.sources, name), doomed_topics=topics)
        case TopicDeleted(name):
            return replace(state, doomed_topics=state.doomed_topics - {name})
        case QueryCreated(query):
            number = max(state.last_query_number, query_number(query.id))
            return replace(state, queries={**state.queries, query.id: query}, last_query_number=number)
        case QueryWanted(id_, wanted):
            if id_ not in state.queries:
                return state
            return replace(state, queries={**state.queries, id_: replace(state.queries[id_], wanted=wanted)})
        case QueryDropped(id_):
            return replace(state, queries=_without(state.queries, id_))
        case ViewCreated(view):
            versions = {**state.view_versions, view.name: max(view.version, state.view_versions.get(view.name, 0))}
            return replace(state, views={**state.views, view.name: view}, view_versions=versions)
        case ViewDropped(name):
            return replace(state, views=_without(state.views, name))
        case TypeCreated(name, type_):
            return replace(state, types={**state.types, name: type_})
        case TypeDropped(name):
            return replace(state, types=_without(state.types, name))


def fold_all(state: CatalogState, events: Iterable[Event]) -> CatalogState:
    for event in events:
        state = fold(state, event)
    return state


def query_number(query_id: str) -> int:
    """
    >>> query_number("CTAS_VIEWS_BY_PAGE_12")
    12
    """
    found = re.search(r"_(\d+)$", query_id)
    return int(found.group(1)) if found else 0


def _without(mapping: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in mapping.items() if key != name}


class Catalog:
    """The catalog of one log, as of the last `refresh`. Safe to use from several threads."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.RLock()
        self._state = CatalogState()
        self._next = 0
        """The offset to read next; not every offset need have an event."""
        self._listeners: list[Callable[[], None]] = []
        self.refresh()

    @property
    def state(self) -> CatalogState:
        return self._state

    def refresh(self) -> bool:
        """Apply what is new on the topic; true if anything was. Cheap when nothing is."""
        with self._lock:
            ends = self._log.snapshot().ends.get(CATALOG_TOPIC)
            if not ends or ends[0].end <= self._next:
                return False
            state = fold_all(self._state, self._read(self._next, ends[0].end))
            self._next, changed = ends[0].end, state.events > self._state.events
            self._state = state
        if not changed:
            return False
        for listener in list(self._listeners):
            listener()
        return True

    def append(self, events: Sequence[Event]) -> None:
        """Write events as one atomic append, and apply them. Only the server does this."""
        batch = pa.record_batch({EVENT_COLUMN: pa.array([encode_event(event) for event in events], pa.string())})
        self._log.append([Append(CATALOG_TOPIC, batch)]).result()
        self.refresh()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each refresh that changed something, in the thread that refreshed."""
        self._listeners.append(listener)

    def source(self, name: str) -> Source | None:
        return self._state.sources.get(name)

    def sources(self) -> list[Source]:
        """By name; those of transient queries are nobody's business."""
        state = self._state
        shown = (s for s in state.sources.values() if not _is_transient(state, s))
        return sorted(shown, key=lambda source: source.name)

    def functions(self) -> Mapping[str, Function]:
        """Those written in Python."""
        return {}

    def types(self) -> Mapping[str, DataType]:
        """Those of CREATE TYPE."""
        return self._state.types

    def query(self, query_id: str) -> QueryDefinition | None:
        return self._state.queries.get(query_id)

    def queries(self) -> list[QueryDefinition]:
        """In the order they were created, transient ones too."""
        return sorted(self._state.queries.values(), key=lambda query: query_number(query.id))

    def view(self, name: str) -> ViewDefinition | None:
        return self._state.views.get(name)

    def views(self) -> list[ViewDefinition]:
        return sorted(self._state.views.values(), key=lambda view: view.name)

    def readers(self, source_name: str) -> list[QueryDefinition]:
        """The queries that read a stream or table."""
        return [query for query in self.queries() if source_name in query.sources]

    def writers(self, source_name: str) -> list[QueryDefinition]:
        """The queries that write a stream or table: its own, and those of INSERT INTO … SELECT."""
        return [query for query in self.queries() if query.sink == source_name]

    def over_topic(self, topic: str) -> list[Source]:
        """The streams and tables declared over a topic."""
        return [source for source in self._state.sources.values() if source.topic == topic]

    def _read(self, start: int, end: int) -> Iterable[Event]:
        for records in self._log.read(CATALOG_TOPIC, 0, start, end, [EVENT_COLUMN]):
            for text in records.batch.column(EVENT_COLUMN).to_pylist():
                yield decode_event(text)


def _is_transient(state: CatalogState, source: Source) -> bool:
    query = state.queries.get(source.query) if source.query else None
    return query is not None and query.transient


def create_internal_topics(log: Log) -> None:
    """The topics every project has. Does nothing when they are there."""
    log.create_topic(CATALOG_SPEC)
    log.create_topic(DEAD_LETTERS_SPEC)
