"""Real clients over a server that is killed. `make chaos` does it with thousands of events and more kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import clients
from tests.support import SEED


@pytest.mark.slow
def test_real_clients_lose_and_double_nothing_over_a_kill(tmp_path: Path) -> None:
    outcome = clients.run(tmp_path, events=200, kills=1, seed=SEED)
    assert outcome.good, str(outcome)
