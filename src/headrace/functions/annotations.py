"""Python's annotations as SQL's types.

`bool`, `int`, `float`, `str`, `bytes`, `Decimal`, `date`, `time`, `datetime`, `list[T]`, `dict[K, V]`, dataclasses and
TypedDicts are what they seem; `Any` and type variables are any type; `X | None` may be null. What they cannot say,
`Annotated[int, "INTEGER"]` does.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Generator as AbstractGenerator
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from headrace.functions.files import SignatureText, Style

SIMPLE: dict[Any, str] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "VARCHAR",
    bytes: "BYTES",
    decimal.Decimal: "DECIMAL",
    datetime.date: "DATE",
    datetime.time: "TIME",
    datetime.datetime: "TIMESTAMP",
}
ROWS = (Iterator, Iterable, AbstractGenerator)
# `N` is any number and `C` anything that has an order, in signatures that are written out.
LETTERS = "TUVWXYZABDEFGHIJKLMOPQRS"


class Unclear(Exception):
    """An annotation that says no type."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclasses.dataclass(slots=True)
class Read:
    """What a function's annotations say."""

    signature: SignatureText
    optional: tuple[bool, ...]
    style: Style
    rows: bool
    """Whether it returns an iterator of its result."""


def read(target: Callable[..., Any], skip: int = 0, result_of: Callable[..., Any] | None = None) -> Read:
    """`skip` parameters in front are not SQL's (`self` and the state of an aggregate, whose result is another
    method's)."""
    letters = _Letters()
    hints = _hints(target)
    parameters = list(inspect.signature(target).parameters.values())[skip:]
    texts: list[str] = []
    optional: list[bool] = []
    styles: set[Style] = set()
    variadic = False
    for one in parameters:
        if one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD):
            if one.default is one.empty and one.kind is one.KEYWORD_ONLY:
                raise Unclear(f"parameter `{one.name}` can only be given by name, which SQL does not")
            continue
        if one.name not in hints:
            raise Unclear(f"parameter `{one.name}` has no type", f"write one:  {one.name}: float")
        text, may_be_null, style = _type(hints[one.name], letters, f"parameter `{one.name}`")
        texts.append(text)
        optional.append(may_be_null)
        styles.add(style)
        variadic = variadic or one.kind is one.VAR_POSITIONAL
    result, rows = _result(result_of or target, letters)
    unbound = set(result[0]) & set(letters.used) - set("".join(texts)) if len(result[0]) == 1 else set()
    if unbound or (result[0] == "DECIMAL" and "DECIMAL" not in texts):
        raise Unclear(
            f"the result's type `{result[0]}` is not known", 'say it:  -> Annotated[Decimal, "DECIMAL(10, 2)"]'
        )
    styles = styles or {result[2]}
    if len(styles) > 1:
        raise Unclear("some parameters are arrays and some are not", "all of them, or none")
    return Read(SignatureText(tuple(texts), result[0], variadic), tuple(optional), styles.pop(), rows)


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(target, include_extras=True)
    except Exception as error:
        raise Unclear(f"its annotations cannot be read: {error}") from error


def _result(target: Callable[..., Any], letters: _Letters) -> tuple[tuple[str, bool, Style], bool]:
    hints = _hints(target)
    if "return" not in hints or hints["return"] is type(None):
        raise Unclear("what it returns has no type", "write one:  -> float")
    annotation = hints["return"]
    if get_origin(annotation) in ROWS:
        [inner, *_] = get_args(annotation)
        return _type(inner, letters, "what it yields"), True
    return _type(annotation, letters, "what it returns"), False


class _Letters:
    """A letter for each type variable, and one of its own for every `Any`."""

    def __init__(self) -> None:
        self.used: dict[Any, str] = {}

    def of(self, variable: Any) -> str:
        return self.used.setdefault(variable, LETTERS[len(self.used) % len(LETTERS)])


def _type(annotation: Any, letters: _Letters, what: str) -> tuple[str, bool, Style]:
    """SQL's type, whether it may be null, and how values come."""
    style: Style = "rows"
    if get_origin(annotation) in (Union, types.UnionType):
        others = [one for one in get_args(annotation) if one is not type(None)]
        if len(others) != 1:
            raise Unclear(f"{what} is one of several types", "give `signatures` instead of annotations")
        text, _, style = _type(others[0], letters, what)
        return text, True, style
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        text_notes = [note for note in notes if isinstance(note, str)]
        if not text_notes:
            return _type(inner, letters, what)
        nullable = get_origin(inner) in (Union, types.UnionType) and type(None) in get_args(inner)
        return text_notes[0].strip(), nullable, _style(inner)
    if _style(annotation) != "rows":
        raise Unclear(f"{what} is an array of what?", 'say it:  Annotated[pa.Array, "BIGINT"]')
    return _plain(annotation, letters, what), False, style


def _style(annotation: Any) -> Style:
    module, name = getattr(annotation, "__module__", ""), getattr(annotation, "__name__", "")
    if module.startswith("pyarrow") and name.endswith("Array"):
        return "arrow"
    return "pandas" if module.startswith("pandas") and name == "Series" else "rows"


def _plain(annotation: Any, letters: _Letters, what: str) -> str:
    if annotation in SIMPLE:
        return SIMPLE[annotation]
    if annotation is Any:
        return letters.of(object())
    if isinstance(annotation, TypeVar):
        return letters.of(annotation)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is list and inner:
        return f"ARRAY<{_type(inner[0], letters, what)[0]}>"
    if origin is dict and inner:
        key, value = (_type(part, letters, what)[0] for part in inner)
        return f"MAP<{key}, {value}>"
    if dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation):
        fields = get_type_hints(annotation, include_extras=True)
        listed = ", ".join(f"{_field(name)} {_type(field, letters, what)[0]}" for name, field in fields.items())
        return f"STRUCT<{listed}>"
    shown = getattr(annotation, "__name__", None) or str(annotation)
    raise Unclear(f"{what} has a type that SQL has not: `{shown}`", f'name it:  Annotated[{shown}, "VARCHAR"]')


def _field(name: str) -> str:
    return name if name == name.lower() else f"`{name}`"
