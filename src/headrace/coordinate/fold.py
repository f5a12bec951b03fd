"""What the catalog's events mean: a pure fold of events into one immutable state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from headrace.coordinate.base import TRANSIENT_PREFIX, QueryDefinition, ViewDefinition
from headrace.coordinate.events import (
    DeploymentSaved,
    Event,
    FilesApplied,
    FunctionsChanged,
    QueryCreated,
    QueryDropped,
    QueryPaced,
    QueryWanted,
    SourceCreated,
    SourceDropped,
    TopicDeleted,
    TopicForked,
    TypeCreated,
    TypeDropped,
    VersionCreated,
    VersionDropped,
    VersionsSwitched,
    ViewCreated,
    ViewDropped,
)
from headrace.functions.files import FunctionFile
from headrace.log.dead_letters import DEAD_LETTERS_SPEC
from headrace.sql.source import Source
from headrace.store.cuts import Cut
from headrace.types import DataType
from headrace.views.versions import NONE, Deployment, Version, query_ids, version_state

T = TypeVar("T")

WITH_SAMPLES = 20
"""Deployments, the newest ones, whose comparisons are kept whole. The samples are nearly all there is to a catalog."""

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
    """The newest version a name ever had, dropped or not, for the same reason."""
    doomed_topics: frozenset[str] = frozenset()
    """Topics dropped with their source that may not be deleted yet: somebody may have been killed in between."""
    types: Mapping[str, DataType] = field(default_factory=dict)
    function_files: Mapping[str, FunctionFile] = field(default_factory=dict)
    """By the file's name."""
    versions: Mapping[str, Mapping[int, Version]] = field(default_factory=dict)
    """By name and number: all that are not dropped."""
    serving: Mapping[str, int] = field(default_factory=dict)
    """The pointer: `sources` and `views` are what these versions are."""
    deployments: Mapping[int, Deployment] = field(default_factory=dict)
    filed: frozenset[str] = frozenset()
    """Names that the project's files have defined."""
    events: int = 0


def fold(state: CatalogState, event: Event) -> CatalogState:
    """The state after `event`. Pure: the same events give the same catalog anywhere."""
    state = replace(state, events=state.events + 1)
    match event:
        case SourceCreated(source):
            return _source_created(state, source)
        case SourceDropped(name, doomed):
            state = _doom(state, doomed)
            return replace(
                state,
                sources=_without(state.sources, name),
                versions=_without(state.versions, name),
                serving=_without(state.serving, name),
                filed=state.filed - {name},
            )
        case TopicDeleted(name):
            return replace(state, doomed_topics=state.doomed_topics - {name})
        case QueryCreated(query):
            number = max(state.last_query_number, query_number(query.id))
            query = _pinned(state, query)
            return replace(state, queries={**state.queries, query.id: query}, last_query_number=number)
        case QueryWanted(id_, wanted):
            if id_ not in state.queries:
                return state
            return replace(state, queries={**state.queries, id_: replace(state.queries[id_], wanted=wanted)})
        case QueryDropped(id_):
            return replace(state, queries=_without(state.queries, id_))
        case ViewCreated(view):
            state = _numbered(state, view)
            return replace(state, views={**state.views, view.name: view})
        case ViewDropped(name):
            return replace(state, views=_without(state.views, name))
        case TypeCreated(name, type_):
            return replace(state, types={**state.types, name: type_})
        case TypeDropped(name):
            return replace(state, types=_without(state.types, name))
        case FunctionsChanged(files, removed):
            kept = {name: file for name, file in state.function_files.items() if name not in removed}
            return replace(state, function_files=kept | {file.file: file for file in files})
        case QueryPaced(id_, rows_per_second, until):
            if id_ not in state.queries:
                return state
            paced = replace(state.queries[id_], rows_per_second=rows_per_second, until=until)
            return replace(state, queries={**state.queries, id_: paced})
        case VersionCreated(version):
            return _with_version(state, version)
        case VersionDropped(name, number, doomed):
            left = {n: v for n, v in state.versions.get(name, {}).items() if n != number}
            return replace(
                _doom(state, doomed), versions={**_without(state.versions, name), **({name: left} if left else {})}
            )
        case VersionsSwitched(versions, time_ms, _):
            for name, number in versions.items():
                state = _switched(state, name, number, time_ms)
            return state
        case TopicForked(topic, fork):
            return _forked(state, topic, fork)
        case DeploymentSaved(deployment):
            return _deployment_saved(state, deployment)
        case FilesApplied(names):
            return replace(state, filed=frozenset(names))


def _source_created(state: CatalogState, source: Source) -> CatalogState:
    """New, or another definition of the version that serves."""
    state = replace(state, sources={**state.sources, source.name: source})
    if source.topic.startswith(TRANSIENT_PREFIX):
        return state
    known = state.versions.get(source.name, {}).get(state.serving.get(source.name, NONE))
    if known is not None:
        return _with_version(state, replace(known, source=source))
    number = state.view_versions.get(source.name, 0) + 1
    state = _with_version(state, Version(source.name, number, source))
    return replace(state, serving={**state.serving, source.name: number})


def _with_version(state: CatalogState, version: Version) -> CatalogState:
    name = version.name
    newest = max(version.number, state.view_versions.get(name, 0))
    return replace(
        state,
        versions={**state.versions, name: {**state.versions.get(name, {}), version.number: version}},
        view_versions={**state.view_versions, name: newest},
    )


