"""What a process loads before it does anything: large libraries only where they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import headrace

pytestmark = pytest.mark.slow

SOURCES = Path(headrace.__file__).parents[1]
LARGE = ("pandas", "pyspark", "google.protobuf", "proto_schema_parser", "fastavro")


def run(script: str) -> list[str]:
    """Its output's words, from a process of its own: this one has loaded everything long ago."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.split()


def loaded_by(*modules: str, among: tuple[str, ...] = LARGE) -> list[str]:
    imports = "; ".join(f"import {module}" for module in modules)
    return run(f"import sys; {imports}; print(*(name for name in {among} if name in sys.modules))")


def test_the_command_loads_no_large_library() -> None:
    assert loaded_by("headrace.cli.main", among=(*LARGE, "pyarrow", "numpy", "starlette")) == []


def test_the_server_loads_none_that_it_may_not_need() -> None:
    assert loaded_by("headrace.server.main", "headrace.server.collector", "headrace.cli.offline") == []


def test_arrays_are_made_without_pandas_until_somebody_wants_a_frame() -> None:
    made, frame, known = run("""
import sys, pyarrow as pa
from headrace.lean import without_pandas
without_pandas()
without_pandas()
pa.array(["a"]), pa.scalar(1)
print("pandas" in sys.modules)
frame = pa.table({"x": [1, 2]}).to_pandas()
print(frame["x"].sum())
print(pa.array(frame["x"] / 0 * 0).null_count)
""")
    assert (made, frame, known) == ("False", "3", "2")
