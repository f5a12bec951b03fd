"""Contracts 4, 6 and 7 for operators that keep state. `make chaos` does the same thirty times."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import operators


@pytest.mark.slow
def test_kills_of_the_engine_change_no_result(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    outcome = operators.run(tmp_path, rounds=2, seed=seed, say=print)
    assert outcome.good, f"seed {seed}: {outcome}"
