"""How much a query may read at a time."""

from __future__ import annotations

from headrace.config import SparkSettings
from headrace.process.base import QuerySpec

PACED_MS = 1000
"""Between two batches of a query that may only read so many rows a second."""


def max_rows(settings: SparkSettings, spec: QuerySpec) -> int:
    """Of a micro-batch. A query with a pace has one batch a second, of a second's rows."""
    if not spec.rows_per_second:
        return settings.max_rows_per_batch
    return min(settings.max_rows_per_batch, max(1, spec.rows_per_second * PACED_MS // 1000))


def pause_ms(settings: SparkSettings, spec: QuerySpec) -> int:
    """The least time between the starts of two micro-batches."""
    return max(settings.trigger_ms, spec.plan.every_ms or 0, PACED_MS if spec.rows_per_second else 0)