def _numbered(state: CatalogState, view: ViewDefinition) -> CatalogState:
    """A view's own number counts: a catalog of before streams had versions may have numbered it differently."""
    number = state.serving.get(view.name, NONE)
    version = state.versions.get(view.name, {}).get(number)
    newest = max(view.version, state.view_versions.get(view.name, 0))
    state = replace(state, view_versions={**state.view_versions, view.name: newest})
    if version is None or number == view.version:
        return state
    others = {n: v for n, v in state.versions[view.name].items() if n != number}
    return replace(
        state,
        versions={**state.versions, view.name: {**others, view.version: replace(version, number=view.version)}},
        serving={**state.serving, view.name: view.version},
    )


def _pinned(state: CatalogState, query: QueryDefinition) -> QueryDefinition:
    """With the versions that it reads and writes, which an older catalog does not name: those of now."""
    if not query.sink_topic and query.sink in state.sources:
        query = replace(query, sink_topic=state.sources[query.sink].topic)
    missing = [name for name in query.sources if name not in query.reads and name in state.sources]
    if missing:
        query = replace(query, reads={**query.reads, **{name: state.sources[name].topic for name in missing}})
    return query


def _switched(state: CatalogState, name: str, number: int, time_ms: int) -> CatalogState:
    before = state.versions.get(name, {}).get(state.serving.get(name, NONE))
    after = state.versions.get(name, {}).get(number)
    if before is not None and before.number != number:
        state = _with_version(state, before.retires(time_ms))
    if after is None:
        return replace(
            state,
            sources=_without(state.sources, name),
            views=_without(state.views, name),
            serving=_without(state.serving, name),
        )
    state = _unheld(_with_version(state, after.begins_to_serve(time_ms)), after)
    source = after.source
    views = _without(state.views, name)
    if source.kind == "table":
        views[name] = ViewDefinition(name, number, source.query, source.topic)
    return replace(state, sources={**state.sources, name: source}, views=views, serving={**state.serving, name: number})


def _forked(state: CatalogState, topic: str, fork: str) -> CatalogState:
    """All versions, and the queries that read and write them, have the fork in place of the topic."""

    def moved(source: Source) -> Source:
        return replace(source, topic=fork) if source.topic == topic else source

    def named(name: str) -> str:
        return fork if name == topic else name

    def place(cut: Cut) -> Cut:
        return cut if isinstance(cut, int) else {named(read): places for read, places in cut.items()}

    def of_query(query: QueryDefinition) -> QueryDefinition:
        return replace(
            query,
            reads={name: named(read) for name, read in query.reads.items()},
            starts={named(read): places for read, places in query.starts.items()},
            sink_topic=named(query.sink_topic),
            cut=place(query.cut),
            until=None if query.until is None else place(query.until),
        )

    return replace(
        state,
        sources={name: moved(source) for name, source in state.sources.items()},
        versions={
            name: {number: replace(version, source=moved(version.source)) for number, version in known.items()}
            for name, known in state.versions.items()
        },
        views={name: replace(view, topic=fork) if view.topic == topic else view for name, view in state.views.items()},
        queries={id_: of_query(query) for id_, query in state.queries.items()},
    )


def _unheld(state: CatalogState, version: Version) -> CatalogState:
    """What serves reads all there is, and as fast as it can: a build was throttled for its sake, and a kept version may
    be held up by a comparison."""
    freed = {
        id_: replace(query, rows_per_second=0, until=None)
        for id_ in query_ids(version)
        if (query := state.queries.get(id_)) is not None
    }
    return replace(state, queries={**state.queries, **freed})


def _deployment_saved(state: CatalogState, deployment: Deployment) -> CatalogState:
    """Versions it is making share its stage, until they serve. One that was kept, and is to serve again, stays kept."""
    kept = {n: known for n, known in state.deployments.items() if not _superseded(known, deployment)}
    state = replace(state, deployments=_briefly({**kept, deployment.id: deployment}))
    if deployment.over and deployment.stage != "failed":
        return state
    for item in deployment.items:
        version = state.versions.get(item.name, {}).get(item.number)
        made = version is not None and version.deployment == deployment.id
        if version is not None and made and state.serving.get(item.name) != item.number:
            changed = replace(version, state=version_state(deployment.stage), since_ms=deployment.changed_ms)
            state = _with_version(state, changed)
    return state


def _briefly(deployments: dict[int, Deployment]) -> dict[int, Deployment]:
    """Of those that are long over the samples stay where they are: in the log (`Catalog.deployment`)."""
    for number in sorted(deployments)[:-WITH_SAMPLES]:
        if deployments[number].over and has_samples(deployments[number]):
            brief = [{**one, "samples": [], "windows": []} for one in deployments[number].comparisons]
            deployments[number] = msgspec.structs.replace(deployments[number], comparisons=brief)
    return deployments


def has_samples(deployment: Deployment) -> bool:
    return any(one.get("samples") or one.get("windows") for one in deployment.comparisons)


def _superseded(known: Deployment, saved: Deployment) -> bool:
    """Of a view's refreshes only the newest is remembered: there may be one every minute, for years."""

    def refreshed(deployment: Deployment) -> list[str]:
        return [item.name for item in deployment.items if item.origin]

    return (
        saved.stage == "switched"
        and known.over
        and known.id < saved.id
        and bool(refreshed(saved))
        and (refreshed(known) == refreshed(saved))
    )


def _doom(state: CatalogState, topic: str | None) -> CatalogState:
    return replace(state, doomed_topics=state.doomed_topics | {topic}) if topic else state


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
