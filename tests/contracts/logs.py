"""The logs the contract is tested on. Another implementation is one more class and one more line in `_make`.

A test that needs what only some logs can says so, `@pytest.mark.needs("arrival")`: it is skipped where the
implementation's `capabilities` do not have it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.clock import SystemClock
from headrace.log.base import Log
from headrace.log.kafka import KafkaLog
from headrace.log.local import LocalClient, LocalLog
from tests.kafka import kafka_settings
from tests.log.support import open_owner


class Place(ABC):
    """Where one test's log is, empty at first. `log` is what the test uses."""

    log: Log
    owner_is_log = False
    """Whether `reopen` makes a new `log`, so that what was opened on the old one is gone with it."""
    shortest_session_s = 0.5
    model_examples = 25
    """How often the model test runs."""

    @abstractmethod
    def reopen(self) -> None:
        """Close the log and open it again, as a restart would; what was acknowledged is still there."""

    @abstractmethod
    def another(self, folder: Path) -> Place:
        """One more of the same kind, empty; `folder` is free to use."""

    @abstractmethod
    def close(self) -> None: ...


class LocalOwnerPlace(Place):
    owner_is_log = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "log"
        self.owner: LocalLog
        self._open()

    def _open(self) -> None:
        self.log = self.owner = open_owner(self.folder, serve=False)

    def reopen(self) -> None:
        self.owner.close()
        self._open()

    def another(self, folder: Path) -> Place:
        return type(self)(folder)

    def close(self) -> None:
        self.owner.close()


class LocalClientPlace(LocalOwnerPlace):
    """Through the socket; the client outlives its owner."""

    owner_is_log = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log = LocalClient(self.folder)

    def _open(self) -> None:
        self.owner = open_owner(self.folder, serve=True)

    def close(self) -> None:
        self.log.close()
        super().close()


class KafkaPlace(Place):
    """On the run's broker, under a prefix of its own."""

    owner_is_log = True
    shortest_session_s = 2.0
    model_examples = 3

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap, self._settings, self._folder = bootstrap, kafka_settings(bootstrap), folder
        self._open()

    def _open(self) -> None:
        self.log = KafkaLog(self._settings, SystemClock(), ids=self._folder / "ids")

    def reopen(self) -> None:
        self.log.close()
        self._open()

    def another(self, folder: Path) -> Place:
        return KafkaPlace(self._bootstrap, folder)

    def close(self) -> None:
        self.log.close()


LOCAL: dict[str, type[LocalOwnerPlace]] = {"local-owner": LocalOwnerPlace, "local-client": LocalClientPlace}


def _make(request: pytest.FixtureRequest, folder: Path) -> Place:
    if request.param == "kafka":
        return KafkaPlace(request.getfixturevalue("kafka"), folder)
    return LOCAL[request.param](folder)


@pytest.fixture(params=[*LOCAL, pytest.param("kafka", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = _make(request, tmp_path)
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
