"""A few rounds of restores under load; `make chaos` does many."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.restore import run


def test_nothing_is_lost_or_wrong_after_restores_at_random_moments(tmp_path: Path) -> None:
    outcome = run(tmp_path, rounds=3, seed=1)
    assert outcome.good, outcome
