"""Functions of the rows around: which there are, and what `… OVER (…)` gives.

Every aggregate can stand before OVER too; it is then computed over the rows of the frame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.errors import SqlError
from headrace.nearest import did_you_mean
from headrace.sql.calls import Resolver, resolve_call
from headrace.sql.coerce import is_ordered
from headrace.sql.expressions import Expression, Literal, OrderItem, Over
from headrace.sql.functions import FUNCTIONS, function_of, is_aggregate
from headrace.sql.implicit import convert
from headrace.types import BIGINT, DOUBLE, INTEGER, DataType


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """`takes` says what its arguments are: `value` any expression, `number` a constant count, `default` a value like
    the first; what follows `|` may be left out. `result` is None if it is the first argument's type."""

    name: str
    takes: str
    result: DataType | None
    summary: str
    example: str
    framed: bool = False
    """Whether a frame changes what it gives."""

    @property
    def least(self) -> int:
        return len(self.takes.partition("|")[0].split())

    @property
    def arguments(self) -> list[str]:
        return self.takes.replace("|", " ").split()


def _rank(name: str, result: DataType, summary: str) -> WindowFunction:
    return WindowFunction(name, "", result, summary, f"{name}() OVER (ORDER BY views DESC)")


_BY_PAGE = "OVER (PARTITION BY pageid ORDER BY views)"
_LIST = (
    _rank("ROW_NUMBER", BIGINT, "1, 2, 3, … in order."),
    _rank("RANK", BIGINT, "Rows of equal order have equal ranks; then numbers are left out."),
    _rank("DENSE_RANK", BIGINT, "As RANK, but no number is left out."),
    _rank("PERCENT_RANK", DOUBLE, "RANK as a number from 0 to 1."),
    _rank("CUME_DIST", DOUBLE, "The share of rows up to this one and its equals."),
    WindowFunction(
        "NTILE", "number", BIGINT, "In which of n parts of nearly equal size the row is.", f"NTILE(4) {_BY_PAGE}"
    ),
    WindowFunction(
        "LAG",
        "value | number default",
        None,
        "The value n rows before (1, if not given); where there is none the default, or null.",
        f"LAG(views, 1, 0) {_BY_PAGE}",
    ),
    WindowFunction("LEAD", "value | number default", None, "The same n rows after.", f"LEAD(views) {_BY_PAGE}"),
    WindowFunction("FIRST_VALUE", "value", None, "The frame's first value.", f"FIRST_VALUE(views) {_BY_PAGE}", True),
    WindowFunction("LAST_VALUE", "value", None, "The frame's last value.", f"LAST_VALUE(views) {_BY_PAGE}", True),
    WindowFunction(
        "NTH_VALUE", "value number", None, "The frame's n-th value, or null.", f"NTH_VALUE(views, 2) {_BY_PAGE}", True
    ),
)
WINDOW_FUNCTIONS = {function.name: function for function in _LIST}


def resolve_over(over: Over, resolver: Resolver) -> Over:
    if not resolver.scope.over:
        hint = "only in the SELECT list and ORDER BY of a SELECT without EMIT; around it, a SELECT from that SELECT"
        raise resolver.error("OVER cannot stand here", over, hint)
    inside = resolver.inside(replace(resolver.scope, over=False), None)
    function = WINDOW_FUNCTIONS.get(over.name)
    if function is None:
        arguments, result = _aggregate(over, inside)
    else:
        _check(function, over, resolver)
        arguments, result = _arguments(function, over, inside)
    partition = tuple(_comparable(part, inside) for part in over.partition_by)
    order = tuple(replace(one, expression=_comparable(one.expression, inside, True)) for one in over.order_by)
    _check_range(over, order, inside)
    return replace(over, arguments=arguments, partition_by=partition, order_by=order, type=result)


