"""Contracts 2, 6, 7 and 11, seen from outside. `make chaos` does the same hundreds of times."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import crash


@pytest.mark.slow
def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    outcome = crash.run(tmp_path, rounds=4, seed=seed, say=print)
    assert outcome.good, f"seed {seed}: {outcome}"
    assert set(outcome.kills) == set(crash.VICTIMS)
