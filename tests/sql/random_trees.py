"""Random expressions and statements, for hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast, get_args
from typing import Literal as Only

from hypothesis import strategies as st

from headrace import types
from headrace.sql.clauses import (
    AsOf,
    CommonTable,
    Duration,
    Element,
    Identifier,
    JoinClause,
    OffsetRange,
    Property,
    Query,
    Relation,
    SelectAll,
    SelectFields,
    SelectItem,
    TimeRange,
    TypeName,
    WindowClause,
    WithinClause,
)
from headrace.sql.expressions import (
    Arithmetic,
    ArrayLiteral,
    Between,
    Call,
    Case,
    Cast,
    Comparison,
    Dereference,
    Expression,
    Frame,
    In,
    IsNull,
    Lambda,
    LambdaVariable,
    Like,
    Literal,
    Logical,
    MapLiteral,
    Name,
    Negate,
    Not,
    OrderItem,
    Over,
    StructLiteral,
    Subscript,
)
from headrace.sql.statements import (
    AlterSource,
    AssertSchema,
    AssertSource,
    AssertTopic,
    CreateAsSelect,
    CreateFunction,
    CreateSource,
    CreateType,
    Define,
    Describe,
    DescribeFunction,
    Drop,
    DropFunction,
    DropType,
    Explain,
    InsertSelect,
    InsertValues,
    Pause,
    Print,
    RunScript,
    SelectStatement,
    SetProperty,
    Show,
    ShowSubject,
    Statement,
    Terminate,
)
from headrace.types import DataType

NAMES = st.sampled_from(
    ["A", "B1", "_X", "DATE", "KEY", "FROM", "SELECT", "camelCase", "with space", "tick`s", "é", "1A"]
)
# Names that are never parameters of a lambda, in which a bare name would mean the parameter.
PARAMETERS = st.sampled_from(["P", "Q"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9),
    st.just(Decimal("7")),
    TEXTS,
    st.binary(max_size=6),
)

LEAVES: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Literal, VALUES), st.builds(Name, NAMES, st.one_of(st.none(), NAMES))
)
SIMPLE: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from([*types.SIMPLE_TYPES.values(), types.Decimal(10, 2)]),
    st.builds(TypeName, NAMES).map(lambda name: cast(DataType, name)),
)
ROWS_AWAY = st.integers(-9, 9)
UNITS: st.SearchStrategy[Only["ROWS", "RANGE"]] = st.sampled_from(["ROWS", "RANGE"])
FRAMES = st.one_of(
    st.none(),
    st.builds(Frame, st.none(), st.one_of(st.none(), ROWS_AWAY), UNITS),
    st.builds(Frame, st.integers(-9, 0), st.one_of(st.none(), st.integers(0, 9)), UNITS),
)
COMPARISONS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])


@st.composite
def data_types(draw: st.DrawFn, levels: int = 2) -> DataType:
    inner = data_types(levels - 1) if levels else SIMPLE
    match draw(st.integers(0, 5 if levels else 2)):
        case 3:
            return types.Array(draw(inner))
        case 4:
            return types.Map(draw(inner), draw(inner))
        case 5:
            fields = st.lists(st.tuples(NAMES, inner), max_size=3, unique_by=lambda field: field[0])
            return types.Struct(tuple(draw(fields)))
        case _:
            return draw(SIMPLE)


@st.composite
def expressions(draw: st.DrawFn, levels: int = 4) -> Expression:
    """A tree of at most that many levels. Not `st.recursive`, whose descriptions grow beyond what hypothesis allows."""
    if levels <= 1 or draw(st.integers(0, 3)) == 0:
        return draw(LEAVES)
    inner = expressions(levels - 1)

    def one() -> Expression:
        return draw(inner)

    def several(least: int = 0) -> tuple[Expression, ...]:
        return tuple(one() for _ in range(draw(st.integers(least, 3))))

    def pairs() -> tuple[tuple[Expression, Expression], ...]:
        return tuple((one(), one()) for _ in range(draw(st.integers(1, 2))))

    def fields() -> tuple[tuple[str, Expression], ...]:
        return tuple((name, one()) for name in draw(st.lists(NAMES, max_size=3, unique=True)))

    def maybe() -> Expression | None:
        return one() if draw(st.booleans()) else None

    def flag() -> bool:
        return draw(st.booleans())

    def lambda_call() -> Expression:
        parameters = draw(st.lists(PARAMETERS, min_size=1, max_size=2, unique=True))
        body = Arithmetic("+", LambdaVariable(parameters[0]), one())
        return Call("TRANSFORM", (one(), Lambda(tuple(parameters), body)))

    def over() -> Expression:
        order = tuple(OrderItem(one(), flag()) for _ in range(draw(st.integers(0, 2))))
        name = draw(st.sampled_from(["COUNT", "LAG", "ROW_NUMBER"]))
        return Over(name, several(), several(), order, draw(FRAMES))

    makers: list[Callable[[], Expression]] = [
        lambda: Call(draw(st.sampled_from(["COUNT", "UCASE", "DATE", "ARRAY_JOIN"])), several()),
        lambda: Arithmetic(draw(st.sampled_from(["+", "-", "*", "/", "%"])), one(), one()),
        lambda: Negate(one()),
        lambda: Comparison(cast(Any, draw(COMPARISONS)), one(), one()),
        lambda: Logical(draw(st.sampled_from(["AND", "OR"])), one(), one()),
        lambda: Not(one()),
        lambda: IsNull(one(), flag()),
        lambda: Between(one(), one(), one(), flag()),
        lambda: In(one(), several(1), flag()),
        lambda: Like(one(), one(), draw(st.sampled_from([None, "!", "'", "\\"])), flag()),
        lambda: Case(pairs(), maybe(), maybe()),
        lambda: Cast(one(), draw(data_types())),
        lambda: Subscript(one(), one()),
        lambda: Dereference(one(), draw(NAMES)),
        lambda: ArrayLiteral(several()),
        lambda: MapLiteral(pairs()),
        lambda: StructLiteral(fields()),
        lambda_call,
        over,
    ]
    return draw(st.sampled_from(makers))()


IDENTIFIERS = st.builds(Identifier, NAMES)
SMALL = expressions(2)
MAYBE = st.one_of(st.none(), SMALL)
DURATIONS = st.builds(
    Duration, st.integers(0, 10**6), st.sampled_from(["MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY"])
)
MAYBE_DURATIONS = st.one_of(st.none(), DURATIONS)
WINDOWS = st.one_of(
    st.builds(WindowClause, st.just("tumbling"), DURATIONS, st.none(), MAYBE_DURATIONS, MAYBE_DURATIONS),
    st.builds(WindowClause, st.just("hopping"), DURATIONS, DURATIONS, MAYBE_DURATIONS, MAYBE_DURATIONS),
    st.builds(WindowClause, st.just("session"), DURATIONS, st.none(), MAYBE_DURATIONS, MAYBE_DURATIONS),
)
MAYBE_NAMES = st.one_of(st.none(), IDENTIFIERS)
OFFSETS = st.integers(0, 2**62)
RANGES = st.one_of(
    st.none(),
    st.builds(TimeRange, st.one_of(TEXTS, OFFSETS), st.one_of(TEXTS, OFFSETS)),
    st.builds(lambda low, high: OffsetRange(((None, low, high),)), OFFSETS, OFFSETS),
    st.lists(st.tuples(st.integers(0, 9), OFFSETS, OFFSETS), min_size=1, max_size=2, unique_by=lambda one: one[0]).map(
        lambda bounds: OffsetRange(tuple(bounds))
    ),
    st.builds(AsOf, st.just("timestamp"), st.one_of(TEXTS, OFFSETS)),
    st.builds(AsOf, st.just("offset"), st.lists(OFFSETS, min_size=1, max_size=3).map(tuple)),
    st.builds(AsOf, st.just("arrival"), OFFSETS),
)
JOINS = st.builds(
    JoinClause,
    st.sampled_from(["inner", "left", "right", "full"]),
    IDENTIFIERS,
    SMALL,
    MAYBE_NAMES,
    st.one_of(st.none(), st.builds(WithinClause, DURATIONS, MAYBE_DURATIONS, MAYBE_DURATIONS)),
    st.none(),
    RANGES,
)
ITEMS = st.one_of(
    st.builds(SelectItem, SMALL, st.one_of(st.none(), IDENTIFIERS)),
    st.builds(SelectAll, MAYBE_NAMES),
    st.builds(SelectFields, SMALL),
)
COUNTS = st.one_of(st.none(), st.integers(0, 10**9))
RELATIONS = st.builds(Relation, IDENTIFIERS, MAYBE_NAMES, st.lists(JOINS, max_size=2).map(tuple), st.none(), RANGES)
INNER = st.builds(Query, st.lists(ITEMS, min_size=1, max_size=2).map(tuple), RELATIONS)
QUERIES = st.builds(
    Query,
    st.lists(ITEMS, min_size=1, max_size=3).map(tuple),
    st.one_of(RELATIONS, st.builds(Relation, IDENTIFIERS, st.none(), st.just(()), INNER)),
    MAYBE,
    st.one_of(st.none(), WINDOWS),
    st.lists(SMALL, max_size=2).map(tuple),
    MAYBE,
    st.lists(st.builds(OrderItem, SMALL, st.booleans()), max_size=2).map(tuple),
    st.sampled_from(["changes", "final", None]),
    COUNTS,
    st.lists(SMALL, max_size=2).map(tuple),
    st.booleans(),
    st.none(),
    st.none(),
    st.lists(st.builds(CommonTable, IDENTIFIERS, INNER), max_size=2, unique_by=lambda one: one.name).map(tuple),
).flatmap(
    lambda query: st.builds(
        replace,
        st.just(query),
        offset=st.none() if query.limit is None else COUNTS,
        every=MAYBE_DURATIONS if query.emit == "changes" else st.none(),
        refresh=MAYBE_DURATIONS,
    )
)
PROPERTIES = st.lists(
    st.builds(
        Property,
        st.sampled_from(["KAFKA_TOPIC", "KEY", "FORMAT", "KSQL.SOME.PROPERTY"]),
        st.one_of(TEXTS, st.integers(-(2**62), 2**62), st.booleans(), st.none()),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one.name,
).map(tuple)
KINDS = st.sampled_from(["stream", "table"])
ELEMENTS = st.lists(
    st.one_of(
        st.builds(Element, IDENTIFIERS, data_types(), st.sampled_from(["key", "primary", "headers", None])),
        st.builds(Element, IDENTIFIERS, data_types(), st.just("headers"), TEXTS),
    ),
    min_size=1,
    max_size=4,
).map(tuple)
ADDED = st.lists(st.builds(Element, IDENTIFIERS, data_types()), min_size=1, max_size=3).map(tuple)
ROWS = st.lists(st.lists(SMALL, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple)
CREATES = st.builds(CreateAsSelect, KINDS, IDENTIFIERS, QUERIES, PROPERTIES, st.booleans(), st.booleans())
SELECTS = st.builds(SelectStatement, QUERIES)
INSERTS = st.builds(InsertSelect, IDENTIFIERS, QUERIES, st.one_of(st.just(()), PROPERTIES))
# Variables are replaced where they are used, so their values must not look like one.
PLAIN = TEXTS.filter(lambda text: "${" not in text)

STATEMENTS: st.SearchStrategy[Statement] = st.one_of(
    st.builds(CreateSource, KINDS, IDENTIFIERS, ELEMENTS, PROPERTIES, st.booleans(), st.booleans(), st.booleans()),
    INSERTS,
    st.builds(AlterSource, KINDS, IDENTIFIERS, ADDED),
    st.builds(CreateType, IDENTIFIERS, data_types(), st.booleans()),
    st.builds(DropType, IDENTIFIERS, st.booleans()),
    st.builds(
        CreateFunction,
        IDENTIFIERS,
        st.lists(st.builds(Element, IDENTIFIERS, data_types()), max_size=3, unique_by=lambda one: one.column.name).map(
            tuple
        ),
        data_types(),
        st.one_of(TEXTS, st.just("return '${x}' + \"$$\"")),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(DropFunction, IDENTIFIERS, st.booleans()),
    st.builds(Pause, MAYBE_NAMES, st.booleans()),
    st.builds(Define, IDENTIFIERS, st.one_of(st.none(), PLAIN)),
    st.builds(SetProperty, TEXTS, st.one_of(st.none(), TEXTS)),
    st.builds(RunScript, TEXTS),
    st.builds(AssertTopic, TEXTS, st.one_of(st.just(()), PROPERTIES), st.booleans(), MAYBE_DURATIONS),
    st.builds(AssertSchema, st.one_of(st.none(), TEXTS), COUNTS, st.booleans(), MAYBE_DURATIONS),
    st.builds(AssertSource, KINDS, IDENTIFIERS, ELEMENTS, st.one_of(st.just(()), PROPERTIES)),
    CREATES,
    SELECTS,
    st.builds(InsertValues, IDENTIFIERS, st.lists(IDENTIFIERS, max_size=3).map(tuple), ROWS),
    st.builds(
        Show,
        st.sampled_from(get_args(ShowSubject)),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(Describe, IDENTIFIERS, st.booleans()),
    st.builds(DescribeFunction, IDENTIFIERS),
    st.builds(Explain, st.one_of(CREATES, SELECTS, INSERTS), extended=st.booleans()),
    st.builds(Explain, st.none(), IDENTIFIERS, st.booleans()),
    st.builds(Drop, KINDS, IDENTIFIERS, st.booleans(), st.booleans()),
    st.builds(Terminate, st.one_of(st.none(), IDENTIFIERS)),
    st.builds(Print, TEXTS, st.booleans(), COUNTS, COUNTS),
)
