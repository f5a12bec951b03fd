"""Every row that differs, in order, filtered and a page at a time."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.sql.source import Source
from headrace.types import BIGINT, DOUBLE, INTEGER, VARCHAR, Array, Column
from headrace.types import Decimal as Exact
from headrace.views import difference_rows
from headrace.views.difference import SAMPLES, Comparison, compare_spools
from headrace.views.difference_files import FORMATS, file_pieces
from headrace.views.difference_rows import DifferenceRows, DifferenceWriter, Filters
from tests.views.test_difference import PER_MINUTE, TABLE, Rows, counts, spool

COUNTED = replace(TABLE, value=(Column("N", BIGINT), Column("NAME", VARCHAR)))


def difference(folder: Path, old: tuple[Source, Rows], new: tuple[Source, Rows]) -> tuple[Comparison, DifferenceRows]:
    folder.mkdir(exist_ok=True)
    writer = DifferenceWriter(folder / "rows", old[0], new[0])
    spools = spool(folder / "old", *old), spool(folder / "new", *new)
    found = compare_spools(*spools, (1, 2), 7, keep=writer.add)
    return found, DifferenceRows(writer.close(), old[0], new[0])


def keys(rows: DifferenceRows, filters: Filters | None = None) -> list[Any]:
    found = [row for page in rows.each(filters or Filters(), 3) for row in page]
    assert len(found) == rows.count(filters or Filters())
    return ["/".join(str(value) for value in row.key.values()) for row in found]


def test_all_rows_that_differ_are_there_in_order_however_many_runs_they_came_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(difference_rows, "RUN_ROWS", 7)
    monkeypatch.setattr(difference_rows, "MOST_RUNS", 4)
    shuffled = random.Random(4).sample(range(1000), 1000)
    old = {(f"{n:04}",): [n, "a"] for n in shuffled if n % 3}
    new = {(f"{n:04}",): [n + n % 2, "a"] for n in reversed(shuffled) if n % 5}
    found, rows = difference(tmp_path, (COUNTED, old), (COUNTED, new))
    apart = [n for n in range(1000) if (n % 3 == 0) != (n % 5 == 0) or (n % 3 and n % 5 and n % 2)]
    assert found.different == len(apart) > 3 * SAMPLES
    assert keys(rows) == [f"{n:04}" for n in apart]
    for kind in ("changed", "only_old", "only_new"):
        assert rows.count(Filters(kinds=(kind,))) == counts(found)[kind]
    first, place = rows.page(Filters(), 0, 2)
    assert [(row.kind, row.old, row.new, row.deltas) for row in first] == [
        ("changed", {"n": 1, "name": "a"}, {"n": 2, "name": "a"}, {"n": 1.0}),
        ("only_new", None, {"n": 4, "name": "a"}, {}),
    ]
    assert [row.key for row in first] == [{"k": "0001"}, {"k": "0003"}]
    assert place == 2
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == ["rows.sqlite"]


def test_rows_are_chosen_by_kind_key_column_and_how_much_they_differ(tmp_path: Path) -> None:
    old = {("apple",): [1, "a"], ("apricot",): [5, "b"], ("app*%_'",): [5, "c"], ("gone",): [9, "d"], (None,): [1, ""]}
    new = {("apple",): [9, "a"], ("apricot",): [5, "z"], ("app*%_'",): [3, "c"], ("new",): [9, "d"], (None,): [2, ""]}
    _, rows = difference(tmp_path, (COUNTED, old), (COUNTED, new))
    assert keys(rows) == ["None", "app*%_'", "apple", "apricot", "gone", "new"]
    assert keys(rows, Filters(kinds=("only_old", "only_new"))) == ["gone", "new"]
    assert keys(rows, Filters(key=(("K", "apple"),))) == ["apple"]
    assert keys(rows, Filters(key=(("K", None),))) == ["None"]
    assert keys(rows, Filters(prefixes=(("K", "ap"),))) == ["app*%_'", "apple", "apricot"]
    assert keys(rows, Filters(prefixes=(("K", "app*%"),))) == ["app*%_'"]
    assert keys(rows, Filters(prefixes=(("K", "AP"),))) == []
    assert keys(rows, Filters(column="name")) == ["apricot"]
    assert keys(rows, Filters(column="n")) == ["None", "app*%_'", "apple"]
    assert keys(rows, Filters(min_delta=2)) == ["app*%_'", "apple"]
    assert keys(rows, Filters(column="n", min_delta=2.5)) == ["apple"]
    assert keys(rows, Filters(column="name", min_delta=0)) == []


def test_the_newest_window_comes_first_and_windows_are_chosen_by_time(tmp_path: Path) -> None:
    minutes = [(key, start * 60_000, start * 60_000 + 60_000) for start in range(4) for key in ("b", "a")]
    _, rows = difference(tmp_path, (PER_MINUTE, {at: [1] for at in minutes}), (PER_MINUTE, {at: [2] for at in minutes}))
    starts = [(row.window or {})["start"] // 60_000 for page in rows.each(Filters()) for row in page]
    assert (starts, keys(rows)) == ([3, 3, 2, 2, 1, 1, 0, 0], ["a", "b"] * 4)
    assert rows.count(Filters(window=60_000)) == 2
    assert rows.count(Filters(window=119_999)) == 2
    assert rows.count(Filters(window=240_000)) == 0
    assert rows.count(Filters(between=(60_001, 120_000))) == 4
    assert rows.count(Filters(between=(None, 0), kinds=("changed",), key=(("K", "a"),))) == 1


def test_versions_with_other_keys_have_each_row_with_its_own(tmp_path: Path) -> None:
    by_two = replace(PER_MINUTE, key=(Column("L", VARCHAR), Column("K", VARCHAR)))
    _, rows = difference(tmp_path, (TABLE, {("a",): [0.5, 1, []]}), (by_two, {("b", "a", 0, 60_000): [2]}))
    found = [(row.kind, row.key, row.window) for page in rows.each(Filters()) for row in page]
    assert sorted(found, key=str) == [
        ("only_new", {"l": "b", "k": "a"}, {"start": 0, "end": 60_000}),
        ("only_old", {"k": "a"}, None),
    ]
    assert rows.count(Filters(key=(("K", "a"),))) == 2
    assert rows.count(Filters(key=(("L", "b"),))) == 1


def test_keys_of_other_types_are_kept_in_every_format(tmp_path: Path) -> None:
    columns = Column("K", BIGINT), Column("K", VARCHAR), Column("K", INTEGER)
    numbers, texts, small = (replace(COUNTED, key=(column,)) for column in columns)
    for name, new, listed, shown in (
        ("texts", texts, [(8, None), ("a", None)], ["7", "8", "a"]),
        ("small", small, [(8, None), (9, None)], [7, 8, 9]),
    ):
        _, rows = difference(
            tmp_path / name, (numbers, {(7,): [1, ""], (8,): [1, ""]}), (new, {(key,): [2, ""] for key, _ in listed})
        )
        table = pq.read_table(pa.BufferReader(b"".join(file_pieces(rows, Filters(), "parquet")))).to_pylist()
        assert [row["key.k"] for row in table] == shown
        assert [row["kind"] for row in table] == ["only_old", "changed", "only_new"]


def test_a_key_may_be_a_list(tmp_path: Path) -> None:
    listed = replace(COUNTED, key=(Column("K", Array(BIGINT)),))
    _, rows = difference(tmp_path, (listed, {}), (listed, {((1, 2),): [1, ""], ((3,),): [1, ""]}))
    assert keys(rows, Filters(key=(("K", [1, 2]),))) == ["[1, 2]"]


def test_what_was_a_text_does_not_differ_by_a_number(tmp_path: Path) -> None:
    was = replace(COUNTED, value=(Column("N", VARCHAR),))
    now = replace(COUNTED, value=(Column("N", DOUBLE),))
    texts = {"a": "NaN", "b": "Infinity", "c": "7"}
    found, rows = difference(
        tmp_path, (was, {(key,): [text] for key, text in texts.items()}), (now, {(key,): [1.5] for key in texts})
    )
    assert (found.changed, found.deltas) == (3, [])
    assert [row.deltas for page in rows.each(Filters()) for row in page] == [{"n": None}] * 3


def test_keys_that_are_numbers_are_in_their_order_and_a_decimal_is_a_number(tmp_path: Path) -> None:
    numbered = replace(TABLE, key=(Column("K", BIGINT),), value=(Column("PRICE", Exact(6, 2)),))
    found, rows = difference(
        tmp_path,
        (numbered, {(n,): ["1.10"] for n in (10, 9, 100)}),
        (numbered, {(n,): ["1.30"] for n in (10, 9, 100)}),
    )
    page, _ = rows.page(Filters(), 0, 10)
    assert [row.key["k"] for row in page] == [9, 10, 100]
    assert [str((row.new or {})["price"]) for row in page] == ["1.30"] * 3
    assert page[0].deltas == {"price": 0.2}
    assert rows.count(Filters(prefixes=(("K", "10"),))) == 2
    assert found.deltas[0].rows == 3


def test_no_row_differs(tmp_path: Path) -> None:
    _, rows = difference(tmp_path, (COUNTED, {("a",): [1, "a"]}), (COUNTED, {("a",): [1, "a"]}))
    assert (rows.page(Filters(), 0, 10), rows.count(Filters())) == (([], None), 0)


def test_a_difference_is_a_file_in_each_format(tmp_path: Path) -> None:
    columns = (Column("N", BIGINT), Column("PRICE", Exact(6, 2)), Column("MANY", Array(VARCHAR)))
    old, new = replace(PER_MINUTE, value=columns), replace(PER_MINUTE, value=(*columns, Column("MORE", BIGINT)))
    _, rows = difference(
        tmp_path,
        (old, {("=a", 0, 60_000): [2**60, "1.10", ["x"]], ("gone", 0, 60_000): [1, None, None]}),
        (new, {("=a", 0, 60_000): [2**60 + 1, "1.30", ['"'], None], ("new", 60_000, 120_000): [None, "1.00", [], 7]}),
    )
    made = {format_: b"".join(file_pieces(rows, Filters(), format_)) for format_ in FORMATS}
    names = (
        "kind,key.k,window_start,window_end,old.n,new.n,delta.n,old.price,new.price,delta.price,"
        "old.many,new.many,delta.many,new.more"
    )
    assert made["csv"].decode().split("\r\n") == [
        names,
        "only_new,new,60000,120000,,,,,1.00,,,[],,7",
        'changed,=a,0,60000,1152921504606846976,1152921504606846977,1.0,1.10,1.30,0.2,"[""x""]","[""\\""""]",,',
        "only_old,gone,0,60000,1,,,,,,,,,",
        "",
    ]
    table = pq.read_table(pa.BufferReader(made["parquet"])).to_pylist()
    assert list(table[0]) == names.split(",")
    assert (table[1]["old.n"], table[1]["new.price"], table[1]["new.many"]) == (2**60, Decimal("1.30"), ['"'])
    listed = json.loads(made["json"], parse_float=Decimal)
    assert [one["kind"] for one in listed] == [one["kind"] for one in table] == ["only_new", "changed", "only_old"]
    assert listed[1]["new"] == {"n": 2**60 + 1, "price": Decimal("1.30"), "many": ['"'], "more": None}
    assert b"'=a" in b"".join(file_pieces(rows, Filters(), "csv", guarded=True))
    nothing = Filters(prefixes=(("K", "zzz"),))
    assert b"".join(file_pieces(rows, nothing, "json")) == b"[]\n"
    assert b"".join(file_pieces(rows, nothing, "csv")).decode() == names + "\r\n"
    assert pq.read_table(pa.BufferReader(b"".join(file_pieces(rows, nothing, "parquet")))).num_rows == 0
