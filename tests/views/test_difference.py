"""Two versions' rows, without a log: what counts as a difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.sql.source import Source, Window
from headrace.store.base import Position
from headrace.types import BIGINT, DOUBLE, VARCHAR, Array, Column, Decimal, Map, Struct
from headrace.views.difference import WINDOWS, Comparison, WindowCount, compare_spools
from headrace.views.spool import Spool, exact_rows

COLUMNS = (Column("TOTAL", DOUBLE), Column("N", BIGINT), Column("MANY", Array(DOUBLE)))
TABLE = Source("T", "table", "T", (Column("K", VARCHAR),), COLUMNS)
COUNTS = replace(TABLE, value=(Column("N", BIGINT),))
PER_MINUTE = replace(COUNTS, window=Window("tumbling", 60_000, 60_000, 0))

Rows = Mapping[tuple[Any, ...], Sequence[Any]]


def spool(folder: Path, source: Source, rows: Rows) -> Spool:
    folder.mkdir()
    path = folder / "0.rows"
    path.write_bytes(b"".join(msgspec.json.encode(part) + b"\n" for row in rows.items() for part in row))
    return Spool(source, (path,), Position(0, {}))


def compared(folder: Path, old: tuple[Source, Rows], new: tuple[Source, Rows], summed: str = "") -> Comparison:
    folder.mkdir(exist_ok=True)
    spools = spool(folder / "old", *old), spool(folder / "new", *new)
    return compare_spools(*spools, (1, 2), 7, frozenset(summed.split()))


def counts(found: Comparison) -> dict[str, int]:
    kinds = {"same": found.same, "changed": found.changed, "only_old": found.only_old, "only_new": found.only_new}
    return {kind: count for kind, count in kinds.items() if count}


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ([0.1 + 0.2 + 0.3, 1, []], [0.3 + 0.2 + 0.1, 1, []], "same"),
        ([0.0, 1, [0.1 + 0.2]], [0.0, 1, [0.3]], "same"),
        ([0.1, 1, []], [0.1001, 1, []], "changed"),
        ([5e9, 1, []], [5e9 + 4, 1, []], "changed"),
        ([3e-10, 1, []], [9e-10, 1, []], "changed"),
        ([0.0, 2**60, []], [0.0, 2**60 + 1, []], "changed"),
        ([0.0, 1, []], [None, 1, []], "changed"),
        (["NaN", 1, ["NaN"]], ["NaN", 1, ["NaN"]], "same"),
        (["NaN", 1, []], [None, 1, []], "changed"),
        ([1.0, 1, []], ["NaN", 1, []], "changed"),
        (["Infinity", 1, []], ["-Infinity", 1, []], "changed"),
        ([0.0, 1, ["NaN"]], [0.0, 1, [None]], "changed"),
    ],
)
def test_the_last_digits_of_a_sum_depend_on_cuts_and_do_not_count(
    tmp_path: Path, old: list[Any], new: list[Any], kind: str
) -> None:
    found = compared(tmp_path, (TABLE, {("a",): old}), (TABLE, {("a",): new}), "TOTAL MANY")
    assert counts(found) == {kind: 1}


def test_what_json_has_no_number_for_is_in_a_spool_all_the_same() -> None:
    inner = Struct((("X", DOUBLE), ("M", Map(VARCHAR, DOUBLE))))
    columns = (Column("D", DOUBLE), Column("L", Array(DOUBLE)), Column("S", inner), Column("N", BIGINT))
    row = (math.nan, [math.inf, 1.0, None], {"X": -math.inf, "M": {"a": math.nan, "b": 2.0}}, 1)
    nothing = (None, None, None, None)
    assert exact_rows(columns, [row, nothing]) == [
        ["NaN", ["Infinity", 1.0, None], {"x": "-Infinity", "m": {"a": "NaN", "b": 2.0}}, 1],
        [None, None, None, None],
    ]


def test_a_double_that_nothing_was_added_to_counts_to_its_last_digit(tmp_path: Path) -> None:
    old = {("a",): [1_700_000_000.0, 1, []], ("b",): [0.1 + 0.2, 1, []], ("c",): [0.5, 1, [0.5]]}
    new = {("a",): [1_700_000_001.0, 1, []], ("b",): [0.3, 1, []], ("c",): [0.5, 1, [0.5]]}
    found = compared(tmp_path, (TABLE, old), (TABLE, new))
    assert counts(found) == {"same": 1, "changed": 2}


def test_a_decimal_with_other_digits_after_the_point_is_the_same_number(tmp_path: Path) -> None:
    one, two = (replace(COUNTS, value=(Column("N", Decimal(10, scale)),)) for scale in (1, 2))
    old: Rows = {("a",): ["1.5"], ("b",): ["2.0"]}
    found = compared(tmp_path / "decimals", (one, old), (two, {("a",): ["1.50"], ("b",): ["2.01"]}))
    assert counts(found) == {"same": 1, "changed": 1}
    assert [(delta.rows, delta.total) for delta in found.deltas] == [(1, 0.01)]
    assert counts(compared(tmp_path / "numbers", (COUNTS, {("a",): [2]}), (two, {("a",): ["2.00"]}))) == {"same": 1}
    text = replace(COUNTS, value=(Column("N", VARCHAR),))
    assert counts(compared(tmp_path / "texts", (text, {("a",): ["2.0"]}), (two, {("a",): ["2.00"]}))) == {"changed": 1}


def test_a_view_that_gets_a_window_has_no_row_in_common_with_what_it_was(tmp_path: Path) -> None:
    old, new = {("a",): [3], ("b",): [1]}, {("a", 0, 60_000): [2], ("a", 60_000, 120_000): [1]}
    found = compared(tmp_path, (COUNTS, old), (PER_MINUTE, new))
    assert counts(found) == {"only_old": 2, "only_new": 2}
    assert found.windows == [WindowCount(60_000, 0, 1), WindowCount(0, 0, 1)]
    assert [(sample.key, sample.window) for sample in found.samples] == [
        ({"k": "a"}, None),
        ({"k": "b"}, None),
        ({"k": "a"}, {"start": 0, "end": 60_000}),
        ({"k": "a"}, {"start": 60_000, "end": 120_000}),
    ]


def test_a_view_that_loses_its_window_counts_those_it_had(tmp_path: Path) -> None:
    found = compared(tmp_path, (PER_MINUTE, {("a", 0, 60_000): [2]}), (COUNTS, {("a",): [2]}))
    assert counts(found) == {"only_old": 1, "only_new": 1}
    assert found.windows == [WindowCount(0, 0, 1)]


def test_another_key_of_a_windowed_view_is_another_row_though_it_looks_the_same(tmp_path: Path) -> None:
    by_two = replace(PER_MINUTE, key=(Column("K", VARCHAR), Column("L", VARCHAR)))
    by_other = replace(PER_MINUTE, key=(Column("L", VARCHAR),))
    one = {("a", 0, 60_000): [2]}
    assert counts(compared(tmp_path, (PER_MINUTE, one), (by_other, one))) == {"only_old": 1, "only_new": 1}
    found = compared(tmp_path / "two", (PER_MINUTE, one), (by_two, {("a", "b", 0, 60_000): [2]}))
    assert counts(found) == {"only_old": 1, "only_new": 1}
    assert [sample.key for sample in found.samples] == [{"k": "a"}, {"k": "a", "l": "b"}]
    assert found.windows == [WindowCount(0, 0, 2)]


def test_of_many_windows_the_newest_that_differ_are_counted_whatever_order_they_come_in(tmp_path: Path) -> None:
    starts = [start * 7919 % 1000 for start in range(1000)]
    old: Rows = {(key, start, start + 1): [1] for start in starts for key in ("a", "b")}
    new: Rows = {(key, start, start + 1): [1 + (start % 2 and key == "a")] for _, start, _ in old for key in ("a", "b")}
    gone = {at: row for at, row in new.items() if at != ("b", 999, 1000)}
    found = compared(tmp_path, (PER_MINUTE, old), (PER_MINUTE, gone))
    newest = range(997, 997 - 2 * (WINDOWS - 1), -2)
    assert found.windows == [WindowCount(999, 0, 2), *(WindowCount(start, 1, 1) for start in newest)]
    assert counts(found) == {"same": 1499, "changed": 500, "only_old": 1}
