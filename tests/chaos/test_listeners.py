"""A small part of `python -m tests.chaos.listeners`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.listeners import run

pytestmark = pytest.mark.slow


def test_real_clients_over_kills_of_the_server_and_of_the_collectors(tmp_path: Path) -> None:
    kept = run(tmp_path, rounds=2, step=150, seed=1)
    assert set(kept.values()) == {300}
    assert {"once", "twice", "tailed"} < set(kept)
