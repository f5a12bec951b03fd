"""A view is switched and rolled back under reads and feeds. `make chaos` does it with a thousand reads a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.switch import run


@pytest.mark.slow
def test_no_read_fails_and_no_feed_misses_anything(tmp_path: Path) -> None:
    outcome = run(tmp_path, reads=100, feeds=20, rounds=1)
    assert outcome.failures == []
    assert outcome.reads > 0
    assert len(outcome.switches_ms) == 2
