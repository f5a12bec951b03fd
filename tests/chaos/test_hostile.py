"""A hundredth of what `make chaos` sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.hostile import run
from tests.chaos.hostile.cases import case
from tests.chaos.hostile.sockets import SEEDS, payload
from tests.support import SEED


@pytest.mark.slow
def test_hostile_requests_harm_nobody(tmp_path: Path) -> None:
    outcome = run.run(tmp_path, 2000, SEED)
    assert outcome.good, outcome.wrong[:20]
    assert outcome.healthy > 10


def test_a_case_is_the_same_for_the_same_number() -> None:
    def made() -> list[Any]:
        cases: list[Any] = [case(["http", "segment-ruled", "kinesis-ruled"], number) for number in range(50)]
        return cases + [payload(what, number) for what in SEEDS for number in range(20)]

    assert made() == made()


def test_a_case_is_aimed_at_the_collector_of_its_name() -> None:
    found = [case(["segment-ruled", "kinesis-ruled"], number) for number in range(50)]
    assert {one.path.partition("?")[0] for one in found if one.kind == "segment-ruled"} == {
        "/v1/collect/segment-ruled/v1/batch"
    }
    assert any(b'"StreamName": "kinesis-ruled"' in one.body for one in found)


def test_a_client_that_goes_away_is_no_failure() -> None:
    head, where = "Traceback (most recent call last):\n", '  File "a.py", line 1, in a\n    b()\n'
    between = "2026-11-17 02:51:18,693 WARNING headrace.agent: another thread's line\n"
    gone, failed = f"{head}{where}{between}BrokenPipeError: [Errno 32]\n", f"{head}{where}KeyError: 'a'\n"
    assert [text[-13:] for text in run.tracebacks(gone + between + failed)] == ["KeyError: 'a'"]
