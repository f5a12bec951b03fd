"""Approximate aggregates: sketches of a bounded size that merge.

Each comes in three parts, so that what was computed apart can be put together later: an aggregate that gives the sketch
as BYTES, one that merges such BYTES, and a function that gives the estimate. The bytes are those of Apache
DataSketches, which Spark has built in: it does not matter who made them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headrace.sql.functions.function import Function, Steps, aggregate, scalar
from headrace.sql.text import value_text
from headrace.types import BIGINT, VARCHAR, Array, DataType, Struct

# 2^12 registers: a standard error of 1.6 %.
DISTINCT_LOG_SIZE = 12
# A rank is off by at most 1.33 % with 99 % confidence.
QUANTILE_SIZE = 200
# 2^14 counters: a count is too high by at most 0.02 % of all rows.
TOP_LOG_SIZE = 14
MOST_ITEMS = 10_000
# Of COUNT_DISTINCT: 2^12 hashes, exact up to 4,096 different values.
HASHES_LOG_SIZE = 12

Kind = Literal["distinct", "quantiles", "top"]
COUNTED = Array(Struct((("ITEM", VARCHAR), ("COUNT", BIGINT))))


@dataclass(slots=True)
class Sketch:
    """A sketch that can be sent and kept: as its bytes."""

    kind: Kind
    sketch: Any

    def __reduce__(self) -> Any:
        return _read, (self.kind, to_bytes(self))


def _new(kind: Kind) -> Sketch:
    # Loaded when somebody asks: most who plan SQL never do.
    import datasketches as made

    match kind:
        case "distinct":
            return Sketch(kind, made.hll_union(DISTINCT_LOG_SIZE))
        case "quantiles":
            return Sketch(kind, made.kll_doubles_sketch(QUANTILE_SIZE))
        case "top":
            return Sketch(kind, made.frequent_strings_sketch(TOP_LOG_SIZE))


def to_bytes(held: Sketch) -> bytes:
    import datasketches as made

    if held.kind == "distinct":
        return bytes(held.sketch.get_result(made.tgt_hll_type.HLL_8).serialize_compact())
    return bytes(held.sketch.serialize())


def _read(kind: Kind, data: bytes) -> Sketch:
    """Raises for what is no sketch of this kind."""
    import datasketches as made

    held = _new(kind)
    match kind:
        case "distinct":
            held.sketch.update(made.hll_sketch.deserialize(data))
        case "quantiles":
            held.sketch = made.kll_doubles_sketch.deserialize(data)
        case "top":
            held.sketch = made.frequent_strings_sketch.deserialize(data)
    return held


def _merged(left: Sketch, right: Sketch) -> Sketch:
    """Neither is changed."""
    both = _read(left.kind, to_bytes(left))
    if left.kind == "distinct":
        return _add_sketch(both, to_bytes(right))
    both.sketch.merge(right.sketch)
    return both


def _add_sketch(held: Sketch, data: bytes) -> Sketch:
    """Bytes that are no sketch are passed over."""
    import datasketches as made

    try:
        other = _read(held.kind, data)
    except Exception:
        return held
    if held.kind == "distinct":
        held.sketch.update(made.hll_sketch.deserialize(data))
    else:
        held.sketch.merge(other.sketch)
    return held


def _add_value(held: Sketch, value: Any) -> Sketch:
    """Different values by their text: the same for Spark, whatever the type."""
    if held.kind == "quantiles":
        held.sketch.update(float(value))
    else:
        held.sketch.update(value_text(value))
    return held


def _estimate_distinct(held: Sketch) -> int:
    return int(held.sketch.get_estimate() + 0.5)


def _estimate_quantile(held: Sketch, fraction: float) -> float | None:
    if held.sketch.is_empty() or not 0 <= fraction <= 1:
        return None
    # Inclusive, as Spark asks it.
    return float(held.sketch.get_quantile(fraction, True))


def _estimate_top(held: Sketch, count: int) -> list[dict[str, Any]]:
    import datasketches as made

    found = held.sketch.get_frequent_items(made.frequent_items_error_type.NO_FALSE_NEGATIVES)
    ordered = sorted(found, key=lambda item: (-item[1], item[0]))
    return [{"ITEM": item, "COUNT": int(estimate)} for item, estimate, *_ in ordered[: max(count, 0)]]


def merge_bytes(kind: Kind, left: bytes, right: bytes) -> bytes:
    """Two sketches, of rows that were seen apart, as one."""
    return to_bytes(_add_sketch(_read(kind, left), right))


def distinct_estimate(data: bytes) -> int:
    return _estimate_distinct(_read("distinct", data))


def quantile_estimate(data: bytes, fraction: Any) -> float | None:
    return _estimate_quantile(_read("quantiles", data), float(fraction))


def top_estimate(data: bytes, count: int) -> list[dict[str, Any]]:
    return _estimate_top(_read("top", data), count)


# What Spark's COUNT_DISTINCT counts with: a theta sketch of hashes.


def _hashed(texts: frozenset[str]) -> bytes:
    import datasketches as made

    sketch = made.update_theta_sketch(HASHES_LOG_SIZE)
    for text in texts:
        sketch.update(text)
    return bytes(sketch.compact().serialize())


HASHES = Steps(
    init=frozenset,
    add=lambda state, value: state | {value_text(value)},
    merge=lambda left, right: left | right,
    result=_hashed,
)
"""Such a sketch by our own hashes: it merges with others of its kind, not with Spark's."""


