"""Joins. Both sides become rows of one shape, side by side; an operator (`process.operators`) does the rest."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.log.base import (
    ARRIVAL,
    HEADERS,
    OFFSET,
    PARTITION,
    STREAM_TIME,
    TIME,
    TOMBSTONE,
    WINDOW_END,
    WINDOW_START,
)
from headrace.process.expressions import lower_expression
from headrace.process.lower.changes import before_and_after, plan_columns
from headrace.process.lower.known import Known
from headrace.process.lower.late import late_struct
from headrace.process.lower.rows import LATE_ROW, PLACE, Rows, column
from headrace.process.operators import (
    FROM_LEFT,
    FROM_RIGHT,
    KEY,
    LEFT,
    RIGHT,
    SIDE,
    as_changes,
    common_stream_time,
    foreign_key_join,
    from_group_key,
    group_key,
    stream_stream_join,
    stream_table_join,
    table_table_join,
    until_now,
    with_clock,
)
from headrace.sql.expressions import Expression
from headrace.sql.plan import Join, PlanNode, primary_key, scanned, walk

JOIN_KEY = "key"
ACTION, PRIMARY, FOREIGN = "$action", "$primary", "$foreign"
# Without GRACE, how long rows are waited for: ksqlDB's day.
DEFAULT_GRACE_MS = 24 * 3600 * 1000


def lower_join(node: Join, left: Rows, right: Rows, clocked: bool = False, known: Known | None = None) -> Rows:
    """`clocked`: the rows have the stream time of both sides already. `known`: of the rows that come out alone, which
    are in the log already."""
    match node.form:
        case "stream-table":
            return _stream_table(node, left, right)
        case "table-table":
            return _table_table(node, left, right)
        case "foreign-key":
            return _foreign_key(node, left, right)
        case "stream-stream":
            return _stream_stream(node, left, right, clocked, known)


def _stream_table(node: Join, left: Rows, right: Rows) -> Rows:
    outer = node.kind == "left"
    # A tombstone of a stream is a record without a value: it joins nothing.
    sides = _unioned(
        _side(node, left, FROM_LEFT, node.left_key, keep_null=outer, position=True),
        _side(node, right, FROM_RIGHT, node.right_key),
    )
    return _joined(node, stream_table_join(sides, outer), left, right, where=left.has(PARTITION))


def _table_table(node: Join, left: Rows, right: Rows) -> Rows:
    joined = table_table_join(_sides(node, left, right), node.kind in ("left", "full"), node.kind in ("right", "full"))
    return _joined(node, joined, left, right, changelog=True)


def _stream_stream(node: Join, left: Rows, right: Rows, clocked: bool, known: Known | None) -> Rows:
    within = node.within
    assert within is not None
    grace = DEFAULT_GRACE_MS if within.grace_ms is None else within.grace_ms
    keep_left, keep_right = node.kind in ("left", "full"), node.kind in ("right", "full")
    # Time goes on with rows that match nothing for want of a key, too.
    left_side = _side(node, left, FROM_LEFT, node.left_key, keep_null=True, position=True)
    right_side = _side(node, right, FROM_RIGHT, node.right_key, keep_null=True, position=True)
    stamped = _stamped(node, left_side, right_side, clocked, known)
    eager = within.grace_ms is None
    joined = stream_stream_join(stamped, within.before_ms, within.after_ms, grace, eager, keep_left, keep_right)
    if (keep_left or keep_right) and not eager:
        joined = until_now(joined, _unioned(left_side, right_side))
    late = F.when(column(TOMBSTONE), _late_row(node, left, right, grace))
    frame = joined.withColumn(LATE_ROW, late).withColumn(TOMBSTONE, F.lit(False))
    return _joined(node, frame, left, right, late=True)


def _stamped(node: Join, left: DataFrame, right: DataFrame, clocked: bool, known: Known | None) -> DataFrame:
    """Both sides with their common stream time, and a clock for timers: one for both, unless a join below has one
    already, because Spark refuses a second."""
    left_has, right_has = has_clock(node.left), has_clock(node.right)
    keyed = column(KEY).getField(JOIN_KEY).isNotNull()
    if not left_has and not right_has:
        both = _unioned(left, right)
        return with_clock(both if clocked else common_stream_time(both), only=keyed, known=known)
    stamped = common_stream_time(
        _unioned(
            left if left_has else with_clock(left, known=known), right if right_has else with_clock(right, known=known)
        )
    )
    return stamped.filter(keyed)


def has_clock(input_: PlanNode) -> bool:
    """Whether there is a join of streams in it: what it hands up has a watermark."""
    return any(isinstance(below, Join) and below.form == "stream-stream" for below in walk(input_))


def _foreign_key(node: Join, left: Rows, right: Rows) -> Rows:
    """The left table's changes, sent to the key they refer to: a row that now refers to another one leaves the former
    silently, because its new one says what becomes of it. Results of one left row may come from several keys, so they
    are put in order at the end."""
    primary = primary_key(node.left)
    names = plan_columns(left.frame)
    keyed = before_and_after(node.left, left, {FOREIGN: _group_key(node.left_key)})
    gone, came = column(LEFT).getField(FOREIGN), column(RIGHT).getField(FOREIGN)
    keep_left = node.kind == "left"
    # A reference to nothing: an inner join has no row for it, and a left join one without a right side.
    deleted, referring = column(RIGHT).isNull(), came.isNotNull() | F.lit(keep_left)
    moved = column(LEFT).isNotNull() & ~deleted & ~gone.eqNullSafe(came)
    steps = F.array(
        F.when(moved & referring, _step("move", gone, LEFT)),
        F.when(deleted | (moved & ~referring), _step("drop", gone, LEFT)),
        F.when(~deleted & referring, _step("put", came, RIGHT)),
    )
    exploded = keyed.select(
        column(ARRIVAL),
        column(STREAM_TIME),
        column(TIME),
        *([column(HEADERS)] if HEADERS in keyed.columns else []),
        F.posexplode(F.filter(steps, lambda step: step.isNotNull())).alias(PLACE, "$step"),
    )
    step = column("$step")
    row = step.getField("row")
    subscription = F.struct(
        step.getField("action").alias(ACTION),
        F.struct(*(row.getField(name).alias(f"p{place}") for place, name in enumerate(primary))).alias(PRIMARY),
        *(row.getField(name).alias(name) for name in names),
    )
    left_side = exploded.select(
        F.struct(step.getField("key").alias(JOIN_KEY)).alias(KEY),
        F.lit(FROM_LEFT).alias(SIDE),
        column(ARRIVAL),
        column(STREAM_TIME),
        column(TIME),
        F.lit(False).alias(TOMBSTONE),
        subscription.alias(LEFT),
        F.lit(None).alias(RIGHT),
        column(PLACE),
        *([column(HEADERS)] if HEADERS in exploded.columns else []),
    )
    right_side = _side(node, right, FROM_RIGHT, node.right_key)
    joined = foreign_key_join(_unioned(left_side, right_side), keep_left)
    ordered = joined.repartition(column(LEFT).getField(PRIMARY)).sortWithinPartitions(column(ARRIVAL))
    return _joined(node, ordered, left, right, changelog=True)


def _group_key(key: Expression) -> Column:
    assert key.type is not None
    return group_key(lower_expression(key), key.type)


def _step(action: str, key: Column, part: str) -> Column:
    return F.struct(F.lit(action).alias("action"), key.alias("key"), column(part).alias("row"))


def _sides(node: Join, left: Rows, right: Rows) -> DataFrame:
    return _unioned(_side(node, left, FROM_LEFT, node.left_key), _side(node, right, FROM_RIGHT, node.right_key))


def _side(
    node: Join, rows: Rows, side: int, key: Expression, keep_null: bool = False, position: bool = False
) -> DataFrame:
    """One input, packed: its columns (and with `position` where it stood in its topic) are the left or the right
    part."""
    window = [column(WINDOW_START).alias("start"), column(WINDOW_END).alias("end")] if node.windowed else []
    joined_by = lower_expression(key)
    frame = rows.frame if keep_null else rows.frame.filter(joined_by.isNotNull())
    where = rows.carried(PARTITION, OFFSET) if position else []
    whole = F.struct(*(column(name) for name in plan_columns(frame)), *where)
    nothing = F.lit(None)
    parts = (whole, nothing) if side == FROM_LEFT else (nothing, whole)
    by = F.struct(_group_key(key).alias(JOIN_KEY), *window)
    return as_changes(frame, by, side, *parts, more=rows.carried(HEADERS))


def _unioned(left: DataFrame, right: DataFrame) -> DataFrame:
    """Each side has nulls for the other's part, and no headers if only the other's rows have them."""
    left_type, right_type = left.schema[LEFT].dataType, right.schema[RIGHT].dataType
    if HEADERS in left.columns and HEADERS not in right.columns:
        right = right.withColumn(HEADERS, F.lit(None).cast(left.schema[HEADERS].dataType))
    elif HEADERS in right.columns and HEADERS not in left.columns:
        left = left.withColumn(HEADERS, F.lit(None).cast(right.schema[HEADERS].dataType))
    return left.withColumn(RIGHT, column(RIGHT).cast(right_type)).unionAll(
        right.withColumn(LEFT, column(LEFT).cast(left_type))
    )


def _joined(
    node: Join,
    frame: DataFrame,
    left: Rows,
    right: Rows,
    changelog: bool = False,
    late: bool = False,
    where: bool = False,
) -> Rows:
    """Both sides' columns by name again, and the key's; with `where`, the left record's place in its topic."""
    found = [column(LEFT).getField(name).alias(name) for name in plan_columns(left.frame)]
    found += [column(RIGHT).getField(name).alias(name) for name in plan_columns(right.frame)]
    if node.key is not None:
        assert node.left_key.type is not None
        found.append(from_group_key(column(KEY).getField(JOIN_KEY), node.left_key.type).alias(node.key))
    if node.windowed:
        found += [column(KEY).getField("start").alias(WINDOW_START), column(KEY).getField("end").alias(WINDOW_END)]
    system = [column(name) for name in (ARRIVAL, STREAM_TIME, TIME, TOMBSTONE)]
    if late:
        system.append(column(LATE_ROW))
    if HEADERS in frame.columns:
        system.append(column(HEADERS))
    if where:
        system += [column(LEFT).getField(name).alias(name) for name in (PARTITION, OFFSET)]
    return Rows(frame.select(*found, *system), changelog=changelog, tombstones=changelog, late=late)


def _late_row(node: Join, left: Rows, right: Rows, grace_ms: int) -> Column:
    """What the ledger gets: the late record, and the time from which and until which something could match it."""
    within = node.within
    assert within is not None

    def of_side(part: str, rows: Rows, topic: str, back: int, ahead: int) -> Column:
        record = column(part)
        return late_struct(
            topic=F.lit(topic),
            partition=record.getField(PARTITION) if rows.has(PARTITION) else F.lit(None),
            offset=record.getField(OFFSET) if rows.has(OFFSET) else F.lit(None),
            start=column(TIME) - F.lit(back),
            end=column(TIME) + F.lit(ahead),
            grace_ms=grace_ms,
            row=F.to_json(F.struct(*(record.getField(name).alias(name.lower()) for name in plan_columns(rows.frame)))),
        )

    topics = [scanned(side)[0].topic for side in (node.left, node.right)]
    from_left = of_side(LEFT, left, topics[0], within.before_ms, within.after_ms)
    from_right = of_side(RIGHT, right, topics[1], within.after_ms, within.before_ms)
    return F.when(column(SIDE) == FROM_LEFT, from_left).otherwise(from_right)
