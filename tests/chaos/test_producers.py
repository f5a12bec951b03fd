"""Producers, transactions and groups through an owner that is killed. `make chaos` does it two hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import producers
from tests.support import SEED


@pytest.mark.slow
def test_kills_of_the_owner_lose_and_double_nothing(tmp_path: Path) -> None:
    outcome = producers.run(tmp_path, kills=5, seed=SEED)
    assert outcome.good, str(outcome)
