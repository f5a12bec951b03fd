"""Python functions beside the server: in processes that may hang, fill up or die without taking the log with them.

The server plans and answers; whatever a function does happens in a child, one call at a time, which is killed if it
does not answer. `python -m headrace.functions.host` is the child: pickled requests on its standard input, pickled
answers on its standard output. What functions print goes to the server's own log.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from headrace.errors import DeadlineExceeded
from headrace.functions.attach import Attached
from headrace.functions.batches import Loaded, call_batch, load_batches
from headrace.functions.compiled import Compiled, Failure, FunctionFailed, Limits, compile_function
from headrace.functions.describe import describe
from headrace.functions.direct import PythonFunction, aggregate_steps, call_scalar, call_table
from headrace.functions.files import FunctionFile, Problem
from headrace.functions.host_child import START_SECONDS, Child, ChildDied, ChildHung, receive, send
from headrace.functions.memory import MEMORY
from headrace.sql.functions.function import Steps
from headrace.types import DataType

MOST_CHILDREN = 4
DESCRIBE_SECONDS = 30.0
GRACE_SECONDS = 5.0
"""How much longer than the limit a child may take to say that the limit was reached."""


class FunctionHost:
    """A few children, started when somebody calls. `failed` is told every call that raised."""

    def __init__(self, limits: Limits | None = None, failed: Callable[[Failure], None] = lambda failure: None) -> None:
        self.limits = limits or Limits()
        self._failed = failed
        self._idle: list[Child] = []
        self._places = threading.BoundedSemaphore(MOST_CHILDREN)
        self._lock = threading.Lock()

    def describe(self, file: FunctionFile) -> tuple[FunctionFile, tuple[Problem, ...]]:
        """What is in a file."""
        try:
            with self._child() as child:
                found: tuple[FunctionFile, tuple[Problem, ...]] = child.ask(
                    ("describe", file), START_SECONDS + DESCRIBE_SECONDS
                )
                return found
        except ChildHung:
            return file, (Problem(f"does not load within {DESCRIBE_SECONDS:g} s"),)
        except ChildDied:
            return file, (Problem("ends the process that loads it"),)

    def prepare(self, function: PythonFunction, types: tuple[DataType, ...], result: DataType) -> Any:
        """As `Function.prepare`. A call that does not end is `DeadlineExceeded`."""
        key = (function, types, result)
        if function.described.kind == "aggregate":
            return _gathering(lambda rows: self._call(key, rows))
        return lambda *values: self._call(key, values)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()

    def _call(self, key: tuple[PythonFunction, tuple[DataType, ...], DataType], values: Sequence[Any]) -> Any:
        function = key[0]
        try:
            with self._child() as child:
                return self._answer(child, key, values)
        except ChildHung:
            message = f"function `{function.described.name.lower()}` did not answer within {self.limits.seconds:g} s"
            raise DeadlineExceeded(message, hint="its process was ended; `[functions] seconds` is the limit") from None
        except ChildDied:
            name, version = function.described.name, function.file.version
            self._failed(Failure(name, version, "it ended the process it ran in", "[]"))
            return [] if function.described.kind == "table" else None

    def _answer(self, child: Child, key: Any, values: Sequence[Any]) -> Any:
        if key not in child.prepared:
            # A child that has only begun has to load all it needs first.
            child.ask(("prepare", len(child.prepared), *key), START_SECONDS)
            child.prepared[key] = len(child.prepared)
        found, failures = child.ask(("call", child.prepared[key], values), self.limits.seconds + GRACE_SECONDS)
        for failure in failures:
            self._failed(failure)
        return found

    @contextmanager
    def _child(self) -> Iterator[Child]:
        """One that nobody uses, or another one. It comes back only if all went well."""
        with self._places:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            child = child or Child()
            try:
                yield child
            except BaseException:
                child.kill()
                raise
            with self._lock:
                self._idle.append(child)


def _gathering(call: Callable[[list[Any]], Any]) -> Steps:
    """An aggregate whose rows are gathered here, and computed there at the end, in one call."""
    return Steps(
        init=list,
        add=lambda rows, *values: _appended(rows, (1, values)),
        undo=lambda rows, *values: _appended(rows, (-1, values)),
        merge=lambda left, right: [*left, *right],
        result=call,
        nulls=True,
    )


def _appended(rows: list[Any], row: Any) -> list[Any]:
    rows.append(row)
    return rows


# The child


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Until nobody asks any more."""
    prepared: dict[int, Compiled] = {}
    batches: Loaded | None = None
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        match request:
            case "describe", file:
                answer: Any = describe(file)
            case "prepare", number, function, types, result:
                prepared[number] = compile_function(function, types, result)
                answer = None
            case "batches", file, attached, raw, memory_bytes:
                batches, answer = _loaded(file, attached, raw, memory_bytes)
            case "batch", records:
                assert batches is not None
                answer = call_batch(batches, records)
            case _, number, values:
                answer = _called(prepared[number], values)
        send(answers, answer)


def _loaded(file: FunctionFile, attached: Attached, raw: bool, memory_bytes: int) -> tuple[Loaded | None, str | None]:
    """A function that takes batches, or why it cannot be loaded."""
    try:
        return load_batches(file, attached, raw, memory_bytes), None
    except BaseException as error:
        return None, f"it cannot be loaded: {type(error).__name__}: {error}"


def _called(compiled: Compiled, values: Any) -> tuple[Any, list[Failure]]:
    failures: list[Failure] = []
    kind = compiled.function.described.kind
    try:
        if kind == "aggregate":
            return _aggregated(aggregate_steps(compiled, failures.append), values), failures
        return (call_scalar if kind == "scalar" else call_table)(compiled, values), failures
    except FunctionFailed as failed:
        return ([] if kind == "table" else None), [*failures, failed.failure]


def _aggregated(steps: Steps, rows: Sequence[tuple[int, Sequence[Any]]]) -> Any:
    state = steps.init()
    for sign, values in rows:
        change = steps.add if sign > 0 else steps.undo
        state = state if change is None else change(state, *values)
    return steps.result(state)


def main() -> None:
    # Functions may print; the answers' stream is not theirs.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    MEMORY.expendable = True
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
