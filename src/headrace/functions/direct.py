"""Calling Python functions in this process: in Spark's workers, in tests, and in the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.functions.compiled import Compiled, Failure, FunctionFailed, Limits, Runtime, compile_function
from headrace.functions.files import Described, FunctionFile
from headrace.functions.vectors import call_one
from headrace.sql.functions.function import Steps
from headrace.types import DataType

MOST_ROWS = 100_000
"""Of one call of a table function."""
MOST_FAILURES = 10_000


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A `Function`'s way to its implementation. Wherever it is sent, it runs directly there."""

    file: FunctionFile
    described: Described
    runtime: Runtime = field(compare=False, repr=False)

    def __call__(self, types: tuple[DataType, ...], result: DataType) -> Any:
        return self.runtime.prepare(self, types, result)

    def __reduce__(self) -> Any:
        return arrived, (self.file, self.described, self.runtime.limits)


def call_scalar(compiled: Compiled, values: Sequence[Any]) -> Any:
    if compiled.function.described.style != "rows":
        return call_one(compiled, values)
    found = compiled.call(compiled.body, values)
    return _taken(compiled, found, values)


def call_table(compiled: Compiled, values: Sequence[Any]) -> list[Any]:
    def collect(*arguments: Any) -> list[Any]:
        rows = []
        for row in compiled.body(*arguments):
            rows.append(row)
            if len(rows) > MOST_ROWS:
                raise ValueError(f"yields more than {MOST_ROWS:,} rows")
        return rows

    rows = compiled.call(collect, values) or []
    return [_taken(compiled, row, values) for row in rows]


def _taken(compiled: Compiled, value: Any, values: Sequence[Any]) -> Any:
    try:
        return compiled.take(value)
    except (ValueError, ArithmeticError) as error:
        raise compiled.failed(error, values) from error


def aggregate_steps(compiled: Compiled, failed: Callable[[Failure], None]) -> Steps:
    """A row that `add` raises for is not in the aggregate. A method that returns nothing has changed the state in
    place."""
    body = compiled.body

    def step(method: Callable[..., Any], state: Any, values: Sequence[Any]) -> Any:
        if compiled.values(values) is None:
            return state
        try:
            new = compiled.call(method, values, state)
        except FunctionFailed as failure:
            failed(failure.failure)
            return state
        return state if new is None else new

    def merge(left: Any, right: Any) -> Any:
        try:
            new = body.merge(left, right)
        except Exception as error:
            failed(compiled.failed(error, ()).failure)
            return left
        return left if new is None else new

    def result(state: Any) -> Any:
        try:
            return compiled.take(body.result(state))
        except Exception as error:
            failed(compiled.failed(error, ()).failure)
            return None

    undo = getattr(body, "undo", None)
    return Steps(
        init=body.init,
        add=lambda state, *values: step(body.add, state, values),
        merge=merge,
        result=result,
        undo=undo and (lambda state, *values: step(undo, state, values)),
        # It says itself which arguments may be null.
        nulls=True,
    )


class DirectRuntime:
    """In this process. Failures wait in `failures` for whoever tells them."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()

    def prepare(self, function: PythonFunction, types: tuple[DataType, ...], result: DataType) -> Any:
        compiled = compile_function(function, types, result)
        if function.described.kind == "aggregate":
            return aggregate_steps(compiled, FAILURES.append)
        scalar = function.described.kind == "scalar"

        def apply(*values: Any) -> Any:
            try:
                return call_scalar(compiled, values) if scalar else call_table(compiled, values)
            except FunctionFailed as failure:
                FAILURES.append(failure.failure)
                return None if scalar else []

        return apply


# A worker runs one task at a time: what failed since it was last asked is its.
FAILURES: deque[Failure] = deque(maxlen=MOST_FAILURES)
DIRECT = DirectRuntime()


def take_failures() -> list[Failure]:
    """What failed in this process since the last time."""
    found = []
    while FAILURES:
        found.append(FAILURES.popleft())
    return found


def arrived(file: FunctionFile, described: Described, limits: Limits) -> PythonFunction:
    """One that was sent here."""
    return PythonFunction(file, described, DirectRuntime(limits))
