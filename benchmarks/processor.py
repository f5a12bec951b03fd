"""Processor time of Spark's JVM and of the Python workers it started: a busy machine stretches the clock, not this."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def processor_seconds(spark: SparkSession) -> float:
    """Since its start. Zero where there is no /proc."""
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    return sum(_seconds(process) for process in _family(jvm))


def _family(process: int) -> Iterator[int]:
    yield process
    for thread in (PROC / str(process) / "task").glob("*"):
        try:
            children = (thread / "children").read_text().split()
        except OSError:  # it is gone, or this system does not tell
            continue
        for child in children:
            yield from _family(int(child))


def _seconds(process: int) -> float:
    try:
        fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS
