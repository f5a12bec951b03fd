"""A small part of `make chaos`: agents that are killed lose no line and double none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.agents import through_a_chain, through_rotations


@pytest.mark.slow
def test_every_line_once_through_rotations_and_kills(tmp_path: Path) -> None:
    found = through_rotations(tmp_path, rotations=5, kills=2)
    assert found.kills == 2
    assert found.good, found


@pytest.mark.slow
def test_a_chain_whose_middle_is_away(tmp_path: Path) -> None:
    found = through_a_chain(tmp_path, away_s=1.0)
    assert found.kills == 1
    assert found.good, found
