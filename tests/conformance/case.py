"""A case as the file has it, and what became of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Any
CaseData: TypeAlias = dict[str, Any]
Outcome = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Result:
    id: str
    tier: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0

    def report(self) -> str:
        body = asdict(self)
        return json.dumps(body | {"seconds": round(self.seconds, 2)}, ensure_ascii=False)


def load_cases(path: Path, wanted: str | None = None) -> list[CaseData]:
    """All cases of a file; with `wanted` those of that tier, or whose id holds it. Literals are kept as written."""
    with path.open(encoding="utf-8") as lines:
        cases = [json.loads(line, parse_float=Decimal) for line in lines if line.strip()]
    return [case for case in cases if not wanted or case["tier"] == wanted or wanted in case["id"]]


def with_settings(case: CaseData, statement: str) -> str:
    """The statement after SETs of the case's properties, which count for what follows in the same text."""
    settings = ((name, str(value).replace("'", "''")) for name, value in (case.get("properties") or {}).items())
    return "".join(f"SET '{name}' = '{value}'; " for name, value in settings) + statement
