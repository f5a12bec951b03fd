"""The Python that Spark's workers are started with."""

from __future__ import annotations

import os
import sys

import pytest

from headrace.process.jvm import connector_conf


def test_workers_run_this_interpreter_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would take the first `python3` on the path, which may have no Headrace."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    connector_conf()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/other")
    connector_conf()
    assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/other"
