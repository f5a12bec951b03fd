"""What is kept of one stretch of the log, so that it can be merged with what is kept of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from headrace.process.lower.rows import Rows


@dataclass(frozen=True, slots=True)
class Parts:
    frame: DataFrame
    merge: Callable[[DataFrame], DataFrame]
    """Of those of several stretches, in one frame and in any order, what one stretch of all would have."""
    finish: Callable[[DataFrame], Rows]
    """The rows that are made of it."""
