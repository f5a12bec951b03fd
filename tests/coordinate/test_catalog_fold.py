"""The catalog is what its events say, wherever and however often they are read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinate.base import QueryDefinition, ViewDefinition
from headrace.coordinate.catalog import DEAD_LETTERS, CatalogState, fold, fold_all
from headrace.coordinate.events import (
    DeploymentSaved,
    Event,
    FilesApplied,
    QueryCreated,
    QueryDropped,
    QueryPaced,
    QueryWanted,
    SourceCreated,
    SourceDropped,
    TopicDeleted,
    VersionCreated,
    VersionDropped,
    VersionsSwitched,
    ViewCreated,
    ViewDropped,
    decode_event,
    encode_event,
)
from headrace.errors import LogError
from headrace.sql.source import Source, Window
from headrace.types import BIGINT, BOOLEAN, TIMESTAMP, VARCHAR, Array, Column, DataType, Decimal, Map, Struct
from headrace.views.versions import Deployment, Item, Version

names = st.sampled_from(["A", "B", "pageId", "Ü", 'quo"ted'])
ids = st.builds("CTAS_{}_{}".format, st.sampled_from(["A", "B"]), st.integers(1, 9))
simple: st.SearchStrategy[DataType] = st.sampled_from([BIGINT, BOOLEAN, TIMESTAMP, VARCHAR, Decimal(9, 2)])
types: st.SearchStrategy[DataType] = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(Array, inner),
        st.builds(Map, st.just(VARCHAR), inner),
        st.builds(lambda a, b: Struct((("X", a), ("y", b))), inner, inner),
    ),
    max_leaves=4,
)
columns = st.lists(st.builds(Column, names, types), max_size=3).map(tuple)
windows = st.builds(
    Window, st.just("hopping"), st.integers(1, 9), st.integers(1, 9), st.integers(0, 9), st.none() | st.integers(1, 99)
)
sources = st.builds(
    Source,
    name=names,
    kind=st.sampled_from(["stream", "table"]),
    topic=names,
    key=columns,
    value=columns,
    timestamp=st.none() | names,
    timestamp_format=st.none() | st.text(max_size=5),
    partitions=st.integers(1, 64),
    window=st.none() | windows,
    statement=st.text(max_size=20),
    query=st.none() | ids,
)
queries = st.builds(
    QueryDefinition,
    id=ids,
    version=st.integers(1, 3),
    statement=st.text(max_size=20),
    sink=names,
    sources=st.lists(names, max_size=2).map(tuple),
    wanted=st.sampled_from(["running", "stopped"]),
    transient=st.booleans(),
    created_ms=st.integers(0, 2**50),
    sink_topic=st.just("") | names,
    reads=st.dictionaries(names, names, max_size=2),
    starts=st.dictionaries(names, st.dictionaries(st.integers(0, 3), st.integers(0, 99), max_size=2), max_size=1),
    rows_per_second=st.integers(0, 9),
    until=st.none() | st.integers(0, 99),
)
versions = st.builds(
    Version,
    names,
    st.integers(1, 5),
    sources,
    st.sampled_from(["building", "caught up", "serving", "retired", "failed"]),
    st.integers(0, 3),
    st.integers(0, 99),
)
items = st.builds(Item, names, st.just("rebuilds"), st.integers(0, 5), st.integers(0, 5), st.text(max_size=5))
deployments = st.builds(
    Deployment,
    id=st.integers(1, 3),
    items=st.lists(items, max_size=2),
    started_ms=st.integers(0, 99),
    stage=st.sampled_from(["building", "comparing", "switched", "failed", "cancelled"]),
    max_changed=st.none() | st.floats(0, 1),
    comparisons=st.lists(st.fixed_dictionaries({"view": names, "same": st.integers(0, 9)}), max_size=1),
)
views = st.builds(ViewDefinition, names, st.integers(1, 5), st.none() | ids, names)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(SourceCreated, sources),
    st.builds(SourceDropped, names, st.none() | names),
    st.builds(TopicDeleted, names),
    st.builds(QueryCreated, queries),
    st.builds(QueryWanted, ids, st.sampled_from(["running", "stopped"])),
    st.builds(QueryDropped, ids),
    st.builds(ViewCreated, views),
    st.builds(ViewDropped, names),
    st.builds(QueryPaced, ids, st.integers(0, 9), st.none() | st.integers(0, 99)),
    st.builds(VersionCreated, versions),
    st.builds(VersionDropped, names, st.integers(1, 5), st.none() | names),
    st.builds(VersionsSwitched, st.dictionaries(names, st.integers(0, 5), max_size=2), st.integers(0, 99)),
    st.builds(DeploymentSaved, deployments),
    st.builds(FilesApplied, st.lists(names, max_size=3).map(tuple)),
)
histories = st.lists(events, max_size=25)


@given(events)
@settings(deadline=None)  # a busy machine is no mistake
def test_an_event_survives_being_written_down(event: Event) -> None:
    assert decode_event(encode_event(event)) == event


@given(histories, st.integers(0, 25))
@settings(deadline=None)  # a busy machine is no mistake
def test_reading_in_two_parts_is_reading_at_once(history: list[Event], cut: int) -> None:
    whole = fold_all(CatalogState(), history)
    assert fold_all(fold_all(CatalogState(), history[:cut]), history[cut:]) == whole
    assert fold_all(CatalogState(), (decode_event(encode_event(event)) for event in history)) == whole
    assert whole.events == len(history)


@given(histories)
@settings(deadline=None)  # a busy machine is no mistake
def test_the_last_word_on_a_name_counts(history: list[Event]) -> None:
    # What a switch makes of a name is its own story.
    history = [event for event in history if not isinstance(event, VersionsSwitched)]
    state = fold_all(CatalogState(), history)
    expected: dict[str, Source] = {DEAD_LETTERS.name: DEAD_LETTERS}
    for event in history:
        if isinstance(event, SourceCreated):
            expected[event.source.name] = event.source
        elif isinstance(event, SourceDropped):
            expected.pop(event.name, None)
    assert state.sources == expected


@given(histories)
@settings(deadline=None)  # a busy machine is no mistake
def test_numbers_and_versions_only_grow(history: list[Event]) -> None:
    state = CatalogState()
    for event in history:
        before, state = state, fold(state, event)
        assert state.last_query_number >= before.last_query_number
        assert all(state.view_versions[name] >= version for name, version in before.view_versions.items())
    assert all(state.view_versions[view.name] >= view.version for view in state.views.values())


@given(histories, events)
@settings(deadline=None)  # a busy machine is no mistake
def test_folding_leaves_the_old_state_alone(history: list[Event], event: Event) -> None:
    state, same = fold_all(CatalogState(), history), fold_all(CatalogState(), history)
    fold(state, event)
    assert state == same


def test_an_event_of_the_future_asks_for_an_upgrade() -> None:
    with pytest.raises(LogError, match="`cluster_joined` event of version 1") as unknown:
        decode_event(json.dumps({"v": 1, "type": "cluster_joined"}))
    assert "upgrade" in str(unknown.value)
    with pytest.raises(LogError, match="of version 2"):
        decode_event(json.dumps({"v": 2, "type": "source_dropped", "name": "A"}))
    with pytest.raises(LogError, match="not a catalog event"):
        decode_event("hello")


def test_a_catalog_of_before_versions_gets_them() -> None:
    """Events as they were written: no version of a stream, no topics in a query."""
    source: dict[str, object] = {
        "name": "A",
        "kind": "stream",
        "topic": "a",
        "key": [],
        "value": [],
        "key_format": "KAFKA",
        "value_format": "JSON",
        "timestamp": None,
        "timestamp_format": None,
        "partitions": 1,
        "window": None,
        "statement": "",
        "query": None,
    }
    table = source | {"name": "T", "kind": "table", "topic": "T", "query": "CTAS_T_1"}
    query = {
        "id": "CTAS_T_1",
        "version": 1,
        "statement": "CREATE TABLE …",
        "sink": "T",
        "sources": ["A"],
        "wanted": "running",
        "transient": False,
        "created_ms": 0,
    }
    old = [
        {"v": 1, "type": "source_created", "source": source},
        {"v": 1, "type": "source_created", "source": table},
        {"v": 1, "type": "query_created", "query": query},
        {"v": 1, "type": "view_created", "view": {"name": "T", "version": 3, "query_id": "CTAS_T_1", "topic": "T"}},
    ]
    state = fold_all(CatalogState(), (decode_event(json.dumps(event)) for event in old))
    assert state.serving == {"A": 1, "T": 3}
    assert state.versions["T"][3].source.topic == "T"
    assert (state.queries["CTAS_T_1"].sink_topic, state.queries["CTAS_T_1"].reads) == ("T", {"A": "a"})


def test_one_event_switches_all_and_back() -> None:
    def version(name: str, number: int) -> Version:
        source = Source(name, "table", f"{name}.v{number}", (), (), query=f"CTAS_{name}_{number}")
        return Version(name, number, source, "building", 1)

    begun = fold_all(
        CatalogState(),
        [event for name in "AB" for event in (
            SourceCreated(Source(name, "table", name, (), ())),
            ViewCreated(ViewDefinition(name, 1, None, name)),
            VersionCreated(version(name, 2)),
        )],
    )  # fmt: skip
    switched = fold(begun, VersionsSwitched({"A": 2, "B": 2}, 7, 1))
    assert switched.serving == {"A": 2, "B": 2}
    assert {name: view.version for name, view in switched.views.items()} == {"A": 2, "B": 2}
    assert switched.sources["A"].topic == "A.v2"
    assert (switched.versions["A"][1].state, switched.versions["A"][1].since_ms) == ("retired", 7)
    back = fold(switched, VersionsSwitched({"A": 1, "B": 0}, 9, 1))
    assert back.sources["A"].topic == "A"
    assert "B" not in back.sources
    assert back.versions["B"][2].state == "retired"
    assert back.versions["A"][1].served == ((0, 7), (9, 0)), "from when is not known the first time"
    assert back.versions["A"][2].served == ((7, 9),)
