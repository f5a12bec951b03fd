"""A persistent query → one DataFrame whose rows go to the log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame

from headrace.errors import UsageError
from headrace.log.base import Route
from headrace.process.lower.aggregate import lower_aggregate_node
from headrace.process.lower.filter import lower_filter
from headrace.process.lower.late import lower_late
from headrace.process.lower.project import lower_project
from headrace.process.lower.rows import Rows
from headrace.process.lower.scan import Inputs, lower_scan
from headrace.process.lower.sink import route_rows
from headrace.sql.expressions import ColumnRef, Expression
from headrace.sql.plan import Aggregate, Filter, PersistentQuery, PlanNode, Project, Scan, walk
from headrace.sql.walk import walk as walk_expression


@dataclass(frozen=True, slots=True)
class Lowered:
    frame: DataFrame
    routes: tuple[Route, ...]
    output_mode: Literal["append", "update"]


def lower_query(query: PersistentQuery, inputs: Inputs, late_topic: str | None = None) -> Lowered:
    """Without `late_topic`, late records are not counted and nobody is told: for batches that only want the table."""
    if query.emit == "final":
        raise UsageError("EMIT FINAL is not supported yet", hint="use EMIT CHANGES")
    rows = lower_node(query.root, inputs)
    windowed = windowed_aggregate(query.root)
    late = lower_late_branch(windowed, inputs) if windowed is not None and late_topic is not None else None
    routed = route_rows(query, rows, late, late_topic)
    aggregated = any(isinstance(node, Aggregate) for node in walk(query.root))
    return Lowered(routed.frame, routed.routes, "update" if aggregated else "append")


def lower_node(
    node: PlanNode, inputs: Inputs, needed: Collection[str] | None = None, min_lag: int | None = None
) -> Rows:
    """`needed` are the columns that the scan below must give; by default those that this node and the ones below
    use."""
    if needed is None:
        needed = used_columns(node)
    match node:
        case Scan():
            return lower_scan(node, inputs, needed, min_lag)
        case Filter():
            return lower_filter(node, lower_node(node.input, inputs, needed, min_lag))
        case Project():
            return lower_project(node, lower_node(node.input, inputs, needed, min_lag))
        case Aggregate():
            return lower_aggregate_node(node, lower_node(node.input, inputs, needed, min_lag))
        case _:
            raise UsageError(f"{type(node).__name__} is not run on Spark yet")


def lower_late_branch(node: Aggregate, inputs: Inputs) -> DataFrame:
    """Reads the input a second time, but only frames in which a record lags behind stream time by more than grace: a
    late record's window has not ended at its own time, so it lags more than that. Usually there is no such frame."""
    assert node.window is not None
    source = next(below.source for below in walk(node) if isinstance(below, Scan))
    needed = {column.name for column in source.columns}
    return lower_late(node, lower_node(node.input, inputs, needed, min_lag=node.window.grace_ms), source)


def used_columns(node: PlanNode) -> frozenset[str]:
    """Every name that an expression mentions."""
    roots = (expression for below in walk(node) for expression in _expressions(below))
    parts = (part for root in roots for part in walk_expression(root))
    return frozenset(part.name for part in parts if isinstance(part, ColumnRef))


def _expressions(node: PlanNode) -> list[Expression]:
    match node:
        case Filter():
            return [node.predicate]
        case Project():
            return [named.expression for named in node.key + node.value]
        case Aggregate():
            return [named.expression for named in node.keys + node.aggregates]
        case _:
            return []


def windowed_aggregate(node: PlanNode) -> Aggregate | None:
    found = [below for below in walk(node) if isinstance(below, Aggregate) and below.window is not None]
    return found[0] if found else None
