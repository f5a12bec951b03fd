"""Batch layers in the engine: one at a time, and nothing is left of those that nobody wants."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.process.ask.jobs import Jobs
from tests.process.test_stretch_accounts import spec_of
from tests.store.project import open_log
from tests.support import wait_for

pytestmark = pytest.mark.spark


def test_what_was_paused_and_then_thrown_away_leaves_nothing(tmp_path: Path, spark: SparkSession) -> None:
    log, folder = open_log(tmp_path / "log"), tmp_path / "kept"
    jobs = Jobs(spark, tmp_path / "log", log, SystemClock())
    spec = spec_of(folder)
    with jobs._layer_turn:
        # It is at work, as far as it can be.
        jobs.start(spec)
        jobs.pause(spec)
        jobs.forget(spec.id)
        assert jobs.known() == []
        (folder / "0-written-meanwhile").mkdir(parents=True)
    wait_for(lambda: not folder.exists(), 30, "what was kept to be removed")
    # One that is at rest has nobody to wait for.
    jobs.pause(spec)
    folder.mkdir()
    jobs.forget(spec.id)
    assert not folder.exists()
    log.close()
