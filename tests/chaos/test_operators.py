"""Contracts 4, 6 and 7 for operators that keep state. `make chaos` does the same thirty times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import operators
from tests.support import SEED


@pytest.mark.slow
def test_kills_of_the_engine_change_no_result(tmp_path: Path) -> None:
    outcome = operators.run(tmp_path, rounds=2, seed=SEED, say=print)
    assert outcome.good, str(outcome)
