"""A persistent query → one DataFrame whose rows go to the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

from pyspark.sql import DataFrame

from headrace.log.base import TIME, Route, TopicSpec
from headrace.process.lower.aggregate import lower_aggregate_node, lower_parts, takes_part
from headrace.process.lower.filter import lower_filter
from headrace.process.lower.flat_map import lower_flat_map
from headrace.process.lower.join import has_clock, lower_join
from headrace.process.lower.late import late_below, lower_late
from headrace.process.lower.partition_by import lower_partition_by
from headrace.process.lower.parts import Parts
from headrace.process.lower.project import lower_project, lower_rename
from headrace.process.lower.rows import Rows, column
from headrace.process.lower.scan import Inputs, lower_scan
from headrace.process.lower.session import lower_sessions
from headrace.process.lower.sink import route_rows
from headrace.process.lower.window import NO_CLOCK, Clock
from headrace.sql.plan import (
    Aggregate,
    Filter,
    FlatMap,
    Join,
    PartitionBy,
    PersistentQuery,
    PlanNode,
    Project,
    Rename,
    Scan,
    is_table,
    keeps_headers,
    primary_key,
    scanned,
    walk,
)
from headrace.sql.used import used_columns


@dataclass(frozen=True, slots=True)
class Lowered:
    frame: DataFrame
    routes: tuple[Route, ...]
    output_mode: Literal["append", "update"]


def lower_query(
    query: PersistentQuery, inputs: Inputs, late_topic: str | None = None, sink: TopicSpec | None = None
) -> Lowered:
    """Without `late_topic`, late records are not counted and nobody is told: for batches that only want the table.
    `sink` is the topic that is written: it may take headers."""
    final = query.emit == "final"
    headers = sink is not None and sink.has_headers and keeps_headers(query.root)
    rows = Lowering(inputs, final, headers=headers).lower(query.root, used_columns(query.root))
    late = lower_late_branch(query.root, inputs) if late_topic is not None else None
    routed = route_rows(query, rows, late, late_topic, inputs.in_order)
    return Lowered(routed.frame, routed.routes, _output_mode(query))


def _output_mode(query: PersistentQuery) -> Literal["append", "update"]:
    """Only Spark's own aggregate knows a difference: appending, a window comes out once, when it is closed."""
    if query.emit == "final" and any(_in_time_windows(node) for node in walk(query.root)):
        return "append"
    return "update" if any(isinstance(node, Aggregate | Join) for node in walk(query.root)) else "append"


def has_sessions(query: PersistentQuery) -> bool:
    windows = [below.window for below in walk(query.root) if isinstance(below, Aggregate) and below.window is not None]
    return any(window.kind == "session" for window in windows)


def lower_node(node: PlanNode, inputs: Inputs, final: bool = False) -> Rows:
    return Lowering(inputs, final).lower(node, used_columns(node))


def lower_root_parts(root: Project, inputs: Inputs) -> Parts:
    """Of a range of what an aggregate of a stream groups: what can be merged with that of other ranges, and then is
    what `lower_node` gives."""
    node = root.input
    assert isinstance(node, Aggregate)
    below = Lowering(inputs).lower(node.input, used_columns(root) | _key_of(node.input))
    parts = lower_parts(node, below)
    return replace(parts, finish=lambda whole: lower_project(root, parts.finish(whole)))