def _check_range(over: Over, order: tuple[OrderItem, ...], inside: Resolver) -> None:
    """A distance needs one number to be measured by."""
    if over.frame is None or over.frame.unit == "ROWS" or not (over.frame.start or over.frame.end):
        return
    if len(order) != 1 or order[0].expression.type not in (INTEGER, BIGINT):
        hint = "ORDER BY one INTEGER or BIGINT, such as UNIX_TIMESTAMP(at); ROWS counts rows"
        raise inside.error("RANGE with a distance needs the order of one whole number", over, hint)


def _aggregate(over: Over, inside: Resolver) -> tuple[tuple[Expression, ...], DataType | None]:
    if not is_aggregate(over.call):
        if function_of(over.call) is not None:
            raise inside.error(f"{over.name} is no function of several rows", over, "leave out OVER")
        hint = did_you_mean(over.name, [*WINDOW_FUNCTIONS, *FUNCTIONS], "docs/reference/sql.md lists those for OVER")
        raise inside.error(f"function `{over.name}` does not exist", over, hint)
    # Its arguments may be aggregates themselves: the windows are over the groups.
    arguments = tuple(inside.resolve(argument) for argument in over.arguments)
    resolved = resolve_call(replace(over.call, arguments=arguments), _Outer(inside))
    return resolved.arguments, resolved.type


class _Outer:
    """A walk in which arguments are resolved already."""

    def __init__(self, inner: Resolver) -> None:
        self.scope, self.aggregates, self._inner = inner.scope, inner.aggregates, inner

    def resolve(self, node: Expression) -> Expression:
        return node

    def constant(self, node: Expression, target: DataType) -> Expression | None:
        return self._inner.constant(node, target)

    def error(self, message: str, node: Expression, hint: str | None = None) -> SqlError:
        return self._inner.error(message, node, hint)

    def inside(self, scope: object, aggregates: str | None) -> _Outer:
        return self


def _check(function: WindowFunction, over: Over, resolver: Resolver) -> None:
    given, names = len(over.arguments), function.arguments
    if not function.least <= given <= len(names):
        shown = function.takes.replace(" | ", " [").replace(" ", ", ") + ("]" if "|" in function.takes else "")
        raise resolver.error(f"{function.name} does not take {given} arguments", over, f"{function.name}({shown})")
    if over.frame is not None and not function.framed:
        raise resolver.error(f"{function.name} has no frame", over, "leave out ROWS or RANGE")


def _arguments(
    function: WindowFunction, over: Over, inside: Resolver
) -> tuple[tuple[Expression, ...], DataType | None]:
    found: list[Expression] = []
    for kind, argument in zip(function.arguments, over.arguments, strict=False):
        resolved = inside.resolve(argument)
        if kind == "number":
            least = 0 if function.name in ("LAG", "LEAD") else 1
            if not isinstance(resolved, Literal) or resolved.type not in (INTEGER, BIGINT) or resolved.value < least:
                raise inside.error(f"{function.name} takes a number of rows, at least {least}", argument)
        elif resolved.type is None:
            resolved = convert(resolved, found[0].type or INTEGER) if found else resolved
        elif kind == "default":
            resolved = _like_first(resolved, found[0], inside)
        found.append(resolved)
    if found and found[0].type is None:
        raise inside.error("the type of NULL is not known here", over, "write CAST(NULL AS VARCHAR), or another type")
    return tuple(found), function.result or found[0].type


def _like_first(default: Expression, first: Expression, inside: Resolver) -> Expression:
    assert first.type is not None
    if default.type == first.type:
        return default
    converted = inside.constant(default, first.type)
    if converted is None and not (isinstance(default, Literal) and default.type in (INTEGER, BIGINT)):
        raise inside.error(f"the default must be {first.type}, got {default.type}", default)
    return converted or convert(default, first.type)


def _comparable(part: Expression, inside: Resolver, ordered: bool = False) -> Expression:
    resolved = inside.resolve(part)
    if resolved.type is None:
        raise inside.error("the type of NULL is not known here", part)
    if ordered and not is_ordered(resolved.type):
        raise inside.error(f"{resolved.type} has no order", part)
    return resolved
