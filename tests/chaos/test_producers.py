"""Producers, transactions and groups through an owner that is killed. `make chaos` does it two hundred times."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import producers


@pytest.mark.slow
def test_kills_of_the_owner_lose_and_double_nothing(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    outcome = producers.run(tmp_path, kills=5, seed=seed)
    assert outcome.good, f"seed {seed}: {outcome}"
