"""kill -9 in the middle of a deployment. `make chaos` does it around every record it writes, with Spark and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import layers
from tests.chaos.deploy import survive


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before 1", "after 7", "after 9", "after 12"])
def test_killed_there_it_goes_on(tmp_path: Path, point: str) -> None:
    assert survive(tmp_path, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after 1", "before 2", "after 2", "after 5"])
def test_a_lambda_view_killed_there_has_one_pair_of_layers(tmp_path: Path, point: str) -> None:
    assert layers.die(tmp_path, point)
    layers.recover(tmp_path)
