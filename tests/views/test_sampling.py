"""Rounds of a check go through all rows of a view, however many share the beginning of their keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.log.base import Append, TopicSpec
from headrace.log.local import LocalLog
from headrace.log.schema import arrow_type
from headrace.sql.evaluate import compile_expression
from headrace.sql.source import Source
from headrace.store.base import Position, ViewStore
from headrace.store.revisions import Revisions
from headrace.store.sqlite import SqliteStore
from headrace.types import BIGINT, DOUBLE, VARCHAR, Array, Column
from headrace.views.check import Checked, check_round
from headrace.views.sampling import behind, next_rows
from headrace.views.subject import over_topic

PLACES = Source(
    "PLACES", "table", "places", (Column("COUNTRY", VARCHAR), Column("CITY", VARCHAR)), (Column("N", BIGINT),)
)
KEYS = [(country, f"{number:03}") for country in ("a", "b") for number in range(150)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    log = LocalLog(tmp_path / "log", LogSettings(), SystemClock())
    yield log
    log.close()


def filled(log: LocalLog, folder: Path, source: Source, rows: list[dict[str, Any]]) -> ViewStore:
    """A view's store that has what its topic has."""
    log.create_topic(TopicSpec(source.topic, source.key, source.value, role="derived"))
    types = {column.name: column.type for column in source.key + source.value}
    columns = {name: pa.array([row[name] for row in rows], arrow_type(type_)) for name, type_ in types.items()}
    columns["$time"] = pa.array([0] * len(rows), pa.int64())
    log.append([Append(source.topic, pa.record_batch(columns))]).result(30)
    view = SqliteStore(folder).open_view(source, 1)
    [end] = log.snapshot().ends[source.topic]
    found = list(log.read(source.topic, 0, 0, end.end))
    view.apply(found, Position(log.snapshot().arrival, {0: end.end}))
    return view


def test_all_rows_are_looked_at_once_in_each_pass(log: LocalLog, tmp_path: Path) -> None:
    rows = [{"COUNTRY": country, "CITY": city, "N": 1} for country, city in KEYS]
    view = filled(log, tmp_path / "views", PLACES, rows)
    seen, place = list[tuple[str, str]](), None
    while True:
        served, place = next_rows(log, over_topic(PLACES, 1), view, place, 40)
        seen += [(row["COUNTRY"], row["CITY"]) for row in served.rows]
        if place is None:
            break
    assert seen == KEYS
    view.close()


def test_an_error_is_found_behind_more_rows_of_one_country_than_a_round_takes(log: LocalLog, tmp_path: Path) -> None:
    rows = [{"COUNTRY": country, "CITY": city, "N": 1} for country, city in KEYS]
    view = filled(log, tmp_path / "views", PLACES, rows)
    # The store says something else than the log: as after a bug in the store.
    view._writer.execute("UPDATE rows SET N = 2 WHERE COUNTRY = 'a' AND CITY = '120'")  # type: ignore[attr-defined]
    known = Checked()
    while known.passes == 0:
        check_round(log, over_topic(PLACES, 1), view, Revisions(log), known, 0, 20, float("inf"))
    assert [drift.key for drift in known.drift.values()] == ['{"country":"a","city":"120"}']
    view.close()


def test_a_round_after_the_last_row_begins_anew(log: LocalLog, tmp_path: Path) -> None:
    rows = [{"COUNTRY": country, "CITY": city, "N": 1} for country, city in KEYS]
    view = filled(log, tmp_path / "views", PLACES, rows)
    known, seen = Checked(), []
    for _ in range(6):
        check_round(log, over_topic(PLACES, 1), view, Revisions(log), known, 0, len(KEYS) // 2, float("inf"))
        seen.append(known.rows)
    assert seen == [len(KEYS) // 2 * (number + 1) for number in range(6)]
    view.close()


def test_keys_that_cannot_be_ordered_end_a_pass_all_the_same(log: LocalLog, tmp_path: Path) -> None:
    source = Source("LISTS", "table", "lists", (Column("K", Array(BIGINT)),), (Column("N", BIGINT),))
    view = filled(log, tmp_path / "views", source, [{"K": [number], "N": 1} for number in range(9)])
    first, place = next_rows(log, over_topic(source, 1), view, None, 4)
    assert (len(first.rows), place) == (4, ())
    assert next_rows(log, over_topic(source, 1), view, place, 4)[1] is None
    view.close()


COLUMNS = (Column("A", VARCHAR), Column("B", DOUBLE))
rows = st.tuples(st.none() | st.sampled_from(["", "x", "y"]), st.none() | st.sampled_from([-1.0, 0.0, 2.5]))


@given(rows, rows)
def test_behind_is_the_order_with_nulls_first(row: tuple[Any, Any], place: tuple[Any, Any]) -> None:
    def order(one: tuple[Any, Any]) -> list[tuple[bool, Any]]:
        return [(value is not None, value or type(value)()) if value is not None else (False, 0) for value in one]

    condition = behind(COLUMNS, place)
    assert condition is not None
    found = compile_expression(condition)({"A": row[0], "B": row[1]})
    assert bool(found) == (order(row) > order(place))
