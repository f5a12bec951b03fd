"""Some of what `make chaos` sends to every operation of the OpenAPI document."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import described


@pytest.mark.slow
def test_no_operation_fails_for_what_its_description_allows_or_forbids(tmp_path: Path) -> None:
    number = random.randrange(1 << 30)
    outcome = described.run(tmp_path, 3, number, seconds=20)
    assert not outcome.failures, f"seed {number}: {outcome.failures}"
    assert outcome.operations
