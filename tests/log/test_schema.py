"""Types and topics survive the way to Arrow and JSON and back."""

from __future__ import annotations

import base64

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.base import SchemaVersion, TimestampColumn, Topic, TopicConfig, TopicSpec
from headrace.log.schema import (
    arrow_type,
    data_type,
    frame_schema,
    spec_from_json,
    spec_to_json,
    topic_from_json,
    topic_to_json,
)
from headrace.types import SIMPLE_TYPES, TIME, VARCHAR, Array, Column, DataType, Decimal, Map, Struct
from tests.log.support import DERIVED, VIEWS

SIMPLE = st.sampled_from([type_ for type_ in SIMPLE_TYPES.values() if type_ != TIME])
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))
NAMES = st.text(st.characters(categories=["Lu", "Ll", "Nd"]), min_size=1, max_size=8)
TYPES: st.SearchStrategy[DataType] = st.recursive(
    SIMPLE | DECIMALS,
    lambda inner: (
        inner.map(Array)
        | inner.map(lambda value: Map(VARCHAR, value))
        | st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3, unique_by=lambda field: field[0]).map(
            lambda fields: Struct(tuple(fields))
        )
    ),
    max_leaves=5,
)


@given(TYPES)
def test_a_type_comes_back_from_arrow(type_: DataType) -> None:
    assert data_type(arrow_type(type_)) == type_


@given(st.lists(st.tuples(NAMES, TYPES), min_size=1, max_size=4, unique_by=lambda column: column[0]))
def test_a_topic_comes_back_from_json(columns: list[tuple[str, DataType]]) -> None:
    key, *value = [Column(name, type_) for name, type_ in columns]
    spec = TopicSpec(
        "t", (key,), tuple(value), 3, timestamp=TimestampColumn(key.name, "yyyy"), config=TopicConfig(1, 2)
    )
    topic = Topic(9, spec, (SchemaVersion(1, (key,), ()), SchemaVersion(2, (key,), tuple(value))))
    assert spec_from_json(spec_to_json(spec)) == spec
    body = topic_to_json(topic)
    assert topic_from_json(body) == topic
    message = pa.py_buffer(base64.b64decode(body["schemas"][1]["arrow"]))
    assert pa.ipc.read_schema(message) == frame_schema(spec)


def test_system_columns_go_by_role_and_kind() -> None:
    def system(spec: TopicSpec) -> list[str]:
        return [name for name in frame_schema(spec).names if name.startswith("$")]

    stamped = ["$arrival", "$stream_time", "$time", "$tombstone"]
    assert system(VIEWS) == [*stamped, "$id", "$headers", "$rest"]
    assert system(TopicSpec("t", kind="raw")) == [*stamped, "$id", "$headers"]
    assert system(DERIVED) == stamped
    assert system(TopicSpec("t", role="derived", windowed="time")) == [*stamped, "$window_start", "$window_end"]
