"""Every fault of the local log, a little of each. `make chaos` does them at full length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.log.main import suite
from tests.support import SEED

SCALE = {"kills": 0.003, "calls": 0.003, "power": 0.03, "truncate": 0.02, "bits": 0.01, "pages": 0.02, "full": 0.1}


@pytest.mark.slow
@pytest.mark.parametrize("name", suite(1))
def test_nothing_is_lost_doubled_or_served_damaged(name: str, tmp_path: Path) -> None:
    print(f"python -m tests.chaos.log {name} --scale {SCALE.get(name, 0.02)} --seed {SEED}")
    said: list[str] = []
    suite(SCALE.get(name, 0.02))[name](tmp_path, SEED, said.append)
    assert said, "a fault that says nothing did nothing"
