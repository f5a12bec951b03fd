"""Contracts 2, 6, 7 and 11, seen from outside. `make chaos` does the same hundreds of times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import crash
from tests.support import SEED


@pytest.mark.slow
def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    outcome = crash.run(tmp_path, rounds=4, seed=SEED, say=print)
    assert outcome.good, str(outcome)
    assert set(outcome.kills) == set(crash.VICTIMS)
