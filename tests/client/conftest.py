from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace import Client
from tests.server.running import Running, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("project")) as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{server.port}") as made:
        yield made
