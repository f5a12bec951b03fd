"""`from headrace import function`: what makes a Python function one of SQL's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

T = TypeVar("T", bound=Callable[..., Any])

MARK = "__headrace_function__"


@dataclass(frozen=True, slots=True)
class Mark:
    """What the decorator was told."""

    name: str | None
    description: str | None
    version: str
    signatures: tuple[str, ...]
    line: int


@overload
def function(target: T) -> T: ...


@overload
def function(
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "",
    signatures: str | tuple[str, ...] | list[str] = (),
) -> Callable[[T], T]: ...


def function(
    target: T | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "",
    signatures: str | tuple[str, ...] | list[str] = (),
) -> Any:
    """Make a function usable in SQL. It stays what it is: call it, and test it, like any other.

    A plain function is called once a row. One whose parameters are `pyarrow.Array` or `pandas.Series` is called with
    many rows at once. One that returns `Iterator[…]` makes several rows of one. A class with `init`, `add`, `merge` and
    `result` is an aggregate, with `undo` also over tables.

    Types are those of the annotations, or `signatures`, such as `"(BIGINT, ARRAY<T>) -> T"`, of which there may be
    several. `name` is its name in SQL (its own by default), `description` what DESCRIBE FUNCTION says (the first line
    of its docstring by default), `version` a label for people: what counts is the text.

    >>> @function
    ... def with_tax(amount: float, rate: float) -> float:
    ...     return amount * (1 + rate)
    >>> with_tax(100.0, 0.5)
    150.0
    """
    texts = (signatures,) if isinstance(signatures, str) else tuple(signatures)

    def mark(target: T) -> T:
        code = getattr(target, "__code__", None)
        setattr(target, MARK, Mark(name, description, version, texts, code.co_firstlineno if code else 0))
        return target

    return mark if target is None else mark(target)


def mark_of(value: Any) -> Mark | None:
    """The decorator's mark: its own, not one that a class has from another it is made of."""
    own = getattr(value, "__dict__", {})
    found = own.get(MARK)
    return found if isinstance(found, Mark) else None
