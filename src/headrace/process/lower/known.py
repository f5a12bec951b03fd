"""Results that are in the log already, because they and what they were made of were copied from another log.

The records are read once more for the state alone. How far the query before had come is part of that state: a window
that it had closed is not to come out again, and one that it had not must not be taken for closed, though the two logs
go by different clocks (Kafka waits for the slowest partition, the local log goes by the fastest).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.log.base import ARRIVAL, STREAM_TIME, TIME
from headrace.process.lower.rows import column


class IsKnown(Protocol):
    def __call__(self, arrival: Column) -> Column:
        """Whether a row with this arrival number is read for the state alone."""


@dataclass(frozen=True, slots=True)
class Known:
    closed: int
    """The watermark that the last of these results were made with: what it closes has had its last word."""
    before: IsKnown

    def clock(self, delay_ms: int = 0) -> Column:
        """What a row says about time where there is no floor: nothing beyond what the query before had heard, until it
        is a new one; and that one tells how far time had come without it."""
        now = F.greatest(column(TIME), column(STREAM_TIME))
        return F.when(self.before(column(ARRIVAL)), F.least(now, F.lit(self.closed + delay_ms))).otherwise(now)
