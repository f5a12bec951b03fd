"""Groups kept in Python: for aggregates that are written in it, and those that must see changes in their order.

Each group's state is its aggregates' states, as their steps have them; a batch costs what its rows cost, however many
there were before. Values travel as pickled tuples, so that what Spark makes of types on the way to Python, and what
that cannot hold, does not matter.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.functions.arrow_values import from_values, to_values
from headrace.process.letters import LetterBox, tell_failures
from headrace.process.spark_types import spark_type
from headrace.sql.expressions import Call
from headrace.sql.functions import steps_of
from headrace.sql.functions.finish import finish
from headrace.sql.functions.function import Steps
from headrace.types import DataType, Struct

if TYPE_CHECKING:
    import pandas as pd

GROUP, END, KEYS, ROW, RESULT, TIME = "group", "end", "keys", "row", "result", "time"
OUTPUT = f"{KEYS} binary, {END} bigint, {TIME} bigint, {RESULT} binary"
# What of a packed row stands before the aggregates' arguments.
ARRIVAL_AT, PLACE_AT, TIME_AT, SIGN_AT, FIRST_ARGUMENT = range(5)


def pack(columns: Sequence[Column], types: Sequence[DataType]) -> Column:
    """Several values as one."""
    kept = list(types)

    def evaluate(*arrays: pa.Array) -> pa.Array:
        values = [to_values(array, type_) for array, type_ in zip(arrays, kept, strict=True)]
        return pa.array([pickle.dumps(row) for row in zip(*values, strict=True)], pa.binary())

    evaluate.__annotations__ = {}
    return F.arrow_udf(evaluate, "binary")(*columns)


def unpack(packed: Column, types: Sequence[DataType]) -> Column:
    """Those values, as a structure with the fields v0, v1, …"""
    struct = Struct(tuple((f"v{place}", type_) for place, type_ in enumerate(types)))
    names = [name for name, _ in struct.fields]

    def evaluate(array: pa.Array) -> pa.Array:
        rows = (pickle.loads(value) for value in array.to_pylist())
        return from_values([dict(zip(names, row, strict=True)) for row in rows], struct)

    evaluate.__annotations__ = {}
    return F.arrow_udf(evaluate, spark_type(struct))(packed)


def keep_groups(
    frame: DataFrame, calls: Sequence[Call], windowed: bool, final: bool, box: LetterBox | None, states: bool = False
) -> DataFrame:
    """`frame` has `group` (which group a row is of), `end` (of its window), `keys` (packed) and `row` (packed: arrival,
    place, time, sign, then the arguments of all calls). What comes out has `keys`, `end`, `time` and `result`
    (packed); with `states` it has `group` too, and results are not values yet, but what `merge_groups` and
    `finish_groups` make them of."""
    grouped = frame.select(GROUP, END, KEYS, ROW).groupBy(GROUP)
    return grouped.transformWithStateInPandas(
        GroupProcessor(tuple(calls), windowed, final, box, states),
        f"{OUTPUT}, {GROUP} string" if states else OUTPUT,
        "Append" if final else "Update",
        "EventTime" if windowed else "None",
    )


def merge_groups(calls: Sequence[Call]) -> Callable[[DataFrame], DataFrame]:
    """Groups with states of different rows → one of each."""
    kept = tuple(calls)

    def evaluate(lists: pa.Array) -> pa.Array:
        every = [steps_of(call) for call in kept]
        return pa.array([pickle.dumps(_merged(every, packed)) for packed in lists.to_pylist()], pa.binary())

    evaluate.__annotations__ = {}
    merge = F.arrow_udf(evaluate, "binary")

    def merged(several: DataFrame) -> DataFrame:
        same = [F.first(name).alias(name) for name in (KEYS, END)]
        listed = several.groupBy(GROUP).agg(*same, F.max(TIME).alias(TIME), F.collect_list(RESULT).alias(RESULT))
        return listed.withColumn(RESULT, merge(F.col(RESULT))).select(*several.columns)

    return merged


def _merged(every: Sequence[Steps], packed: Sequence[bytes]) -> list[Any]:
    first, *others = (pickle.loads(one) for one in packed)
    for other in others:
        first = [steps.merge(a, b) for steps, a, b in zip(every, first, other, strict=True)]
    return list(first)


def finish_groups(frame: DataFrame, calls: Sequence[Call], box: LetterBox | None) -> DataFrame:
    """States → values."""
    kept = tuple(calls)

    def evaluate(array: pa.Array) -> pa.Array:
        every = [steps_of(call) for call in kept]
        values = (_values(kept, every, pickle.loads(one)) for one in array.to_pylist())
        found = pa.array([pickle.dumps(one) for one in values], pa.binary())
        tell_failures(box)
        return found

    evaluate.__annotations__ = {}
    return frame.withColumn(RESULT, F.arrow_udf(evaluate, "binary")(F.col(RESULT)))


def _values(calls: Sequence[Call], every: Sequence[Steps], states: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(finish(call, steps.result(state)) for call, steps, state in zip(calls, every, states, strict=True))


class GroupProcessor(StatefulProcessor):  # type: ignore[misc]
    """Runs in Spark's Python workers. With `final`, a window's result comes out when it is closed, and only then."""

    def __init__(
        self, calls: tuple[Call, ...], windowed: bool, final: bool, box: LetterBox | None, states: bool = False
    ) -> None:
        self._calls, self._windowed, self._final, self._box, self._bare = calls, windowed, final, box, states

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("group", "state binary")
        self._steps = [steps_of(call) for call in self._calls]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        keys, end, packed = _gathered(rows)
        states, time = self._load()
        for row in sorted((pickle.loads(one) for one in packed), key=order_of_row):
            time = max(time, row[TIME_AT])
            states = self._changed(states, row)
        self._state.update((pickle.dumps((keys, end, time, states)),))
        if self._windowed:
            self._handle.registerTimer(end)
        if not self._final:
            yield self._result(key, keys, end, time, states)
        tell_failures(self._box)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        held = self._state.get()
        if held is not None and self._final:
            yield self._result(key, *pickle.loads(held[0]))
            tell_failures(self._box)
        self._state.clear()

    def close(self) -> None:
        """Nothing is open."""

    def _load(self) -> tuple[list[Any], int]:
        held = self._state.get()
        if held is None:
            return [steps.init() for steps in self._steps], -1
        _, _, time, states = pickle.loads(held[0])
        return states, time

    def _changed(self, states: list[Any], row: Sequence[Any]) -> list[Any]:
        found, at = [], FIRST_ARGUMENT
        order = order_of_row(row)
        for call, steps, state in zip(self._calls, self._steps, states, strict=True):
            arguments = row[at : at + len(call.arguments)]
            at += len(call.arguments)
            found.append(change(steps, state, order, row[SIGN_AT], arguments))
        return found

    def _result(self, key: Any, keys: bytes, end: int, time: int, states: list[Any]) -> pd.DataFrame:
        found = pickle.dumps(states if self._bare else _values(self._calls, self._steps, states))
        # Spark's worker has it; the engine, which only names this, need not load it.
        import pandas as pd

        columns = {KEYS: [keys], END: [end], TIME: [time], RESULT: [found]}
        return pd.DataFrame({**columns, GROUP: [key[0]]} if self._bare else columns)


def order_of_row(row: Sequence[Any]) -> tuple[Any, Any]:
    """
    >>> order_of_row((7, 0)), order_of_row(({"time": 5, "partition": 1, "offset": 2}, 0))
    ((7, 0), ((5, 1, 2), 0))
    """
    arrival = row[ARRIVAL_AT]
    # On Kafka an arrival is several numbers, and a structure has no order in Python.
    return (tuple(arrival.values()) if isinstance(arrival, dict) else arrival), row[PLACE_AT]


def change(steps: Steps, state: Any, order: Any, sign: int, arguments: Sequence[Any]) -> Any:
    """The state after a row that comes or goes."""
    if arguments and arguments[0] is None and not steps.nulls:
        return state
    given = (order, *arguments) if steps.ordered else arguments
    if sign > 0:
        return steps.add(state, *given)
    return state if steps.undo is None else steps.undo(state, *given)


def _gathered(frames: Iterator[pd.DataFrame]) -> tuple[bytes, int, list[bytes]]:
    keys, end, packed = b"", 0, []
    for frame in frames:
        keys, end = bytes(frame[KEYS].iloc[0]), int(frame[END].iloc[0])
        packed += frame[ROW].tolist()
    return keys, end, packed
