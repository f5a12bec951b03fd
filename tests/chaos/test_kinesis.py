"""Kinesis through a server that is killed. `make chaos` does it with a hundred times as many records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import kinesis
from tests.support import SEED


@pytest.mark.slow
def test_a_kill_under_load_loses_and_doubles_no_record(tmp_path: Path) -> None:
    outcome = kinesis.run(tmp_path / "project", records=2000, kills=1, seed=SEED)
    assert outcome.good, str(outcome)
