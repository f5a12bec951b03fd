"""Some of what `make chaos` sends to every operation of the OpenAPI document."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import described
from tests.support import SEED


@pytest.mark.slow
def test_no_operation_fails_for_what_its_description_allows_or_forbids(tmp_path: Path) -> None:
    outcome = described.run(tmp_path, 3, SEED, seconds=20)
    assert not outcome.failures, outcome.failures
    assert outcome.operations
