"""How functions are written, and what SQL then knows of them."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from headrace.functions.direct import take_failures
from headrace.functions.letters import letter_of
from headrace.log.dead_letters import bury
from tests.functions.support import call, described, function_file, problems, steps


@pytest.fixture(autouse=True)
def _nothing_left() -> None:
    take_failures()


@pytest.mark.parametrize(
    ("annotations", "signature"),
    [
        ("a: bool, b: int, c: float, d: str, e: bytes) -> str", "(BOOLEAN, BIGINT, DOUBLE, VARCHAR, BYTES) -> VARCHAR"),
        ("d: datetime.date, t: datetime.time) -> datetime.datetime", "(DATE, TIME) -> TIMESTAMP"),
        ("a: Decimal) -> Decimal", "(DECIMAL) -> DECIMAL"),
        ('a: Annotated[int, "INTEGER"]) -> Annotated[Decimal, "DECIMAL(10, 2)"]', "(INTEGER) -> DECIMAL(10, 2)"),
        ("a: list[str], b: dict[str, list[int]]) -> int", "(ARRAY<VARCHAR>, MAP<VARCHAR, ARRAY<BIGINT>>) -> BIGINT"),
        ("a: list[T], b: T, c: Any) -> T", "(ARRAY<T>, T, U) -> T"),
        ("a: str | None, *rest: str) -> str", "(VARCHAR, VARCHAR...) -> VARCHAR"),
        ("a: Place) -> Spot", "(STRUCT<city VARCHAR, zip BIGINT>) -> STRUCT<x DOUBLE>"),
    ],
)
def test_annotations_are_types(annotations: str, signature: str) -> None:
    text = f"""
    T = TypeVar("T")
    class Place(TypedDict):
        city: str
        zip: int
    @dataclasses.dataclass
    class Spot:
        x: float
    @function
    def f({annotations}: ...
    """
    assert [str(one) for one in described(text)["F"].signatures] == [signature]


def test_a_name_a_description_a_version_and_several_signatures_can_be_said() -> None:
    text = """
    both = ["(BIGINT) -> BIGINT", "(VARCHAR) -> VARCHAR"]
    @function(name="twice", description="Both of it.", version="2", signatures=both)
    def double(x): return x + x
    """
    found = described(text)["TWICE"]
    assert (found.summary, found.label, found.attribute) == ("Both of it.", "2", "double")
    assert call(text, "TWICE(4)") == 8
    assert call(text, "TWICE('ab')") == "abab"


def test_what_is_wrong_with_a_function_is_said_with_its_line_and_the_others_work() -> None:
    text = """
    @function
    def untyped(x) -> int: return x
    @function
    def strange(x: object) -> int: return 1
    @function
    def vague(x: int) -> Decimal: return x
    @function
    def len(x: str) -> int: return 1
    @function
    class Half:
        def init(self): return 0
        def add(self, state, x: int): return state
    @function
    def good(x: int) -> int: return x
    """
    assert problems(text) == [
        ("`untyped`: parameter `x` has no type", "write one:  x: float"),
        ("`strange`: parameter `x` has a type that SQL has not: `object`", 'name it:  Annotated[object, "VARCHAR"]'),
        (
            "`vague`: the result's type `DECIMAL` is not known",
            'say it:  -> Annotated[Decimal, "DECIMAL(10, 2)"]',
        ),
        ("`len`: `LEN` is a function of Headrace's own", "give it another name"),
        ("`Half`: an aggregate needs merge, result", "init, add, merge and result; undo for tables"),
    ]


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("def f(:", "is not valid Python: ", 10),
        ("x = 1\nraise ValueError('no')", "cannot be loaded: ValueError: no", 11),
    ],
)
def test_a_file_that_cannot_be_loaded_says_where(text: str, problem: str, line: int) -> None:
    from headrace.functions.describe import describe

    file = function_file(text)
    _, [found] = describe(file)
    assert found.message.startswith(problem)
    assert found.line == line


def test_values_come_and_go_as_people_write_them() -> None:
    text = """
    class Place(TypedDict):
        city: str
        since: datetime.datetime

    @function
    def later(at: datetime.datetime, days: int) -> datetime.datetime:
        assert at.tzinfo is not None
        return at + datetime.timedelta(days=days)
    @function
    def noon(day: datetime.date) -> datetime.time: return datetime.time(12, 0, 0, 5000)
    @function
    def moved(place: Place) -> Place: return {"city": place["city"].upper(), "since": place["since"]}
    @function
    def price(x: float) -> Annotated[Decimal, "DECIMAL(6, 2)"]: return x
    """
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp() * 1000
    assert call(text, "LATER(CAST('2025-12-31' AS TIMESTAMP), 1)") == day
    assert call(text, "NOON(CAST('2026-01-01' AS DATE))") == 12 * 3600 * 1000 + 5
    moved = call(text, "MOVED(STRUCT(city := 'bern', since := CAST('2026-01-01' AS TIMESTAMP)))")
    assert moved == {"CITY": "BERN", "SINCE": day}
    assert call(text, "PRICE(2.345E0)") == Decimal("2.35")


def test_null_is_not_given_to_who_does_not_expect_it() -> None:
    text = """
    @function
    def strict(x: int) -> int: return x + 1
    @function
    def loose(x: int | None, y: int) -> int: return (x or 0) + y
    """
    assert call(text, "STRICT(CAST(NULL AS BIGINT))") is None
    assert call(text, "LOOSE(CAST(NULL AS BIGINT), 2)") == 2
    assert call(text, "LOOSE(2, CAST(NULL AS BIGINT))") is None
    assert take_failures() == []


def test_an_exception_is_null_and_is_told_with_its_traceback() -> None:
    text = """
    @function
    def inverse(x: int) -> float:
        return 1 / x
    """
    assert call(text, "INVERSE(0)") is None
    [failure] = take_failures()
    assert failure.reason == "function `inverse` failed: ZeroDivisionError: division by zero"
    assert failure.arguments == "[0]"
    assert 'File "functions/mine.py", line 13, in inverse\n    return 1 / x' in failure.trace


@pytest.mark.parametrize(
    ("returns", "given", "error"),
    [
        ("int", "'a'", "Misfit: should give BIGINT, gave 'a' (str)"),
        ("int", "2 ** 63", "Misfit: should give BIGINT, gave 9223372036854775808 (int)"),
        ("str", "5", "Misfit: should give VARCHAR, gave 5 (int)"),
        ("list[int]", "[1, None, 'x']", "Misfit: should give BIGINT, gave 'x' (str)"),
        (
            'Annotated[Decimal, "DECIMAL(3, 2)"]',
            "Decimal(100)",
            "Misfit: should give DECIMAL(3, 2), gave Decimal('100') (Decimal)",
        ),
    ],
)
def test_a_result_of_another_type_is_a_failure(returns: str, given: str, error: str) -> None:
    text = f"""
    @function
    def f() -> {returns}: return {given}
    """
    assert call(text, "F()") is None
    [failure] = take_failures()
    assert failure.error == error


def test_an_exception_may_quote_what_is_no_text() -> None:
    text = """
    @function
    def quotes(x: int) -> int:
        raise ValueError(chr(0xDC00 + x))
    """
    assert call(text, "QUOTES(255)") is None
    [failure] = take_failures()
    assert failure.error == "ValueError: ?"
    assert bury([letter_of(failure, "t", "q")]).batch.num_rows == 1


def test_a_call_that_hangs_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.functions import direct
    from headrace.functions.compiled import Limits

    monkeypatch.setattr(direct.DIRECT, "limits", Limits(seconds=0.05))
    text = """
    @function
    def forever() -> int:
        while True: pass
    """
    assert call(text, "FOREVER()") is None
    [failure] = take_failures()
    assert failure.error == "TimeoutError: took longer than 0.05 s"


def test_arrays_are_taken_and_given_whole() -> None:
    text = """
    @function
    def plus(a: Annotated[pa.Array, "BIGINT"], b: Annotated[pa.Array, "BIGINT"]) -> Annotated[pa.Array, "BIGINT"]:
        return pc.add(a, b)
    """
    assert described(text)["PLUS"].style == "arrow"
    assert call(text, "PLUS(1, 2)") == 3
    assert call(text, "PLUS(1, CAST(NULL AS BIGINT))") is None


def test_a_table_function_gives_rows() -> None:
    text = """
    @function
    def words(text: str) -> Iterator[str]:
        yield from text.split()
    """
    assert described(text)["WORDS"].kind == "table"
    assert call(text, "WORDS('a b c')") == ["a", "b", "c"]


GEOMETRIC = """
@function
class GeometricMean:
    \"\"\"The n-th root of the product.\"\"\"
    def init(self): return [1.0, 0]
    def add(self, state, value: float): return [state[0] * value, state[1] + 1]
    def undo(self, state, value: float): return [state[0] / value, state[1] - 1]
    def merge(self, left, right): return [left[0] * right[0], left[1] + right[1]]
    def result(self, state) -> float: return state[0] ** (1 / state[1]) if state[1] else None
"""


def test_an_aggregate_is_kept_in_steps() -> None:
    found = described(GEOMETRIC)["GEOMETRICMEAN"]
    assert (found.kind, found.undo, found.summary) == ("aggregate", True, "The n-th root of the product.")
    kept = steps(GEOMETRIC, "GEOMETRICMEAN(1.5E0)")
    state = kept.add(kept.add(kept.init(), 2.0), 8.0)
    assert kept.result(state) == 4.0
    assert kept.undo is not None
    assert kept.result(kept.undo(state, 8.0)) == 2.0
    assert kept.result(kept.merge(state, kept.add(kept.init(), 4.0))) == pytest.approx(4.0)
    assert kept.result(kept.add(state, None)) == 4.0


def test_a_neighbour_can_be_imported_and_belongs_to_the_version() -> None:
    text = """
    from .rates import RATE
    @function
    def tax(x: float) -> float: return x * RATE
    """
    assert call(text, "TAX(10E0)", rates="RATE = 0.5") == 5.0
    assert call(text, "TAX(10E0)", rates="RATE = 0.25") == 2.5
    one, other = (function_file(text, rates=rates).version for rates in ("RATE = 0.5", "RATE = 1"))
    assert one != other
    assert function_file(text, rates="RATE = 0.5  # half").version == one
