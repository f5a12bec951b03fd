"""A function made ready for the types of a call.

What it raises costs its result, which is null, and a `Failure` that somebody has to tell. A call that takes too long is
interrupted, as far as Python can: in the main thread, between two of its instructions.
"""

from __future__ import annotations

import json
import linecache
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from headrace.functions.loading import load_attribute
from headrace.functions.memory import MEMORY
from headrace.functions.values import Convert, given, taken
from headrace.types import DataType

if TYPE_CHECKING:
    from headrace.functions.direct import PythonFunction

LONGEST_TRACE = 4000
LONGEST_ARGUMENT = 1000


class Limits(msgspec.Struct, frozen=True):
    """What one call may take."""

    seconds: float = 5.0
    memory_bytes: int = 1024 * 1024 * 1024


class Failure(msgspec.Struct, frozen=True):
    """A call that raised."""

    function: str
    version: str
    error: str
    arguments: str
    """As JSON, as far as they can be."""
    trace: str = ""

    @property
    def reason(self) -> str:
        return f"function `{self.function.lower()}` failed: {self.error}"


class FunctionFailed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Runtime(Protocol):
    """Where functions are called."""

    limits: Limits

    def prepare(self, function: PythonFunction, types: tuple[DataType, ...], result: DataType) -> Any:
        """What `Function.prepare` promises."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function for the types of one call. `body` is what the user wrote: of an aggregate an instance."""

    function: PythonFunction
    body: Any
    types: tuple[DataType, ...]
    result: DataType
    arguments: tuple[Convert | None, ...]
    take: Convert
    seconds: float

    def values(self, values: Sequence[Any]) -> list[Any] | None:
        """As the function gets them; None if one is null that must not be."""
        described = self.function.described
        found = []
        for place, (value, convert) in enumerate(zip(values, self.arguments, strict=True)):
            if value is None and not described.takes_null(place):
                return None
            found.append(value if value is None or convert is None else convert(value))
        return found

    def call(self, method: Callable[..., Any], values: Sequence[Any], *before: Any) -> Any:
        """`FunctionFailed` for whatever it raises."""
        try:
            arguments = self.values(values)
            if arguments is None:
                return None
            with time_limit(self.seconds):
                return method(*before, *arguments)
        except Exception as error:
            raise self.failed(error, values) from error

    def failed(self, error: Exception, values: Sequence[Any]) -> FunctionFailed:
        described, file = self.function.described, self.function.file
        return FunctionFailed(
            Failure(described.name, file.version, _text(_said(error)), _shown(values), _text(_trace(error, file.file)))
        )


def compile_function(function: PythonFunction, types: tuple[DataType, ...], result: DataType) -> Compiled:
    limits = function.runtime.limits
    MEMORY.limit(limits.memory_bytes)
    body = load_attribute(function.file, function.described.attribute)
    if function.described.kind == "aggregate":
        body = body()
    arguments = tuple(given(type_) for type_ in types)
    return Compiled(function, body, types, result, arguments, taken(result), limits.seconds)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """`TimeoutError` in the middle of it, if it takes longer. Only in the main thread, where signals arrive."""
    if seconds <= 0 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise TimeoutError(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _text(quoted: str) -> str:
    """What an error quotes may be half a character, which no dead letter can hold."""
    return quoted.encode("utf-8", "replace").decode()


def _said(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__


def _shown(values: Sequence[Any]) -> str:
    def plain(value: Any) -> Any:
        return value.hex() if isinstance(value, bytes) else str(value)

    texts = [json.dumps(value, default=plain, ensure_ascii=False) for value in values]
    return (
        "["
        + ", ".join(text if len(text) <= LONGEST_ARGUMENT else json.dumps(text[:LONGEST_ARGUMENT]) for text in texts)
        + "]"
    )


def _trace(error: BaseException, file: str) -> str:
    """From the user's file on: how it was reached is ours."""
    # Lines are remembered by the file's name, which other versions of it have too.
    for name in [name for name in linecache.cache if name.startswith(("functions/", file))]:
        del linecache.cache[name]
    frames = traceback.extract_tb(error.__traceback__)
    first = next((place for place, frame in enumerate(frames) if frame.filename.startswith(("functions/", file))), None)
    if first is None:
        return ""
    lines = traceback.format_list(frames[first:]) + traceback.format_exception_only(error)
    return "".join(lines)[-LONGEST_TRACE:]
