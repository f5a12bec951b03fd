"""What a store checks itself means what the evaluator means: on random rows and predicates, nulls included."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.sql.expressions import (
    Between,
    Call,
    Cast,
    ColumnRef,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Logical,
    Not,
)
from headrace.sql.source import Source, Window
from headrace.store.pushdown import push
from headrace.store.rows import over_rows
from headrace.store.sqlite import SqliteStore, SqliteView
from headrace.store.sqlite_values import encode_constant
from headrace.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    TIME,
    TIMESTAMP,
    VARCHAR,
    Column,
    DataType,
)
from headrace.types import Decimal as DecimalType
from tests.store.changelog import apply

MONEY = DecimalType(10, 2)
WINDOW = Window("tumbling", 60_000, 60_000, 0)
SOURCE = Source(
    "T",
    "table",
    "t",
    (Column("K", BIGINT),),
    (
        Column("I", INTEGER),
        Column("J", INTEGER),
        Column("B", BIGINT),
        Column("D", DOUBLE),
        Column("M", MONEY),
        Column("S", VARCHAR),
        Column("U", VARCHAR),
        Column("R", BYTES),
        Column("F", BOOLEAN),
        Column("T", TIMESTAMP),
        Column("DT", DATE),
        Column("TM", TIME),
    ),
    window=WINDOW,
)
NAMES = tuple(column.name for column in SOURCE.all_columns)
TYPES = {column.name: column.type for column in SOURCE.all_columns}

VALUES: dict[DataType, list[Any]] = {
    INTEGER: [0, 1, -1, 7, 2**31 - 1, -(2**31)],
    BIGINT: [0, 1, -1, 7, 60_000, 2**53 + 1, 2**63 - 1, -(2**63)],
    DOUBLE: [0.0, 1.0, -1.5, 7.0, 2.0**53, 1e300, float("inf"), float("-inf"), float("nan")],
    MONEY: [Decimal(text) for text in ("0.00", "1.00", "-1.00", "-0.01", "7.50", "99999999.99")],
    VARCHAR: ["", "a", "A", "ab", "aB", "b", "%", "_", "a\0b", "a\n", "é", "\ud7ff", "\ue000", "\U0010ffff", "ab%"],
    BYTES: [b"", b"\x00", b"a", b"\xff"],
    BOOLEAN: [False, True],
    TIMESTAMP: [0, 1, -1, 60_000, 1_794_744_000_123],
    DATE: [datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(2026, 11, 15)],
    TIME: [0, 1, 86_399_999],
}
# What a query may hold beside the values that are there.
STRANGE: dict[DataType, list[Literal]] = {
    MONEY: [
        Literal(Decimal("1.005"), type=DecimalType(4, 3)),
        Literal(Decimal("123456789012.5"), type=DecimalType(13, 1)),
    ],
    VARCHAR: [Literal("\ud800", type=VARCHAR)],
}


def random_row(key: int, chance: random.Random) -> dict[str, Any]:
    row = {c.name: chance.choice([None, *VALUES[c.type]]) for c in SOURCE.value}
    if row["T"] is not None:
        row["T"] = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=row["T"])
    start = chance.randrange(3) * 60_000
    return row | {"K": key, "$time": chance.randrange(3), "$window_start": start, "$window_end": start + 60_000}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteView]:
    store = SqliteStore(tmp_path_factory.mktemp("views"))
    made = store.open_view(SOURCE, 1)
    chance = random.Random(3)
    apply(made, *(random_row(key, chance) for key in range(200)))
    yield made
    store.close()


def column(name: str) -> ColumnRef:
    return ColumnRef(name, type=TYPES[name])


def constants(type_: DataType) -> st.SearchStrategy[Expression]:
    plain = [literal(value, type_) for value in [*VALUES[type_], None]]
    return st.sampled_from([*plain, *STRANGE.get(type_, [])])


def literal(value: Any, type_: DataType) -> Expression:
    """As the analyser would write it: there are no literals for times."""
    if type_ == DATE and value is not None:
        return Cast(Literal(value.isoformat(), type=VARCHAR), DATE, type=DATE)
    if type_ == TIMESTAMP and value is not None:
        return Call("FROM_UNIXTIME", (Literal(value, type=BIGINT),), type=TIMESTAMP)
    return Literal(value, type=type_)


def terms(type_: DataType) -> st.SearchStrategy[Expression]:
    columns: list[Expression] = [column(name) for name, of in TYPES.items() if of == type_]
    narrower: list[DataType] = [INTEGER] if type_ == BIGINT else [INTEGER, BIGINT] if type_ == DOUBLE else []
    columns += [Cast(column(name), type_, type=type_) for name, of in TYPES.items() if of in narrower]
    return st.one_of(st.sampled_from(columns), constants(type_))


@st.composite
def comparisons(draw: st.DrawFn) -> Expression:
    type_ = draw(st.sampled_from(list(VALUES)))
    left, right = draw(terms(type_)), draw(terms(type_))
    negated = draw(st.booleans())
    match draw(st.integers(0, 4)):
        case 0:
            return Between(left, right, draw(terms(type_)), negated, type=BOOLEAN)
        case 1:
            options = draw(st.lists(terms(type_), min_size=1, max_size=3))
            return In(left, tuple(options), negated, type=BOOLEAN)
        case 2:
            return IsNull(left, negated, type=BOOLEAN)
        case _:
            operators = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
            return Comparison(draw(st.sampled_from(operators)), left, right, type=BOOLEAN)


@st.composite
def likes(draw: st.DrawFn) -> Expression:
    pattern = draw(st.text(st.sampled_from("aAbé%_!\0\n\ud7ff\U0010ffff"), max_size=4))
    escape = draw(st.sampled_from([None, "!"]))
    return Like(column("S"), Literal(pattern, type=VARCHAR), escape, draw(st.booleans()), type=BOOLEAN)


def leaves() -> st.SearchStrategy[Expression]:
    flags = st.sampled_from([column("F"), Literal(True, type=BOOLEAN), Literal(None, type=BOOLEAN)])
    length = Comparison(">", Call("LEN", (column("S"),), type=INTEGER), Literal(1, type=INTEGER), type=BOOLEAN)
    return st.one_of(comparisons(), comparisons(), likes(), flags, st.just(length))


predicates = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.builds(lambda a, b: Logical("AND", a, b, type=BOOLEAN), inner, inner),
        st.builds(lambda a, b: Logical("OR", a, b, type=BOOLEAN), inner, inner),
        st.builds(lambda a: Not(a, type=BOOLEAN), inner),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(predicate=predicates)
def test_pushed_predicates_mean_what_the_evaluator_means(view: SqliteView, predicate: Expression) -> None:
    everything = view.select(NAMES, order=[("K", False)])[0].rows
    matches = over_rows(predicate, NAMES)
    expected = [row[0] for row in everything if matches(row) is True]
    rows, residual = view.select(NAMES, predicate, order=[("K", False)])
    check = (lambda row: True) if residual is None else over_rows(residual, NAMES)
    assert [row[0] for row in rows.rows if check(row) is True] == expected


@pytest.mark.parametrize(
    ("predicate", "pushed"),
    [
        (Comparison("=", column("S"), Literal("a", type=VARCHAR), type=BOOLEAN), True),
        (Comparison("=", Literal("a", type=VARCHAR), column("S"), type=BOOLEAN), True),
        (Comparison(">", column("WINDOWSTART"), Literal(60_000, type=BIGINT), type=BOOLEAN), True),
        (Comparison(">", column("ROWTIME"), Literal(1, type=BIGINT), type=BOOLEAN), True),
        (Comparison("<", Cast(column("I"), DOUBLE, type=DOUBLE), Literal(0.5, type=DOUBLE), type=BOOLEAN), True),
        (Comparison("=", column("I"), column("J"), type=BOOLEAN), True),
        (Comparison("=", column("M"), Literal(Decimal("1.5"), type=DecimalType(2, 1)), type=BOOLEAN), True),
        (Comparison("=", column("M"), Literal(Decimal("1.555"), type=DecimalType(4, 3)), type=BOOLEAN), False),
        (Comparison(">=", column("DT"), literal(VALUES[DATE][1], DATE), type=BOOLEAN), True),
        (Comparison(">=", column("T"), literal(0, TIMESTAMP), type=BOOLEAN), True),
        (
            Comparison(">", column("WINDOWEND"), Call("UNIX_TIMESTAMP", (), type=BIGINT), type=BOOLEAN),
            True,
        ),
        (Like(column("S"), Literal("a%", type=VARCHAR), type=BOOLEAN), True),
        (Like(column("S"), column("U"), type=BOOLEAN), False),
        (Comparison(">", Call("LEN", (column("S"),), type=INTEGER), Literal(1, type=INTEGER), type=BOOLEAN), False),
    ],
)
def test_what_is_pushed(predicate: Expression, pushed: bool) -> None:
    split = push(predicate, TYPES, encode_constant)
    assert (split.residual is None, split.condition is not None) == (pushed, pushed)


def test_only_what_cannot_be_pushed_is_left() -> None:
    easy = Comparison("=", column("S"), Literal("a", type=VARCHAR), type=BOOLEAN)
    hard = Comparison(">", Call("LEN", (column("S"),), type=INTEGER), Literal(1, type=INTEGER), type=BOOLEAN)
    split = push(Logical("AND", hard, easy, type=BOOLEAN), TYPES, encode_constant)
    assert (split.residual, split.parameters) == (hard, ("a",))
    either = Logical("OR", hard, easy, type=BOOLEAN)
    assert push(either, TYPES, encode_constant).residual == either


def test_values_are_never_part_of_the_text(tmp_path: Path) -> None:
    view = SqliteStore(tmp_path).open_view(SOURCE, 1)
    evil = "'; DROP TABLE rows; --"
    predicate = Comparison("=", column("S"), Literal(evil, type=VARCHAR), type=BOOLEAN)
    view.select(["K"], predicate)
    [statement] = view.statements()
    assert evil not in statement
    view.select(["K"], Comparison("=", column("S"), Literal("other", type=VARCHAR), type=BOOLEAN))
    assert view.statements() == [statement]
    view.close()
