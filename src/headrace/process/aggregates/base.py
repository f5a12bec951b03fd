"""What an aggregate is taken apart into, whoever keeps the parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.process.expressions import lower_expression
from headrace.process.lower.rows import column
from headrace.sql.expressions import Call
from headrace.sql.expressions import Literal as LiteralExpression
from headrace.types import DataType


@dataclass(frozen=True, slots=True)
class Partial:
    """What one row contributes (null: nothing) and how contributions are merged. `native` is Spark's aggregate where
    the kind alone does not say it, and `again` then the one that merges what several of it have given."""

    kind: str
    """As `Partials` in Java has them."""
    value: Column
    native: Column | None = None
    again: Callable[[Column], Column] | None = None

    def aggregate(self) -> Column:
        return self._by_kind(self.value) if self.native is None else self.native

    def merge(self, kept: Column) -> Column:
        """Of values that `aggregate` has given for different rows, in any order, the one for all of them."""
        if self.again is not None:
            return self.again(kept)
        assert self.native is None, f"what `{self.kind}` keeps cannot be merged"
        return self._by_kind(kept)

    def _by_kind(self, value: Column) -> Column:
        match self.kind:
            case "sum":
                return F.sum(value)
            case "min":
                return F.min(value)
            case "max":
                return F.max(value)
            case "first":
                return F.min(value)
            case "last":
                return F.max(value)
            case "set":
                return F.array_distinct(F.flatten(F.collect_list(value)))
            case _:
                return F.flatten(F.collect_list(value))


@dataclass(frozen=True, slots=True)
class Decomposed:
    parts: tuple[Partial, ...]
    result: Callable[..., Column]
    """The value, given the merged parts."""
    in_session: Callable[..., Column] | None = None
    """The same where parts were merged by their kind alone, if that makes a difference."""


@dataclass(frozen=True, slots=True)
class Order:
    """Which row came first: by arrival, and by place among those of one record. An arrival is a number, or on Kafka
    several (`Partials.compare` in Java)."""

    columns: tuple[Column, ...]
    arrival: T.DataType


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate's call over one row. `order` are the columns that tell which row came first; `sign` is 1 for a row
    that comes and -1 for one that goes, over a table; None over a stream."""

    call: Call
    order: tuple[Column, ...]
    arrival_type: T.DataType
    sign: Column | None = None
    in_session: bool = False

    def value(self, place: int = 0) -> Column:
        return lower_expression(self.call.arguments[place])

    def type(self, place: int = 0) -> DataType:
        type_ = self.call.arguments[place].type
        assert type_ is not None
        return type_

    def literal(self, place: int) -> object:
        argument = self.call.arguments[place]
        return argument.value if isinstance(argument, LiteralExpression) else None

    def signed(self, value: Column) -> Column:
        return value if self.sign is None else value * self.sign.cast("int")


Lowering = Callable[[Aggregated], Decomposed | None]
"""None if Spark cannot keep this one."""


def order_of(frame: DataFrame) -> Order:
    place = column("$place") if "$place" in frame.columns else F.lit(0)
    return Order((column("$arrival").alias("$arrival"), place.alias("$place")), frame.schema["$arrival"].dataType)
