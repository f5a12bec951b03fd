"""The server against its own description: whatever the OpenAPI document allows, and what it does not, is sent to every
operation; no answer may be a failure of the server's.

    python -m tests.chaos.described --examples 100 --seed 7
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.generation import GenerationMode

from tests.server.running import running_server

WAITS = ("wait", "timeout")
"""Parameters that only make an answer come later."""
NOT_OURS = frozenset({501, 503, 507})
"""Says that something is not there, such as the engine: an answer, not a failure."""

PASSED_OVER = ("Unsatisfiable", "SkipTest", "SerializationNotPossible")
"""Nothing can be generated: no parameters that could be wrong, or a body that only its own clients write."""


@dataclass
class Outcome:
    operations: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    """Operation → the first request it failed for."""


def run(folder: Path, examples: int, number: int, seconds: float = 86_400.0) -> Outcome:
    """Operations in an order of their own for each seed, as many as fit into the time."""
    outcome, end = Outcome(), time.monotonic() + seconds
    with running_server(folder) as server:
        document = server.http.get("/openapi.json").json()
        schema = schemathesis.openapi.from_dict(document)
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30, trust_env=False) as http:
            operations: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
            random.Random(number).shuffle(operations)
            for operation in operations:
                if time.monotonic() < end:
                    try_operation(operation, http, examples, number, outcome)
                    outcome.operations += 1
    return outcome


def try_operation(operation: Any, http: httpx.Client, examples: int, number: int, outcome: Outcome) -> None:
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        try:
            cases = operation.as_strategy(generation_mode=mode)
        except Exception as error:
            if mode is GenerationMode.NEGATIVE and "Impossible" in str(error):
                continue  # nothing about it can be wrong
            raise

        @seed(number)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def attempt(case: Any) -> None:
            status, text = send(case, http)
            outcome.statuses[status] += 1
            if status >= 500 and status not in NOT_OURS:
                outcome.failures.setdefault(operation.label, f"{status} for {case.method} {case.path}: {text[:300]}")

        try:
            attempt()
        except Exception as error:
            if type(error).__name__ not in PASSED_OVER:
                raise


def send(case: Any, http: httpx.Client) -> tuple[int, str]:
    """Only how it begins: a stream does not end. 0 for what cannot be sent, or is never answered."""
    for name in WAITS:
        if case.query and name in case.query:
            case.query[name] = "0.01"
    arguments = case.as_transport_kwargs(base_url=str(http.base_url))
    arguments.pop("cookies", None)
    content = arguments.pop("data", None)
    if isinstance(content, dict):
        arguments["data"] = content
    elif content is not None:
        arguments["content"] = content if isinstance(content, bytes | str) else b"".join(content)
    try:
        with http.stream(**arguments) as answer:
            return answer.status_code, answer.read().decode(errors="replace") if answer.status_code >= 500 else ""
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, TypeError, ValueError):
        return 0, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(Path(folder), options.examples, options.seed)
    print(f"{outcome.operations} operations", dict(sorted(outcome.statuses.items())))
    for operation, request in outcome.failures.items():
        print(f"{operation}: {request}")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
