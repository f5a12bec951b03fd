"""What the function table holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headrace.sql.functions.signatures import Signature, signature
from headrace.types import DataType

# The result's type, from the arguments' types, where a signature cannot say it.
TypeRule = Callable[[tuple[DataType, ...]], DataType]


@dataclass(frozen=True, slots=True)
class Function:
    """One function. `evaluate` is its Python implementation: of a scalar function over its arguments' values, of an
    aggregate over the list of its argument's values in one group. Raising means null."""

    name: str
    kind: Literal["scalar", "aggregate"]
    signatures: tuple[Signature, ...]
    summary: str
    example: str
    """An expression without columns (for an aggregate: over the columns of the documentation's examples)."""
    evaluate: Callable[..., Any]
    nulls: bool = False
    """Whether it is called when an argument is null. Otherwise the result is null."""
    clock: bool = False
    """Whether its first argument is the time now, in milliseconds, which the evaluator adds."""
    type_rule: TypeRule | None = None


def scalar(
    name: str,
    signatures: str | tuple[str, ...],
    evaluate: Callable[..., Any],
    summary: str,
    example: str,
    *,
    nulls: bool = False,
    clock: bool = False,
    type_rule: TypeRule | None = None,
) -> Function:
    """An entry of the table for a scalar function."""
    texts = (signatures,) if isinstance(signatures, str) else signatures
    parsed = tuple(signature(text) for text in texts)
    return Function(name, "scalar", parsed, summary, example, evaluate, nulls, clock, type_rule)


def aggregate(
    name: str, signatures: str | tuple[str, ...], evaluate: Callable[[list[Any]], Any], summary: str, example: str
) -> Function:
    """An entry of the table for an aggregate function. All skip nulls."""
    texts = (signatures,) if isinstance(signatures, str) else signatures
    return Function(name, "aggregate", tuple(signature(text) for text in texts), summary, example, evaluate)
