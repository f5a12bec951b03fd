from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.config import LogSettings
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.deployments import Deployments, Options
from headrace.coordinate.statements import StatementExecutor, StatementResult
from headrace.log.local.open import LocalLog
from tests.coordinate.deploying import CHAIN

NOW_MS = 1_790_000_000_000

Run = Callable[..., list[StatementResult]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[LocalLog]:
    log = LocalLog(tmp_path / "log", LogSettings(linger_ms=0, min_free_bytes=1), clock)
    yield log
    log.close()


@pytest.fixture
def executor(log: LocalLog, clock: ManualClock) -> StatementExecutor:
    return StatementExecutor(log, Catalog(log), clock)


@pytest.fixture
def run(executor: StatementExecutor) -> Run:
    return executor.execute


@pytest.fixture
def deployments(executor: StatementExecutor, log: LocalLog, clock: ManualClock) -> Deployments:
    """Of a project that has a chain of three."""
    made = Deployments(executor, log, executor.catalog, clock)
    executor.rebuild = made.replace
    made.start({"pipelines/all.sql": CHAIN}, Options())
    return made
