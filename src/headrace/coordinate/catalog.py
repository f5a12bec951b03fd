"""The catalog: streams, tables, queries and views, folded from the events on `_catalog`.

Only the server writes events (`StatementExecutor`); whoever wants to know follows the topic. The state is an
immutable value that is replaced as a whole, so readers need no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from hashlib import sha256

import msgspec
import pyarrow as pa

from headrace.coordinate.base import CATALOG_TOPIC, QueryDefinition, ViewDefinition
from headrace.coordinate.catalog_file import CatalogFile, Saved
from headrace.coordinate.events import DeploymentSaved, Event, decode_event, encode_event
from headrace.coordinate.fold import BUILT_IN, DEAD_LETTERS, CatalogState, fold, fold_all, has_samples, query_number
from headrace.coordinate.taking_over import History, Terms
from headrace.functions.compiled import Runtime
from headrace.functions.direct import DIRECT
from headrace.functions.files import FunctionFile
from headrace.functions.signatures import all_functions
from headrace.log.base import ARRIVAL, Append, Log, TopicSpec
from headrace.log.dead_letters import create_dead_letters
from headrace.sql.functions.function import Function
from headrace.sql.source import Source
from headrace.store.arrivals import has_arrivals
from headrace.types import VARCHAR, Column, DataType
from headrace.views.public import public_topic
from headrace.views.versions import Deployment, Version

__all__ = [
    "BUILT_IN",
    "DEAD_LETTERS",
    "Catalog",
    "CatalogDraft",
    "CatalogState",
    "create_internal_topics",
    "fold",
    "fold_all",
    "query_number",
]

EVENT_COLUMN = "EVENT"
CATALOG_SPEC = TopicSpec(CATALOG_TOPIC, value=(Column(EVENT_COLUMN, VARCHAR),), role="derived")


class Catalog:
    """The catalog of one log, as of the last `refresh`. Safe to use from several threads."""

    def __init__(self, log: Log, runtime: Runtime = DIRECT, file: CatalogFile | None = None) -> None:
        """`runtime`: where Python functions are called by whoever plans with this catalog. `file`: where to begin."""
        self.log = log
        self._file = file
        self.runtime = runtime
        self._functions: tuple[Mapping[str, FunctionFile], dict[str, Function]] | None = None
        self._lock = threading.RLock()
        self._state = CatalogState()
        self._terms = Terms()
        self._next = 0
        """The offset to read next; not every offset need have an event."""
        self._last, self._mark = -1, ""
        """The offset of the last event, and what it is."""
        self._samples: dict[int, int] = {}
        """By deployment: the offset of the event that has the samples of its comparisons."""
        self._listeners: list[Callable[[], None]] = []
        self._telling = threading.RLock()
        self._told = 0
        """How many events the listeners know of."""
        saved = None if file is None else file.load(self._is_there)
        if saved is not None:
            self._state, self._terms, self._samples = saved.state, Terms(saved.histories), saved.samples
            self._last, self._mark, self._next = saved.last, saved.mark, saved.last + 1
        self.refresh()

    @property
    def state(self) -> CatalogState:
        return self._state

    def refresh(self) -> bool:
        """Apply what is new on the topic; true if anything was. Cheap when nothing is."""
        with self._lock:
            ends = self.log.snapshot().ends.get(CATALOG_TOPIC)
            before = self._state.events
            if ends and ends[0].end > self._next:
                self._state = self._folded(self._next, ends[0].end)
                self._next = ends[0].end
                self._save()
            changed = self._state.events > before
        self._tell()
        return changed

    def _tell(self) -> None:
        """One thread at a time, so that nobody who read the state earlier acts on it later; and before whoever changed
        something goes on, even if another thread was quicker to read it."""
        with self._telling:
            while self._told < (events := self._state.events):
                self._told = events
                for listener in list(self._listeners):
                    listener()

    def still(self) -> Catalog:
        """As it is now, whatever happens while somebody looks at several things in it. Not to be changed."""
        return copy(self)

    def append(self, events: Sequence[Event]) -> None:
        """Write events as one atomic append, and apply them. Only the server does this."""
        batch = pa.record_batch({EVENT_COLUMN: pa.array([encode_event(event) for event in events], pa.string())})
        self.log.append([Append(CATALOG_TOPIC, batch)]).result()
        self.refresh()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each refresh that changed something, in a thread that refreshed, one at a time."""
        self._listeners.append(listener)

    def source(self, name: str) -> Source | None:
        return self._state.sources.get(name)

    def sources(self) -> list[Source]:
        """By name; those of transient queries are nobody's business."""
        state = self._state
        shown = (s for s in state.sources.values() if not _is_transient(state, s))
        return sorted(shown, key=lambda source: source.name)

    def functions(self) -> Mapping[str, Function]:
        """Those written in Python, as they are now."""
        files = self._state.function_files
        if self._functions is None or self._functions[0] is not files:
            self._functions = (files, all_functions(files.values(), self.runtime))
        return self._functions[1]

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
        """Return the queries that read a stream or table, by its name or through what is declared over its topic."""
        names = {source_name, *(source.name for source in self.declared_over(source_name))}
        return [query for query in self.queries() if not names.isdisjoint(query.sources)]

    def declared_over(self, source_name: str) -> list[Source]:
        """Return the streams and tables that are declared over the topic of one that a query writes, in any version."""
        written = {one.source.topic for one in self.versions(source_name) if one.source.query is not None}
        return [source for source in self.sources() if source.query is None and source.topic in written]

    def maker(self, topic: str) -> Version | None:
        """Return the version of a stream or table that a query writes to this topic."""
        for versions in self._state.versions.values():
            for version in versions.values():
                if version.source.topic == topic and version.source.query is not None:
                    return version
        return None

    def owner(self, topic: str) -> Source | None:
        """Return the stream or table that a query writes and whose public topic this is, in the version that serves."""
        written = (source for source in self.sources() if source.query is not None)
        return next((source for source in written if public_topic(source) == topic), None)

    def writers(self, source: Source) -> list[QueryDefinition]:
        """The queries that write a version of a stream or table: its own, and those of INSERT INTO … SELECT."""
        return [query for query in self.queries() if (query.sink, query.sink_topic) == (source.name, source.topic)]

    def over_topic(self, topic: str) -> list[Source]:
        """The streams and tables over a topic, in any version, and the one whose public topic it is."""
        over = {source.name: source for source in self._state.sources.values() if source.topic == topic}
        for versions in self._state.versions.values():
            for version in versions.values():
                if version.source.topic == topic:
                    over.setdefault(version.name, version.source)
        if (owner := self.owner(topic)) is not None:
            over.setdefault(owner.name, owner)
        return list(over.values())

    def publishing(self, topic: str) -> set[str]:
        """Return the names whose public topic this is, whatever topics their versions have."""
        return {
            name
            for name, versions in self._state.versions.items()
            for version in versions.values()
            if version.source.query is not None and public_topic(version.source) == topic
        }

    def source_at(self, name: str, topic: str) -> Source | None:
        """The version of a stream or table that has this topic. What is only declared may have several over one, some
        of them kept: then what serves, or came last, says what is in it."""
        state = self._state
        serving = state.sources.get(name)
        if serving is not None and serving.topic == topic:
            return serving
        return next((one.source for one in reversed(self.versions(name)) if one.source.topic == topic), None)

    def versions(self, name: str) -> list[Version]:
        """All versions of a stream or table, the oldest first."""
        found = self._state.versions.get(name, {})
        return [found[number] for number in sorted(found)]

    def version_of(self, query: QueryDefinition) -> Version | None:
        """The version that a query writes."""
        return next((v for v in self.versions(query.sink) if v.source.topic == query.sink_topic), None)

    def beside(self) -> list[Version]:
        """Versions that do not serve: being built, or kept."""
        state = self._state
        return [
            version
            for name, versions in sorted(state.versions.items())
            for number, version in sorted(versions.items())
            if state.serving.get(name) != number
        ]

    def deployments(self) -> list[Deployment]:
        """The oldest first."""
        known = self._state.deployments
        return [known[number] for number in sorted(known)]

    def deployment(self, number: int) -> Deployment | None:
        """With all that was found when its versions were compared."""
        found, at = self._state.deployments.get(number), self._samples.get(number)
        if found is None or at is None or has_samples(found):
            return found
        for _, _, text in self._events(at, at + 1):
            event = decode_event(text)
            if isinstance(event, DeploymentSaved):
                return msgspec.structs.replace(found, comparisons=event.deployment.comparisons)
        return found

    def history(self, name: str) -> History:
        """Which versions of a table served when; nothing if it is the same one as ever, or where there are no arrival
        numbers (Kafka)."""
        return self._terms.of(name)

    def _folded(self, start: int, end: int) -> CatalogState:
        state = self._state
        for offset, arrival, text in self._events(start, end):
            event, before = decode_event(text), state
            state = fold(before, event)
            if arrival is not None:
                self._terms.note(before, event, state, arrival)
            if isinstance(event, DeploymentSaved):
                self._note_samples(event.deployment, offset)
            self._last, self._mark = offset, mark_of(text, arrival)
        self._samples = {number: at for number, at in self._samples.items() if number in state.deployments}
        return state

    def _events(self, start: int, end: int) -> Iterator[tuple[int, int | None, str]]:
        numbered = has_arrivals(self.log)
        for records in self.log.read(CATALOG_TOPIC, 0, start, end, [EVENT_COLUMN, ARRIVAL][: 1 + numbered]):
            texts = records.batch.column(EVENT_COLUMN).to_pylist()
            arrivals = records.batch.column(ARRIVAL).to_pylist() if numbered else [None] * len(texts)
            yield from zip(records.each_offset(), arrivals, texts, strict=True)

    def _note_samples(self, deployment: Deployment, offset: int) -> None:
        """One that is over is not compared any more: whoever saves it without samples has only not read them."""
        if has_samples(deployment):
            self._samples[deployment.id] = offset
        elif not deployment.over:
            self._samples.pop(deployment.id, None)

    def _is_there(self, offset: int, mark: str) -> bool:
        ends = self.log.snapshot().ends.get(CATALOG_TOPIC)
        if not ends or not ends[0].start <= offset < ends[0].end:
            return False
        return any(mark_of(text, arrival) == mark for _, arrival, text in self._events(offset, offset + 1))

    def _save(self) -> None:
        if self._file is not None and self._file.wants(self._state):
            self._file.save(Saved(self._state, self._terms.all(), dict(self._samples), self._last, self._mark))


class CatalogDraft(Catalog):
    """A catalog as it would be with further events, for a change of several steps that is written in one append."""

    def __init__(self, catalog: Catalog) -> None:
        self.__dict__ |= catalog.still().__dict__
        self.events: list[Event] = []

    def refresh(self) -> bool:
        return False

    def append(self, events: Sequence[Event]) -> None:
        self.events += events
        self._state = fold_all(self._state, events)


def mark_of(text: str, arrival: int | None) -> str:
    """Of an event at its place in one log: another log may have the same at the same offset."""
    return f"{arrival} {sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _is_transient(state: CatalogState, source: Source) -> bool:
    query = state.queries.get(source.query) if source.query else None
    return query is not None and query.transient


def create_internal_topics(log: Log) -> None:
    """The topics every project has. Does nothing when they are there."""
    log.create_topic(CATALOG_SPEC)
    create_dead_letters(log)