def merge_hashes(left: bytes, right: bytes) -> bytes:
    import datasketches as made

    union = made.theta_union(HASHES_LOG_SIZE)
    for data in (left, right):
        union.update(made.compact_theta_sketch.deserialize(data))
    return bytes(union.get_result().serialize())


def estimate_hashes(data: bytes) -> int:
    import datasketches as made

    return int(made.compact_theta_sketch.deserialize(data).get_estimate() + 0.5)


def _sketch_steps(kind: Kind) -> Steps:
    return Steps(init=lambda: _new(kind), add=_add_value, merge=_merged, result=to_bytes)


def _merge_steps(kind: Kind) -> Steps:
    return Steps(init=lambda: _new(kind), add=_add_sketch, merge=_merged, result=to_bytes)


def _asked(kind: Kind, estimate: Callable[[Sketch, Any], Any]) -> Steps:
    """What is asked of the sketch is an argument like the others: the state remembers it."""

    def merge(left: tuple[Sketch, Any], right: tuple[Sketch, Any]) -> tuple[Sketch, Any]:
        return _merged(left[0], right[0]), right[1] if left[1] is None else left[1]

    return Steps(
        init=lambda: (_new(kind), None),
        add=lambda state, value, asked: (_add_value(state[0], value), asked),
        merge=merge,
        result=lambda state: estimate(state[0], 0 if state[1] is None else state[1]),
    )


def _counted(types: tuple[DataType, ...]) -> DataType:
    return COUNTED


FUNCTIONS: tuple[Function, ...] = (
    aggregate(
        "APPROX_COUNT_DISTINCT",
        "(T) -> BIGINT",
        Steps(init=lambda: _new("distinct"), add=_add_value, merge=_merged, result=_estimate_distinct),
        "About how many different values: within 1.6 % (standard error), in 4 KiB.",
        "APPROX_COUNT_DISTINCT(userid)",
    ),
    aggregate(
        "APPROX_QUANTILE",
        "(DOUBLE, DOUBLE) -> DOUBLE",
        _asked("quantiles", _estimate_quantile),
        "About the value that this fraction of all is not above: its rank is off by at most 1.33 % (99 % confidence).",
        "APPROX_QUANTILE(amount, 0.5)",
    ),
    aggregate(
        "APPROX_TOP_K",
        "(VARCHAR, INTEGER) -> ARRAY<VARCHAR>",
        _asked("top", _estimate_top),
        "The k most frequent values with their counts, most frequent first: a count is too high by at most 0.02 % of "
        "all rows, and exact up to 10,000 different values.",
        "APPROX_TOP_K(product, 3)",
        type_rule=_counted,
    ),
    aggregate(
        "DISTINCT_SKETCH",
        "(T) -> BYTES",
        _sketch_steps("distinct"),
        "The sketch of APPROX_COUNT_DISTINCT, to be merged or estimated later.",
        "DISTINCT_SKETCH(userid)",
    ),
    aggregate(
        "QUANTILE_SKETCH",
        "(DOUBLE) -> BYTES",
        _sketch_steps("quantiles"),
        "The sketch of APPROX_QUANTILE.",
        "QUANTILE_SKETCH(amount)",
    ),
    aggregate(
        "TOP_K_SKETCH",
        "(VARCHAR) -> BYTES",
        _sketch_steps("top"),
        "The sketch of APPROX_TOP_K.",
        "TOP_K_SKETCH(product)",
    ),
    aggregate(
        "MERGE_DISTINCT",
        "(BYTES) -> BYTES",
        _merge_steps("distinct"),
        "Sketches of DISTINCT_SKETCH as one, as if all their rows had been in it.",
        "MERGE_DISTINCT(TO_BYTES(product, 'utf8'))",
    ),
    aggregate(
        "MERGE_QUANTILES",
        "(BYTES) -> BYTES",
        _merge_steps("quantiles"),
        "Sketches of QUANTILE_SKETCH as one.",
        "MERGE_QUANTILES(TO_BYTES(product, 'utf8'))",
    ),
    aggregate(
        "MERGE_TOP_K",
        "(BYTES) -> BYTES",
        _merge_steps("top"),
        "Sketches of TOP_K_SKETCH as one.",
        "MERGE_TOP_K(TO_BYTES(product, 'utf8'))",
    ),
)

ESTIMATES: tuple[Function, ...] = (
    scalar(
        "DISTINCT_ESTIMATE",
        "(BYTES) -> BIGINT",
        distinct_estimate,
        "What a sketch of DISTINCT_SKETCH counts; null if it is none.",
        "DISTINCT_ESTIMATE(X'0201070C030802082F823B040AFF8004')",
    ),
    scalar(
        "QUANTILE_ESTIMATE",
        "(BYTES, DOUBLE) -> DOUBLE",
        quantile_estimate,
        "The value at a fraction, from a sketch of QUANTILE_SKETCH; null if it is none.",
        "QUANTILE_ESTIMATE(X'05010F00C80008000300000000000000C8000100C5000000000000000000F03F"
        "000000000000084000000000000008400000000000000040000000000000F03F', 0.5)",
    ),
    scalar(
        "TOP_K_ESTIMATE",
        "(BYTES, INTEGER) -> ARRAY<VARCHAR>",
        top_estimate,
        "The most frequent values with their counts, from a sketch of TOP_K_SKETCH; null if it is none.",
        "TOP_K_ESTIMATE(X'04010A0E03000000020000000000000003000000000000000000000000"
        "0000000100000000000000020000000000000001000000620100000061', 3)",
        type_rule=_counted,
    ),
)
