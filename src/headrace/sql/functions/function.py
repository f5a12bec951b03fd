"""What the function table holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.sql.functions.signatures import Signature, signature
from headrace.types import DataType

# The result's type, from the arguments' types, where a signature cannot say it.
TypeRule = Callable[[tuple[DataType, ...]], DataType]
# Types of the arguments and of the result → what is called with values; of an aggregate `Steps`.
Prepare = Callable[[tuple[DataType, ...], DataType], Any]


@dataclass(frozen=True, slots=True)
class Steps:
    """How an aggregate is kept. `add(state, *arguments)` for each row, beginning with `init()`; `merge` of the states
    of different rows; `result` of a state; `undo(state, *arguments)` takes away a row that was added, for aggregates
    over tables, and is None where that cannot be. States are plain values, which are not changed in place. All
    arguments are given each time, also constant ones; a row whose first argument is null is skipped, unless `nulls`.

    If `ordered`, the result depends on the order of arrival: add and undo are given the row's arrival number before its
    arguments, and rows and states may come in any order."""

    init: Callable[[], Any]
    add: Callable[..., Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    undo: Callable[..., Any] | None = None
    nulls: bool = False
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """One function. `evaluate` is its Python implementation: of a scalar function over its arguments' values, of an
    aggregate over the list of one group's values (tuples of values if it has several arguments), of a table function
    over its arguments' values, giving the list of the rows' values. Raising means null, no rows for a table
    function."""

    name: str
    kind: Literal["scalar", "aggregate", "table"]
    signatures: tuple[Signature, ...]
    summary: str
    example: str
    """An expression without columns (for an aggregate: over the columns of the documentation's examples)."""
    evaluate: Callable[..., Any] = field(compare=False)
    nulls: bool = False
    """Whether it is called when an argument is null. Otherwise the result is null."""
    clock: bool = False
    """Whether its first argument is the time now, in milliseconds, which the evaluator adds."""
    type_rule: TypeRule | None = None
    typed: bool = False
    """Whether its first argument is the tuple of its arguments' types, which the evaluator adds."""
    steps: Steps | None = field(default=None, compare=False)
    """Of an aggregate."""
    origin: str = ""
    """Of a Python function: the file it is from."""
    version: str = ""
    """Of a Python function: another text, another version. Two queries that differ in it are two queries."""
    undo: bool = False
    """Of a Python aggregate: whether a row can be taken away again."""
    prepare: Prepare | None = field(default=None, compare=False, repr=False)
    """Of a Python function: what computes it, for the types of a call; of an aggregate its steps."""

    @property
    def can_undo(self) -> bool:
        return self.undo or (self.steps is not None and self.steps.undo is not None)


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
    typed: bool = False,
) -> Function:
    """An entry of the table for a scalar function."""
    texts = (signatures,) if isinstance(signatures, str) else signatures
    parsed = tuple(signature(text) for text in texts)
    return Function(name, "scalar", parsed, summary, example, evaluate, nulls, clock, type_rule, typed)


def aggregate(
    name: str,
    signatures: str | tuple[str, ...],
    steps: Steps,
    summary: str,
    example: str,
    *,
    type_rule: TypeRule | None = None,
) -> Function:
    """An entry of the table for an aggregate function."""
    texts = (signatures,) if isinstance(signatures, str) else signatures
    parsed = tuple(signature(text) for text in texts)
    return Function(name, "aggregate", parsed, summary, example, _over(steps), type_rule=type_rule, steps=steps)


def _over(steps: Steps) -> Callable[[list[Any]], Any]:
    def evaluate(rows: list[Any]) -> Any:
        state = steps.init()
        for arrival, row in enumerate(rows):
            arguments = row if isinstance(row, tuple) else (row,)
            if steps.nulls or not arguments or arguments[0] is not None:
                state = steps.add(state, *((arrival,) if steps.ordered else ()), *arguments)
        return steps.result(state)

    return evaluate


def table(
    name: str,
    signatures: str | tuple[str, ...],
    evaluate: Callable[..., Any],
    summary: str,
    example: str,
    *,
    type_rule: TypeRule | None = None,
) -> Function:
    """An entry of the table for a table function. Its signatures give the type of one row's value."""
    texts = (signatures,) if isinstance(signatures, str) else signatures
    parsed = tuple(signature(text) for text in texts)
    return Function(name, "table", parsed, summary, example, evaluate, type_rule=type_rule)
