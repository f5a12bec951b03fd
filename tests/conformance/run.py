"""One case: all statements, all inputs, its queries run by the real engine, what came out compared."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from headrace.errors import HeadraceError
from tests.conformance.case import CaseData, Outcome, Result, with_settings
from tests.conformance.compare import compare_topics
from tests.conformance.engine import Engine
from tests.conformance.rest import rest_differences


def run_case(case: CaseData, spark: SparkSession) -> Result:
    started = time.monotonic()
    try:
        differences = _differences(case, spark)
    except HeadraceError as error:
        differences = [f"{error}"]
    except Exception as error:
        differences = [f"{type(error).__name__}: {str(error)[:600]}"]
    outcome: Outcome = "failed" if differences else "passed"
    return Result(case["id"], case["tier"], outcome, "\n    ".join(differences), time.monotonic() - started)


def _differences(case: CaseData, spark: SparkSession) -> list[str]:
    if "expected_exception" in case:
        return _refused(case, spark)
    if "responses" in case:
        return rest_differences(case, spark)
    with Engine(spark) as engine:
        for statement in case["statements"]:
            engine.executor.execute(with_settings(case, statement))
        engine.append(case, case["inputs"])
        engine.compute(case["granularity"] == "per-record")
        actual = [record for topic in case["compare"] for record in engine.records(case, topic)]
        return compare_topics(case, actual)


def _refused(case: CaseData, spark: SparkSession) -> list[str]:
    """All statements but the last are taken; the last one is refused, and leaves nothing behind."""
    *accepted, last = case["statements"]
    with Engine(spark) as engine:
        for statement in accepted:
            engine.executor.execute(statement)
        before = engine.catalog.state
        try:
            engine.executor.execute(last)
        except HeadraceError:
            made = set(engine.catalog.state.sources) - set(before.sources)
            return [f"it was refused, but {', '.join(made)} exists"] if made else []
    expected = case["expected_exception"].get("message", "")
    return [f"it was accepted; expected: {expected}"]
