"""Real clients over a server that is killed. `make chaos` does it with thousands of events and more kills."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import clients


@pytest.mark.slow
def test_real_clients_lose_and_double_nothing_over_a_kill(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    outcome = clients.run(tmp_path, events=200, kills=1, seed=seed)
    assert outcome.good, f"seed {seed}: {outcome}"
