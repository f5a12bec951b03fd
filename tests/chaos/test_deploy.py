"""kill -9 in the middle of a deployment. `make chaos` does it before and after every record it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.deploy import die, recover


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before 1", "after 1", "after 3", "after 7"])
def test_killed_there_it_goes_on(tmp_path: Path, point: str) -> None:
    assert die(tmp_path, point)
    recover(tmp_path)
