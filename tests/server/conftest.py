from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import Running, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for the tests of a file; they use topics or keys of their own where it matters."""
    folder: Path = tmp_path_factory.mktemp("project")
    with running_server(folder) as running:
        yield running
