"""GROUP BY whose aggregates are kept in Python (`process.python_groups`)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.log.base import ARRIVAL, TIME, TOMBSTONE, WINDOW_END
from headrace.process.comparable import comparable
from headrace.process.expressions import lower_expression
from headrace.process.letters import letter_box
from headrace.process.lower.parts import Parts
from headrace.process.lower.rows import PLACE, Rows, column
from headrace.process.lower.window import NO_CLOCK, Clock, window_columns
from headrace.process.python_groups import (
    END,
    GROUP,
    KEYS,
    RESULT,
    ROW,
    finish_groups,
    keep_groups,
    merge_groups,
    pack,
    unpack,
)
from headrace.process.python_groups import TIME as GROUP_TIME
from headrace.sql.expressions import Call
from headrace.sql.plan import Aggregate
from headrace.types import BIGINT, INTEGER, DataType

_KEYS, _VALUES = "$keys", "$values"


def lower_python_aggregate(
    node: Aggregate, frame: DataFrame, sign: Column | None, final: bool, clock: Clock = NO_CLOCK
) -> Rows:
    """`frame` are the rows that are grouped, each once for every window it is in."""
    grace = node.window.grace_ms if node.window is not None and clock.below else 0
    packed = _packed(node, frame, sign, grace)
    kept = keep_groups(packed, _calls(node), node.window is not None, final, letter_box())
    return _opened(node, kept, grace)


def lower_python_parts(node: Aggregate, frame: DataFrame) -> Parts:
    """The same of a stretch of a stream's rows: its groups with their states."""
    calls, box = _calls(node), letter_box()
    kept = keep_groups(_packed(node, frame, None), calls, node.window is not None, False, box, states=True)
    return Parts(kept, merge_groups(calls), lambda whole: _opened(node, finish_groups(whole, calls, box)))


def _calls(node: Aggregate) -> list[Call]:
    return [named.expression for named in node.aggregates if isinstance(named.expression, Call)]


def _packed(node: Aggregate, frame: DataFrame, sign: Column | None, grace_ms: int = 0) -> DataFrame:
    """A clock from below is stream time itself: a window is kept until that has passed its grace too."""
    end = column(WINDOW_END) + F.lit(grace_ms) if node.window is not None else F.lit(0)
    keys = [(lower_expression(key.expression), key.column.type) for key in node.keys]
    return frame.select(
        _group(keys, end.cast("long")).alias(GROUP),
        end.cast("long").alias(END),
        pack([value for value, _ in keys], [type_ for _, type_ in keys]).alias(KEYS),
        _row(frame, _calls(node), sign).alias(ROW),
    )


def _opened(node: Aggregate, kept: DataFrame, grace_ms: int = 0) -> Rows:
    opened = kept.select(
        unpack(column(KEYS), [key.column.type for key in node.keys]).alias(_KEYS),
        unpack(column(RESULT), [named.column.type for named in node.aggregates]).alias(_VALUES),
        column(END),
        column(GROUP_TIME).alias(TIME),
    )
    ended = column(END) - F.lit(grace_ms)
    bounds = window_columns(ended - F.lit(node.window.size_ms), ended) if node.window is not None else []
    return Rows(
        opened.select(
            *(column(_KEYS).getField(f"v{place}").alias(key.name) for place, key in enumerate(node.keys)),
            *bounds,
            *(column(_VALUES).getField(f"v{place}").alias(one.name) for place, one in enumerate(node.aggregates)),
            column(TIME),
            F.lit(False).alias(TOMBSTONE),
        ),
        changelog=True,
    )


def _group(keys: list[tuple[Column, DataType]], end: Column) -> Column:
    """The same text for the same group."""
    parts = [comparable(value, type_).alias(f"k{place}") for place, (value, type_) in enumerate(keys)]
    return F.to_json(F.struct(*parts, end.alias("end")))


def _row(frame: DataFrame, calls: list[Call], sign: Column | None) -> Column:
    place = column(PLACE).cast("int") if PLACE in frame.columns else F.lit(0)
    sign = F.lit(1) if sign is None else sign.cast("int")
    every: list[tuple[Column, DataType]] = [
        (column(ARRIVAL), BIGINT),
        (place, INTEGER),
        (column(TIME), BIGINT),
        (sign, INTEGER),
    ]
    arguments = [one for call in calls for one in call.arguments]
    every += [(lower_expression(one), one.type) for one in arguments if one.type is not None]
    return pack([value for value, _ in every], [type_ for _, type_ in every])