@dataclass(frozen=True, slots=True)
class Lowering:
    """`min_lag`: read only what may lag behind stream time by more than that. `clock`: topics whose stream time is to
    be the rows'. `headers`: rows keep those of the record that caused them."""

    inputs: Inputs
    final: bool = False
    min_lag: int | None = None
    clock: tuple[str, ...] = ()
    headers: bool = False

    def lower(self, node: PlanNode, needed: frozenset[str]) -> Rows:
        """`needed` are the names of columns, as they are above the node, that expressions anywhere use."""
        match node:
            case Scan():
                return lower_scan(node, self.inputs, needed, self.min_lag, self.clock, self.headers)
            case Filter():
                return lower_filter(node, self.lower(node.input, needed))
            case Rename():
                return lower_rename(node, self.lower(node.input, _renamed_back(node, needed)))
            case FlatMap():
                return lower_flat_map(node, self.lower(node.input, needed))
            case PartitionBy():
                return lower_partition_by(node, self.lower(node.input, needed))
            case Project():
                return lower_project(node, self.lower(node.input, needed))
            case Join():
                topics = self._clock_of(node)
                lowering = replace(self, clock=topics) if topics else self
                left = lowering.lower(node.left, needed | _key_of(node.left))
                if node.form == "stream-table":
                    # A change of the table causes no row.
                    lowering = replace(lowering, headers=False)
                right = lowering.lower(node.right, needed | _key_of(node.right))
                return lower_join(node, left, right, bool(topics), self.inputs.known)
            case Aggregate():
                below = self.lower(node.input, needed | _key_of(node.input))
                clock = self._clock_below(node, below)
                if node.window is not None and node.window.kind == "session":
                    return lower_sessions(node, below, self.final, self._floor(node), clock)
                return lower_aggregate_node(node, below, self.final, self._floor(node), clock)

    def _clock_of(self, node: Join) -> tuple[str, ...]:
        """The topics of a join of streams, if their rows can be stamped with a common stream time when they are read.
        Not those of joins of joins: what joins give has no place in a topic."""
        if node.form != "stream-stream" or has_clock(node.left) or has_clock(node.right):
            return ()
        streams = [source.topic for source in scanned(node) if source.kind == "stream"]
        return tuple(streams) if self.inputs.common_time else ()

    def _clock_below(self, node: Aggregate, rows: Rows) -> Clock:
        known = self.inputs.known if self.final else None
        if node.window is None or not has_clock(node.input):
            return replace(NO_CLOCK, known=known)
        if rows.frame.isStreaming:
            return Clock(below=True, known=known)
        topics = sorted({source.topic for source in scanned(node) if source.kind == "stream"})
        times = [self.inputs.read(self.inputs.topic(name), [TIME], None).select(column(TIME)) for name in topics]
        return Clock(below=True, times=reduce(DataFrame.unionAll, times))

    def _floor(self, node: Aggregate) -> DataFrame | None:
        """A join of streams has given its rows one stream time for all partitions."""
        if node.window is None or has_clock(node.input):
            return None
        delay = 0 if node.window.kind == "session" else node.window.grace_ms
        return self.inputs.floor(self.inputs.topic(scanned(node)[0].topic), delay)


def _renamed_back(node: Rename, needed: frozenset[str]) -> frozenset[str]:
    pairs = zip(node.input.columns, node.names, strict=True)
    return frozenset(old.name for old, new in pairs if new in needed)


def _key_of(node: PlanNode) -> frozenset[str]:
    return frozenset(primary_key(node)) if is_table(node) else frozenset()


def lower_late_branch(root: PlanNode, inputs: Inputs) -> DataFrame | None:
    """What came too late and does not say so itself, as joins' and sessions' own rows do: late for a time window, or
    for a join below an aggregate. None if there can be nothing."""
    node = next((below for below in walk(root) if isinstance(below, Aggregate)), None)
    if node is None:
        return None
    if any(isinstance(below, Join) for below in walk(node)):
        return _late_over_join(node, inputs)
    return _late_over_stream(node, inputs) if _in_time_windows(node) else None


def _in_time_windows(node: PlanNode) -> bool:
    return isinstance(node, Aggregate) and node.window is not None and node.window.kind != "session"


def _late_over_stream(node: Aggregate, inputs: Inputs) -> DataFrame:
    """Reads the input a second time, but only frames in which a record lags behind stream time by more than grace: a
    late record's window has not ended at its own time, so it lags more than that. Usually there is no such frame."""
    assert node.window is not None
    [source] = scanned(node)
    needed = used_columns(node) | frozenset(one.name for one in source.columns)
    below = Lowering(inputs, min_lag=node.window.grace_ms).lower(node.input, needed)
    return lower_late(node, below, source, takes_part(node, below))


def _late_over_join(node: Aggregate, inputs: Inputs) -> DataFrame | None:
    """Joins a second time, with state of its own: Spark has no way around an aggregate for some of its rows. Of a
    stream that meets a table only frames with late records are read again."""
    in_windows, clocked = _in_time_windows(node), has_clock(node.input)
    if not in_windows and not clocked:
        return None
    assert node.window is not None or not in_windows
    min_lag = node.window.grace_ms if node.window is not None and not clocked else None
    needed = used_columns(node) | _key_of(node.input)
    below = Lowering(inputs, min_lag=min_lag).lower(node.input, needed)
    return lower_late(node, below, scanned(node)[0], takes_part(node, below)) if in_windows else late_below(below)


def windowed_aggregate(node: PlanNode) -> Aggregate | None:
    """The aggregate over time windows of a stream as it is in the log."""
    found = [below for below in walk(node) if isinstance(below, Aggregate) and _in_time_windows(below)]
    return found[0] if found and not any(isinstance(below, Join) for below in walk(node)) else None
