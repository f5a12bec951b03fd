"""The logs the contract is tested on. Another implementation is one more class and one more line in `KINDS`.

A test that needs what only some logs can says so, `@pytest.mark.needs("arrival")`: it is skipped where the
implementation's `capabilities` do not have it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.log.base import Log
from headrace.log.local import LocalClient, LocalLog
from tests.log.support import open_owner


class Place(ABC):
    """Where one test's log is, empty at first. `log` is what the test uses."""

    log: Log

    @abstractmethod
    def __init__(self, folder: Path) -> None: ...

    @abstractmethod
    def reopen(self) -> None:
        """Close the log and open it again, as a restart would; what was acknowledged is still there."""

    @abstractmethod
    def close(self) -> None: ...


class LocalOwnerPlace(Place):
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "log"
        self.owner: LocalLog
        self._open()

    def _open(self) -> None:
        self.log = self.owner = open_owner(self.folder, serve=False)

    def reopen(self) -> None:
        self.owner.close()
        self._open()

    def close(self) -> None:
        self.owner.close()


class LocalClientPlace(LocalOwnerPlace):
    """Through the socket; the client outlives its owner."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log = LocalClient(self.folder)

    def _open(self) -> None:
        self.owner = open_owner(self.folder, serve=True)

    def close(self) -> None:
        self.log.close()
        super().close()


KINDS: dict[str, type[Place]] = {"local-owner": LocalOwnerPlace, "local-client": LocalClientPlace}


@pytest.fixture(params=list(KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = KINDS[request.param](tmp_path)
    try:
        for marker in request.node.iter_markers("needs"):
            missing = set(marker.args) - made.log.capabilities
            if missing:
                pytest.skip(f"{request.param} cannot: {', '.join(sorted(missing))} (docs/reference/logs.md says why)")
        yield made
    finally:
        made.close()


@pytest.fixture
def log(place: Place) -> Log:
    return place.log
