"""Conformance cases judged by planning alone, without Spark: every source of a case has the schema, the formats and the
window that the file says, and the last statement of an error case is refused. Thousands take seconds.

    python -m tests.conformance.plan_only path.jsonl [--filter tier or part of an id]
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.server.ksql.schemas import schema_text
from headrace.sql.api import Draft, parse
from headrace.sql.source import Source
from headrace.sql.validate import check
from tests.conformance.case import CaseData, Json, Result, load_cases, with_settings


def plan_case(case: CaseData) -> Result:
    """Passed if all is as the file says."""
    problem = _error_problem(case) if "expected_exception" in case else _schema_problem(case)
    return Result(case["id"], case["tier"], "failed" if problem else "passed", problem or "")


def _schema_problem(case: CaseData) -> str | None:
    draft = Draft()
    try:
        for text in case["statements"]:
            for statement in parse(with_settings(case, text)):
                check(statement, draft)
    except HeadraceError as error:
        return f"refused: {error}"
    for wanted in case["sources"]:
        found = draft.source(wanted["name"])
        problem = "is not there" if found is None else _difference(found, wanted)
        if problem:
            return f"{wanted['name']} {problem}"
    return None


def _difference(found: Source, wanted: Json) -> str | None:
    """What of a source is not as it should be."""
    window = found.window and found.window.kind.upper()
    compared = {
        "kind": (found.kind.upper(), wanted["kind"]),
        "topic": (found.topic, wanted["topic"]),
        "schema": (_schema(found), wanted["schema"].replace("STRUCT< >", "STRUCT<>")),
        "key_format": (found.key_format, wanted["key_format"]),
        "value_format": (found.value_format, wanted["value_format"]),
        "window": (window, (wanted.get("window") or {}).get("type")),
    }
    different = [f"has {name} {ours}, not {theirs}" for name, (ours, theirs) in compared.items() if ours != theirs]
    return "; ".join(different) or None


def _schema(source: Source) -> str:
    return schema_text(source.key + source.value, {column.name for column in source.key})


def _error_problem(case: CaseData) -> str | None:
    draft = Draft()
    *before, last = case["statements"]
    try:
        for text in before:
            for statement in parse(text):
                check(statement, draft)
    except HeadraceError as error:
        return f"refused too early: {error}"
    try:
        for statement in parse(last):
            check(statement, draft)
    except HeadraceError:
        return None
    return f"accepted, but should be refused: {case['expected_exception'].get('message')}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--filter", default=None)
    arguments = parser.parse_args()
    results = [plan_case(case) for case in load_cases(arguments.cases, arguments.filter)]
    for result in results:
        if result.outcome == "failed":
            print(f"FAILED {result.id} ({result.tier})\n    {result.reason}")
    for tier in sorted({result.tier for result in results}):
        counted = Counter(result.outcome for result in results if result.tier == tier)
        print(f"{tier}: {counted['passed']} of {counted.total()} passed")
    return 1 if any(result.outcome == "failed" for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
