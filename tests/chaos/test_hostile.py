"""A hundredth of what `make chaos` sends."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.hostile import run
from tests.chaos.hostile.cases import case


@pytest.mark.slow
def test_hostile_requests_harm_nobody(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    outcome = run.run(tmp_path, 2000, seed)
    assert outcome.good, f"seed {seed}: {outcome.wrong[:20]}"
    assert outcome.healthy > 10


def test_a_case_is_the_same_for_the_same_number() -> None:
    assert [case(["http", "segment"], number) for number in range(50)] == [
        case(["http", "segment"], number) for number in range(50)
    ]
