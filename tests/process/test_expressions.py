"""An expression means the same on Spark as in Python."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from headrace.functions.arrow_values import from_values, to_values
from headrace.patterns import compile_pattern
from headrace.process.expressions import lower_expression
from headrace.process.session import query_session
from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import Expression
from headrace.sql.functions import FUNCTIONS
from headrace.sql.parser import parse_expression
from headrace.sql.resolve import resolve
from headrace.sql.scope import Scope, columns_by_name
from headrace.sql.script import Script
from headrace.types import BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, TIME, TIMESTAMP, VARCHAR, DataType
from tests.process.random_sql import COLUMNS, INTEGERS, MONEY, TEXTS, RandomSql, random_row
from tests.sql.test_functions import CALLS
from tests.test_patterns import random_pattern

pytestmark = pytest.mark.spark

WANTED = (BOOLEAN, INTEGER, BIGINT, DOUBLE, MONEY, VARCHAR, TIMESTAMP, DATE, TIME, INTEGERS, TEXTS)


def resolved(sql: str) -> Expression:
    return resolve(parse_expression(sql), Scope(Script(sql), columns_by_name(COLUMNS)))


def frame_of(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> DataFrame:
    arrays = [from_values([row[column.name] for row in rows], column.type) for column in COLUMNS]
    return query_session(spark).createDataFrame(pa.table(arrays, names=[column.name for column in COLUMNS]))


def on_spark(frame: DataFrame, expressions: Sequence[Expression]) -> list[list[Any]]:
    table = frame.select(*(lower_expression(e).alias(f"c{place}") for place, e in enumerate(expressions))).toArrow()
    types = [e.type for e in expressions]
    return [to_values(column, type_) for column, type_ in zip(table.columns, types, strict=True) if type_ is not None]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-12)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left == right
    return type(left) is type(right) and bool(left == right)


def fitting(value: Any, type_: DataType | None) -> Any:
    """What of a value the column's type can hold: Python's functions may answer with more."""
    assert type_ is not None
    return to_values(from_values([value], type_), type_)[0]


def differences(spark: SparkSession, texts: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[str]:
    expressions = [resolved(text) for text in texts]
    found = []
    for text, expression, values in zip(texts, expressions, on_spark(frame_of(spark, rows), expressions), strict=True):
        evaluate = compile_expression(expression, now=lambda: 0)
        for row, value in zip(rows, values, strict=True):
            expected = fitting(evaluate(row), expression.type)
            if not same(value, expected):
                used = {name: inner for name, inner in row.items() if name in text}
                found.append(f"{text}\n  spark  {value!r}\n  python {expected!r}\n  {used}")
                break
    return found


@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_random_expressions_mean_the_same(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    sql = RandomSql(chance)
    texts = [sql.expression(type_, 3) for type_ in WANTED for _ in range(4)]
    rows = [random_row(chance) for _ in range(40)]
    assert "\n\n".join(differences(spark, texts, rows)) == ""


def test_a_lambda_that_needs_python_runs_there_as_a_whole(spark: SparkSession) -> None:
    texts = [
        "TRANSFORM(AT, one => INITCAP(one + S1))",
        "TRANSFORM(AI, one => one * LEN(INITCAP(S2)))",
        "REDUCE(AT, '', (all, one) => all + ARRAY_JOIN(TRANSFORM(SPLIT(one, ','), part => INITCAP(part)), '/'))",
        "ARRAY_CONTAINS(AT, INITCAP(S1))",
        "UCASE(INITCAP(S1)) + CHR(I1 % 50 + 70)",
    ]
    rows = [random_row(random.Random(seed)) for seed in range(30)]
    assert "\n\n".join(differences(spark, texts, rows)) == ""


def test_every_function_gives_the_same_on_its_examples(spark: SparkSession) -> None:
    texts = [f.example for f in FUNCTIONS.values() if f.kind == "scalar"]
    texts += [call for call, _ in CALLS if call != "UNIX_TIMESTAMP()"]
    rows = [random_row(random.Random(1))]
    assert "\n\n".join(differences(spark, texts, rows)) == ""


def test_patterns_match_as_in_java(spark: SparkSession) -> None:
    """RE2 and Java's engine on random patterns and texts. Java also finds empty matches inside a surrogate pair."""
    rng = random.Random(3)
    patterns = [random_pattern(rng) for _ in range(500)]
    texts = ["".join(rng.choice("aabé1xß") for _ in range(rng.randrange(8))) for _ in patterns]
    cases = list(zip(patterns, texts, strict=True))
    frame = query_session(spark).createDataFrame(pa.table([patterns, texts], names=["p", "t"]))
    java = frame.selectExpr("regexp_extract_all(t, p, 0) AS found").toArrow().column("found").to_pylist()
    ours = [[found[0] for found in compile_pattern(pattern).finditer(text)] for pattern, text in cases]
    assert list(zip(cases, ours, strict=True)) == list(zip(cases, java, strict=True))
