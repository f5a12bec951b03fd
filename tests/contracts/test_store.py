"""What every store promises (`store/base.py`), for every store there is."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Conflict, DeadlineExceeded, HeadraceError
from headrace.log.base import TIME, TOMBSTONE, WINDOW_END, WINDOW_START
from headrace.sql.expressions import Between, Call, ColumnRef, Comparison, Expression, Like, Literal, Logical
from headrace.sql.source import Source, Window
from headrace.store.base import Position, Store
from headrace.store.memory import MemoryStore
from headrace.store.rows import over_rows
from headrace.store.sqlite import SqliteStore
from headrace.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    TIMESTAMP,
    VARCHAR,
    Array,
    Column,
    Map,
    Struct,
)
from headrace.types import TIME as TIME_OF_DAY
from headrace.types import Decimal as DecimalType
from tests.store.changelog import COUNTS, PER_MINUTE, apply, everything, records

VIEWS = ColumnRef("VIEWS", type=BIGINT)
PAGE = ColumnRef("PAGE", type=VARCHAR)


def number(value: int) -> Literal:
    return Literal(value, type=BIGINT)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "views")
    yield made
    made.close()


def test_a_new_view_is_empty_and_at_the_beginning(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    assert (everything(view), view.position(), view.count()) == ([], Position(0, {}), 0)


def test_the_last_write_of_a_key_wins(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    changed = apply(view, {"PAGE": "/a", "VIEWS": 1}, {"PAGE": "/b", "VIEWS": 1}, {"PAGE": "/a", "VIEWS": 2})
    assert changed == 2
    apply(view, {"PAGE": "/b", "VIEWS": 5})
    assert everything(view) == [("/a", 2), ("/b", 5)]
    assert view.count() == 2


def test_arrival_decides_across_partitions(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    newer = records(COUNTS, [{"PAGE": "/a", "VIEWS": 2}], arrival=9, partition=0)
    older = records(COUNTS, [{"PAGE": "/a", "VIEWS": 1}], arrival=4, partition=1)
    view.apply([newer, older], Position(10, {0: 1, 1: 1}))
    assert everything(view) == [("/a", 2)]


def test_a_tombstone_deletes_and_a_later_write_brings_back(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, {"PAGE": "/a", "VIEWS": 1}, {"PAGE": "/b", "VIEWS": 1})
    apply(view, {"PAGE": "/a", TOMBSTONE: True}, {"PAGE": "/never", TOMBSTONE: True})
    assert everything(view) == [("/b", 1)]
    apply(view, {"PAGE": "/b", TOMBSTONE: True}, {"PAGE": "/b", "VIEWS": 3})
    assert everything(view) == [("/b", 3)]


def test_the_window_is_part_of_the_key(store: Store) -> None:
    view = store.open_view(PER_MINUTE, 1)
    first, second = {WINDOW_START: 0, WINDOW_END: 60_000}, {WINDOW_START: 60_000, WINDOW_END: 120_000}
    apply(view, {"PAGE": "/a", "VIEWS": 1, **first}, {"PAGE": "/a", "VIEWS": 7, **second})
    apply(view, {"PAGE": "/a", "VIEWS": 2, **first})
    assert everything(view) == [("/a", 0, 60_000, 2), ("/a", 60_000, 120_000, 7)]
    apply(view, {"PAGE": "/a", TOMBSTONE: True, **first})
    assert everything(view) == [("/a", 60_000, 120_000, 7)]


def test_rows_are_found_by_their_keys(store: Store) -> None:
    view = store.open_view(PER_MINUTE, 1)
    window = {WINDOW_START: 0, WINDOW_END: 60_000}
    apply(view, *({"PAGE": f"/{page}", "VIEWS": page, **window} for page in range(1200)))
    found = view.find([(f"/{page}", 0, 60_000) for page in range(0, 1300, 2)], ["VIEWS", "PAGE"])
    assert found == {(f"/{page}", 0, 60_000): (page, f"/{page}") for page in range(0, 1200, 2)}
    assert view.find([("/1", 0, 60_001)], ["VIEWS"]) == {}
    assert view.find([], ["VIEWS"]) == {}


def test_a_null_key_is_one_key(store: Store) -> None:
    source = Source("N", "table", "n", (Column("A", VARCHAR), Column("B", BIGINT)), (Column("V", BIGINT),))
    view = store.open_view(source, 1)
    apply(view, {"A": None, "B": 1, "V": 1}, {"A": "x", "B": None, "V": 1})
    apply(view, {"A": None, "B": 1, "V": 2})
    assert everything(view) == [(None, 1, 2), ("x", None, 1)]
    apply(view, {"A": None, "B": 1, TOMBSTONE: True}, {"A": "x", "B": None, "V": 3})
    assert everything(view) == [("x", None, 3)]


def test_changes_it_has_are_passed_over(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    first = records(COUNTS, [{"PAGE": "/a", "VIEWS": 1}, {"PAGE": "/a", "VIEWS": 2}], arrival=1)
    view.apply([first], Position(3, {0: 2}))
    assert view.apply([first], Position(3, {0: 2})) == 0
    again = records(COUNTS, [{"PAGE": "/a", "VIEWS": 2}, {"PAGE": "/b", "VIEWS": 1}], arrival=2, offset=1)
    assert view.apply([again], Position(4, {0: 3})) == 1
    assert everything(view) == [("/a", 2), ("/b", 1)]
    assert view.position() == Position(4, {0: 3})


def test_it_never_goes_back(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, {"PAGE": "/a", "VIEWS": 1})
    at = view.position()
    assert view.apply([], Position(0, {})) == 0
    assert view.position() == at


def test_a_position_can_move_without_changes(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    assert view.apply([], Position(12, {0: 0, 1: 0})) == 0
    assert view.position() == Position(12, {0: 0, 1: 0})


def test_rows_and_position_outlive_a_reopen(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, {"PAGE": "/a", "VIEWS": 1})
    before = (everything(view), view.position())
    view.close()
    again = store.open_view(COUNTS, 1)
    assert (everything(again), again.position()) == before


def test_one_view_store_at_a_time(store: Store) -> None:
    store.open_view(COUNTS, 1)
    with pytest.raises(Conflict, match="open already"):
        store.open_view(COUNTS, 1)


def test_versions_are_apart(store: Store) -> None:
    old, new = store.open_view(COUNTS, 1), store.open_view(COUNTS, 2)
    apply(old, {"PAGE": "/a", "VIEWS": 1})
    assert (everything(old), everything(new)) == ([("/a", 1)], [])
    store.drop_view("COUNTS", 1)
    assert everything(new) == []
    assert everything(store.open_view(COUNTS, 1)) == []


def test_dropping_what_is_not_there_is_fine(store: Store) -> None:
    kept = store.open_view(COUNTS, 1)
    apply(kept, {"PAGE": "/a", "VIEWS": 1})
    store.drop_view("NOTHING", 3)
    assert everything(kept) == [("/a", 1)]


def test_another_definition_starts_anew(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, {"PAGE": "/a", "VIEWS": 1})
    view.close()
    other = Source("COUNTS", "table", "counts", COUNTS.key, (Column("VIEWS", DOUBLE),))
    again = store.open_view(other, 1)
    assert (everything(again), again.position()) == ([], Position(0, {}))


def test_only_what_is_wanted_is_kept(store: Store) -> None:
    for version in (1, 2):
        view = store.open_view(COUNTS, version)
        apply(view, {"PAGE": "/a", "VIEWS": version})
        view.close()
    store.keep_only([("COUNTS", 2)])
    assert everything(store.open_view(COUNTS, 1)) == []
    assert everything(store.open_view(COUNTS, 2)) == [("/a", 2)]


def test_a_dropped_view_cannot_be_read(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    store.drop_view("COUNTS", 1)
    with pytest.raises(HeadraceError):
        everything(view)


def test_predicates_order_and_limit(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, *({"PAGE": f"/{n}", "VIEWS": n} for n in range(10)))
    above = Comparison(">=", VIEWS, number(5), type=BOOLEAN)
    assert selected(view, above, order=[("VIEWS", True)], limit=3) == [("/9", 9), ("/8", 8), ("/7", 7)]
    between = Between(PAGE, Literal("/2", type=VARCHAR), Literal("/4", type=VARCHAR), type=BOOLEAN)
    assert selected(view, between, order=[("PAGE", False)]) == [("/2", 2), ("/3", 3), ("/4", 4)]
    like = Like(PAGE, Literal("/1%", type=VARCHAR), type=BOOLEAN)
    assert selected(view, like) == [("/1", 1)]


def test_what_it_cannot_check_it_gives_back(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, *({"PAGE": "/" * n, "VIEWS": n} for n in range(1, 10)))
    length = Call("LEN", (PAGE,), type=INTEGER)
    few = Comparison("<", length, Literal(4, type=INTEGER), type=BOOLEAN)
    both = Logical("AND", few, Comparison(">", VIEWS, number(1), type=BOOLEAN), type=BOOLEAN)
    assert sorted(selected(view, both)) == [("//", 2), ("///", 3)]


def selected(view: Any, predicate: Expression, **options: Any) -> list[tuple[Any, ...]]:
    names = ("PAGE", "VIEWS")
    rows, residual = view.select(names, predicate, **options)
    if residual is None:
        return list(rows.rows)
    matches = over_rows(residual, names)
    return [row for row in rows.rows if matches(row) is True]


def test_every_row_has_its_address(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, {"PAGE": "/a", "VIEWS": 1, TIME: 1_000}, {"PAGE": "/b", "VIEWS": 1, TIME: 2_000}, partition=3)
    apply(view, {"PAGE": "/a", "VIEWS": 2, TIME: 3_000}, partition=3)
    rows, _ = view.select(["PAGE", "ROWTIME", "ROWPARTITION", "ROWOFFSET"], order=[("PAGE", False)])
    assert rows.rows == [("/a", 3_000, 3, 2), ("/b", 2_000, 3, 1)]
    assert rows.position == view.position() == Position(4, {3: 3})


def test_a_scan_sees_one_moment(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, *({"PAGE": f"{n:04}", "VIEWS": 1} for n in range(2_000)))
    with view.scan(["VIEWS"]) as scan:
        seen = [next(scan.rows)]
        apply(view, *({"PAGE": f"{n:04}", "VIEWS": 2} for n in range(2_000)))
        seen += list(scan.rows)
        assert scan.position.arrival < view.position().arrival
    assert seen == [(1,)] * 2_000


def test_a_deadline_ends_a_scan(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, *({"PAGE": f"{n:06}", "VIEWS": n} for n in range(20_000)))
    never = Comparison("<", VIEWS, number(0), type=BOOLEAN)
    with pytest.raises(DeadlineExceeded, match="took longer than"):
        view.select(["PAGE"], never, deadline=0.0)
    assert len(view.select(["PAGE"])[0].rows) == 20_000


ALL_TYPES = Source(
    "ALL_TYPES",
    "table",
    "all_types",
    (Column("K", BIGINT),),
    (
        Column("BOOL", BOOLEAN),
        Column("INT", INTEGER),
        Column("BIG", BIGINT),
        Column("DBL", DOUBLE),
        Column("DEC", DecimalType(38, 10)),
        Column("TXT", VARCHAR),
        Column("RAW", BYTES),
        Column("DAY", DATE),
        Column("CLOCK", TIME_OF_DAY),
        Column("MOMENT", TIMESTAMP),
        Column("LIST", Array(TIMESTAMP)),
        Column("DICT", Map(VARCHAR, DecimalType(4, 2))),
        Column("OBJ", Struct((("A", DOUBLE), ("b", Array(DATE)), ("C", BYTES)))),
        # SQLite's names know no case.
        Column("obj", VARCHAR),
        Column('we"ird', VARCHAR),
    ),
)
MOMENT = datetime.datetime(2026, 11, 15, 12, 0, 0, 123_456, tzinfo=datetime.UTC)
MOMENT_MS = 1_794_744_000_123
FULL = {
    "K": 1,
    "BOOL": True,
    "INT": -(2**31),
    "BIG": -(2**63),
    "DBL": -math.inf,
    "DEC": Decimal("-1234567890123456789012345678.0123456789"),
    "TXT": "ä\0𝄞'\"",
    "RAW": b"\x00\xff",
    "DAY": datetime.date(1, 1, 1),
    "CLOCK": 86_399_999,
    "MOMENT": MOMENT,
    "LIST": [MOMENT, None],
    "DICT": [("x", Decimal("1.50")), ("y", None)],
    "OBJ": {"A": math.inf, "b": [datetime.date(2026, 11, 15), None], "C": b"\x01"},
    "obj": "lower",
    'we"ird': "quoted",
}


def test_every_type_comes_back_as_it_was(store: Store) -> None:
    view = store.open_view(ALL_TYPES, 1)
    apply(
        view,
        FULL,
        {"K": 2},
        {"K": 3, "BIG": 2**63 - 1, "DBL": math.nan, "DEC": Decimal("0E-10"), "OBJ": {"A": math.nan}},
    )
    full, empty, odd = everything(view)
    assert full == (
        *(FULL[name] for name in ("K", "BOOL", "INT", "BIG", "DBL", "DEC", "TXT", "RAW", "DAY", "CLOCK")),
        MOMENT_MS,
        [MOMENT_MS, None],
        {"x": Decimal("1.50"), "y": None},
        *(FULL[name] for name in ("OBJ", "obj", 'we"ird')),
    )
    assert [type(value) for value in full[:3]] == [int, bool, int]
    assert empty == (2, *[None] * 15)
    assert odd[3] == 2**63 - 1
    assert math.isnan(odd[4])
    assert str(odd[5]) == "0E-10"
    assert math.isnan(odd[13]["A"])


@pytest.mark.parametrize("column", ["DEC", "DBL", "TXT", "RAW", "DAY", "MOMENT", "BOOL"])
def test_order_is_the_values_order(store: Store, column: str) -> None:
    values: dict[str, list[Any]] = {
        "DEC": [None, *map(Decimal, ("-12345678901234567890.5", "-2", "-1.9999999999", "0", "0.5", "3", "1e27"))],
        "DBL": [None, -math.inf, -1.5, 0.0, 2.0, 1e300, math.inf, math.nan],
        "TXT": [None, "", "A", "B", "a", "ab", "é", "\uffff", "𝄞"],
        "RAW": [None, b"", b"\x00", b"a", b"\xff"],
        "DAY": [None, datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)],
        "MOMENT": [None, MOMENT - datetime.timedelta(days=365 * 100), MOMENT],
        "BOOL": [None, False, True],
    }
    view = store.open_view(ALL_TYPES, 1)
    order = list(range(len(values[column])))
    apply(view, *({"K": n, column: values[column][n]} for n in reversed(order)))
    assert [key for [key] in view.select(["K"], order=[(column, False)])[0].rows] == order
    assert [key for [key] in view.select(["K"], order=[(column, True)])[0].rows] == order[::-1]


HOUR = 3_600_000


def test_windows_are_kept_as_long_as_they_should_be(store: Store) -> None:
    source = replace(PER_MINUTE, window=Window("tumbling", 60_000, 60_000, 0, HOUR))
    view = store.open_view(source, 1)

    def window(page: str, start: int, time: int) -> dict[str, Any]:
        return {"PAGE": page, "VIEWS": 1, TIME: time, WINDOW_START: start, WINDOW_END: start + 60_000}

    apply(view, window("/old", 0, 10), window("/young", 60_000, 70_000))
    assert view.count() == 2
    # By the view's own time: nothing is gone before something newer has come.
    apply(view, window("/new", HOUR, HOUR + 36_000))
    assert [row[0] for row in everything(view)] == ["/new", "/young"]
    # A repair that comes too late for it is not kept either, and time does not go back.
    apply(view, window("/old", 0, 10))
    assert [row[0] for row in everything(view)] == ["/new", "/young"]
    assert view.horizon() == 36_000
    view.close()
    again = store.open_view(source, 1)
    assert again.horizon() == 36_000
    apply(again, window("/newest", 2 * HOUR, 2 * HOUR))
    assert [row[0] for row in everything(again)] == ["/newest"]


def test_rows_that_do_not_change_go_after_a_while(store: Store) -> None:
    view = store.open_view(replace(COUNTS, row_ttl_ms=HOUR), 1)
    apply(view, {"PAGE": "/still", "VIEWS": 1, TIME: 0}, {"PAGE": "/busy", "VIEWS": 1, TIME: 0})
    apply(view, {"PAGE": "/busy", "VIEWS": 2, TIME: HOUR // 2})
    apply(view, {"PAGE": "/new", "VIEWS": 1, TIME: HOUR + 36_000})
    assert everything(view) == [("/busy", 2), ("/new", 1)]
    assert store.open_view(replace(COUNTS, name="FOR_EVER"), 1).horizon() is None


def test_however_changes_are_cut_the_same_rows_are_left(tmp_path: Path) -> None:
    """What expires depends on what came, not on how much of it came at once."""
    chance = random.Random(7)
    changes = [
        {"PAGE": f"/{chance.randrange(20)}", "VIEWS": n, TIME: n * 60_000 - chance.randrange(HOUR)} for n in range(200)
    ]
    ends = []
    for number, size in enumerate((1, 7, 50, 200)):
        for store in (MemoryStore(), SqliteStore(tmp_path / str(number))):
            view = store.open_view(replace(COUNTS, row_ttl_ms=HOUR), 1)
            for start in range(0, len(changes), size):
                apply(view, *changes[start : start + size])
            ends.append(everything(view))
            store.close()
    assert ends[0]
    assert all(end == ends[0] for end in ends)


def test_further_columns_are_null_in_the_rows_there_are(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, {"PAGE": "/a", "VIEWS": 1})
    wide = replace(COUNTS, value=(*COUNTS.value, Column("USERS", BIGINT)))
    assert everything(view) == [("/a", 1)]
    assert view.widen(wide)
    assert everything(view) == [("/a", 1, None)]
    apply(view, {"PAGE": "/b", "VIEWS": 2, "USERS": 3})
    users = ColumnRef("USERS", type=BIGINT)
    found, _ = view.select(["PAGE"], Comparison("=", users, number(3), type=BOOLEAN))
    assert (everything(view), found.rows) == ([("/a", 1, None), ("/b", 2, 3)], [("/b",)])


def test_another_definition_is_filled_beside_and_takes_over(store: Store) -> None:
    view = store.open_view(COUNTS, 1)
    apply(view, {"PAGE": "/a", "VIEWS": 1})
    wide = replace(COUNTS, value=(*COUNTS.value, Column("USERS", BIGINT)))
    beside = store.open_beside(wide, 1)
    assert (everything(view), everything(beside)) == ([("/a", 1)], [])
    apply(beside, {"PAGE": "/a", "VIEWS": 1, "USERS": 2})
    store.take_over(beside)
    assert (everything(view), everything(beside)) == ([("/a", 1)], [("/a", 1, 2)])
    store.discard(view)
    beside.close()
    assert everything(store.open_view(wide, 1)) == [("/a", 1, 2)]
