"""OVER → Spark's window functions."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from headrace.process.aggregates import decompose, order_of
from headrace.process.expressions import lower_expression
from headrace.sql.expressions import Literal, Over
from headrace.sql.plan import Named


def lower_over(over: Over, frame: DataFrame) -> Column:
    """As a column of `frame`."""
    special = _FUNCTIONS.get(over.name)
    if special is not None:
        return special(over)
    decomposed = decompose(Named("$over", over.call), order_of(frame))
    window = _framed(over)
    return decomposed.result(*(part.aggregate().over(window) for part in decomposed.parts))


def _window(over: Over) -> WindowSpec:
    """Without ORDER BY, Spark insists on one for functions that number rows; any will do."""
    order = [
        value.desc_nulls_last() if one.descending else value.asc_nulls_first()
        for one, value in ((one, lower_expression(one.expression)) for one in over.order_by)
    ]
    return Window.partitionBy(*map(lower_expression, over.partition_by)).orderBy(*(order or [F.lit(0)]))


def _framed(over: Over) -> WindowSpec:
    if over.frame is not None:
        start = Window.unboundedPreceding if over.frame.start is None else over.frame.start
        end = Window.unboundedFollowing if over.frame.end is None else over.frame.end
        window = _window(over)
        return window.rowsBetween(start, end) if over.frame.unit == "ROWS" else window.rangeBetween(start, end)
    return _window(over).rangeBetween(Window.unboundedPreceding, Window.currentRow)


def _number(over: Over, place: int, default: int) -> int:
    if place >= len(over.arguments):
        return default
    argument = over.arguments[place]
    assert isinstance(argument, Literal)
    return int(argument.value)


def _numbered(function: Callable[[], Column]) -> Callable[[Over], Column]:
    def lower(over: Over) -> Column:
        value = function().over(_window(over))
        return value.cast("double") if over.name in ("PERCENT_RANK", "CUME_DIST") else value.cast("long")

    return lower


def _shifted(function: Callable[[Column, int], Column]) -> Callable[[Over], Column]:
    def lower(over: Over) -> Column:
        # In a struct, a null that is there can be told from a row that is not.
        boxed = function(F.struct(lower_expression(over.arguments[0]).alias("value")), _number(over, 1, 1))
        found = boxed.over(_window(over))
        if len(over.arguments) < 3:
            return found.getField("value")
        return F.when(found.isNull(), lower_expression(over.arguments[2])).otherwise(found.getField("value"))

    return lower


def _of_frame(function: Callable[[Column, Over], Column]) -> Callable[[Over], Column]:
    return lambda over: function(lower_expression(over.arguments[0]), over).over(_framed(over))


_FUNCTIONS: dict[str, Callable[[Over], Column]] = {
    "ROW_NUMBER": _numbered(F.row_number),
    "RANK": _numbered(F.rank),
    "DENSE_RANK": _numbered(F.dense_rank),
    "PERCENT_RANK": _numbered(F.percent_rank),
    "CUME_DIST": _numbered(F.cume_dist),
    "NTILE": lambda over: F.ntile(_number(over, 0, 1)).over(_window(over)).cast("long"),
    "LAG": _shifted(F.lag),
    "LEAD": _shifted(F.lead),
    "FIRST_VALUE": _of_frame(lambda value, over: F.first(value)),
    "LAST_VALUE": _of_frame(lambda value, over: F.last(value)),
    "NTH_VALUE": _of_frame(lambda value, over: F.nth_value(value, _number(over, 1, 1))),
}
