"""Events as columns are stored as the same events one by one would be, whatever the topic says of their fields."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.collect.columns import Columns
from headrace.log.base import Topic, TopicSpec
from headrace.log.codecs.event_time import TimeBounds
from headrace.log.codecs.json_codec import JsonCodec
from headrace.types import BIGINT, TIMESTAMP, VARCHAR, Column

NOW, BOUNDS = 1_700_000_000_000, TimeBounds(86_400_000)
values: dict[str, st.SearchStrategy[Any]] = {
    "name": st.none() | st.text(max_size=5) | st.integers(0, 9),
    "count": st.none() | st.integers(-5, 5) | st.just("many"),
    "at": st.none() | st.integers(0, NOW) | st.just("2023-11-14T00:00:00Z") | st.just("never"),
    "other": st.none() | st.text(max_size=3) | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
}
rows = st.lists(st.fixed_dictionaries(values), min_size=1, max_size=8)
declared = st.lists(
    st.sampled_from([Column("NAME", VARCHAR), Column("COUNT", BIGINT), Column("AT", TIMESTAMP)]), unique=True
)


@given(rows, declared, st.booleans(), st.booleans())
def test_columns_are_read_as_objects_are(
    found: list[dict[str, Any]], columns: list[Column], with_times: bool, with_ids: bool
) -> None:
    spec = TopicSpec("t", value=tuple(columns))
    codec = JsonCodec(Topic(1, spec, ()))
    assert codec.takes_columns
    some = Columns(
        len(found),
        {name: [row[name] for row in found] for name in values},
        lambda row: b"",
        [NOW - row if row % 2 else None for row in range(len(found))] if with_times else None,
        [f"i{row}" if row % 3 else None for row in range(len(found))] if with_ids else None,
    )
    objects = some.objects()
    each = codec.decode(objects, lambda row: msgspec.json.encode(objects[row]), NOW, BOUNDS)
    together = codec.decode_columns(some.fields, some.times, some.ids, some.rows, NOW, BOUNDS)
    # Of two things that are wrong with an event, either may be the one that is said.
    assert together.rejected.keys() == each.rejected.keys()
    assert together.ids == each.ids
    if each.batch is not None:
        assert together.batch is not None
        names = {*each.batch.schema.names, *together.batch.schema.names} - {"$tombstone"}
        for name in names:
            assert _column(together.batch, name) == _column(each.batch, name), name
    for row in each.rejected:
        assert msgspec.json.decode(some.text(row)) == objects[row]


def _column(batch: Any, name: str) -> list[Any]:
    """A column that is not there is one of nulls."""
    found = batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
    return [msgspec.json.decode(text) if name == "$rest" and text else text for text in found]
