"""How much a query may read at a time."""

from __future__ import annotations

from headrace.config import SparkSettings
from headrace.process.aggregates import kept_in_python
from headrace.process.base import QuerySpec
from headrace.sql.plan import Aggregate, Join, PartitionBy, PersistentQuery, walk

ROW_BY_ROW = 2_000_000
"""Most rows of a batch that are sorted, kept or written one by one."""
FIRST_ROWS = 1_000_000
"""Of a query of which nothing is known. By what its longest task took, the next batches have more or less."""
FEW_KEYS = 500_000
"""A task that keeps and writes so many is over before anybody who waits for a core notices."""
PACED_MS = 1000
"""Between two batches of a query that may only read so many rows a second."""


def max_rows(settings: SparkSettings, spec: QuerySpec) -> int:
    """Of a micro-batch. A query with a pace has one batch a second, of a second's rows."""
    most = settings.max_rows_per_batch
    if spec.plan.limits.batch_rows is None and not adds_up(spec.plan):
        most = min(most, ROW_BY_ROW)
    return min(most, max(1, spec.rows_per_second * PACED_MS // 1000)) if spec.rows_per_second else most


def first_rows(settings: SparkSettings, spec: QuerySpec) -> int:
    """Of the first micro-batch, and then as many as fit: others wait for its longest task, which is one that keeps keys
    and writes them. If another version of the table is known to have few, it need not be tried."""
    few = spec.keys is not None and spec.keys <= FEW_KEYS and adds_up(spec.plan)
    return max_rows(settings, spec) if few else min(FIRST_ROWS, max_rows(settings, spec))


def adds_up(query: PersistentQuery) -> bool:
    """Whether rows are added up as they are read: then a batch of many costs little more than one of few, and the state
    of each key is read and written once for all of them."""
    nodes = walk(query.root)
    groups = [node for node in nodes if isinstance(node, Aggregate)]
    return bool(groups) and not any(isinstance(node, Join | PartitionBy) or _keeps_rows(node) for node in nodes)


def _keeps_rows(node: object) -> bool:
    if not isinstance(node, Aggregate):
        return False
    sessions = node.window is not None and node.window.kind == "session"
    return sessions or node.over == "table" or kept_in_python(node.aggregates, over_table=False)


def pause_ms(settings: SparkSettings, spec: QuerySpec) -> int:
    """The least time between the starts of two micro-batches."""
    return max(settings.trigger_ms, spec.plan.every_ms or 0, PACED_MS if spec.rows_per_second else 0)
