"""What a function's lowering gets to see of its call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import Column

from headrace.process.spark_types import spark_type
from headrace.sql.expressions import Call, Expression, Lambda, Literal
from headrace.types import DataType

Scope = Mapping[str, Column]
Lower = Callable[[Expression, Scope], Column]


@dataclass(frozen=True)
class Arguments:
    call: Call
    scope: Scope
    lower: Lower

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def result(self) -> DataType:
        assert self.call.type is not None
        return self.call.type

    def __len__(self) -> int:
        return len(self.call.arguments)

    @cached_property
    def columns(self) -> list[Column]:
        """All arguments but lambdas, each lowered once."""
        plain = (argument for argument in self.call.arguments if not isinstance(argument, Lambda))
        return [self.lower(argument, self.scope) for argument in plain]

    def __getitem__(self, place: int) -> Column:
        """Lambdas come last, so places do not shift."""
        return self.columns[place]

    def type(self, place: int) -> DataType:
        type_ = self.call.arguments[place].type
        assert type_ is not None
        return type_

    def literal(self, place: int) -> Any:
        """The value, if it is written in the statement; None otherwise."""
        argument = self.call.arguments[place]
        return argument.value if isinstance(argument, Literal) else None

    def function(self, place: int) -> Callable[..., Column]:
        """A lambda as a Python function over columns, with its result in the declared type."""
        argument = self.call.arguments[place]
        assert isinstance(argument, Lambda)
        body = argument.body

        def apply(*values: Column) -> Column:
            inner = self.lower(body, {**self.scope, **dict(zip(argument.parameters, values, strict=True))})
            return inner if body.type is None else inner.cast(spark_type(body.type))

        # Spark asks a function how many parameters it has.
        arity: dict[int, Callable[..., Column]] = {
            1: lambda a: apply(a),
            2: lambda a, b: apply(a, b),
            3: lambda a, b, c: apply(a, b, c),
        }
        return arity[len(argument.parameters)]


Lowering = Callable[[Arguments], "Column | None"]
