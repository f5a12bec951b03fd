"""Expressions: what stands in a SELECT list, a WHERE, a GROUP BY.

The parser makes them without types; the analyser rebuilds them resolved: every `Name` has become a
`ColumnRef`, every node has its `type`, implicit conversions are `Cast`s, and function names are those of the
function table. Consumers (lowering to Spark, the Python evaluator, pushing predicates to a store) see only
resolved ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from typing import Literal as Only

from headrace.types import DataType

if TYPE_CHECKING:
    from headrace.sql.clauses import Query
    from headrace.sql.functions.function import Function


@dataclass(frozen=True, slots=True)
class Span:
    """Where in the text: line and column count from 1."""

    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Base of all expressions. Where it stood in the text does not make it another expression."""

    type: DataType | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """`value` is a Python bool, int, float, decimal.Decimal, str, bytes or None."""

    value: Any


@dataclass(frozen=True, slots=True)
class Name(Node):
    """Unresolved: `column` or `source.column`."""

    name: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnRef(Node):
    """A column of the input node's output, by its name there (see `plan.Node.columns`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A scalar or aggregate function of the function table; `name` in upper case."""

    name: str
    arguments: tuple[Expression, ...]
    function: Function | None = field(default=None, repr=False)
    """Only if it is a Python function: which one is the catalog's to say (`sql.bind`)."""


@dataclass(frozen=True, slots=True)
class OrderItem:
    """What ORDER BY names. Nulls come first, last if descending."""

    expression: Expression
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """`ROWS BETWEEN start AND end`: counted from the row itself, negative before it; None has no bound. Of a RANGE they
    are distances of what the rows are ordered by, and 0 reaches to all that are equal."""

    start: int | None
    end: int | None
    unit: Only["ROWS", "RANGE"] = "ROWS"


@dataclass(frozen=True, slots=True)
class Over(Node):
    """`name(arguments) OVER (PARTITION BY … ORDER BY … ROWS …)`: a function of the rows around, in a pull query. Not a
    `Call`, because it makes no groups."""

    name: str
    arguments: tuple[Expression, ...]
    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    frame: Frame | None = None
    function: Function | None = field(default=None, repr=False)
    """As in `Call`."""

    @property
    def call(self) -> Call:
        """What stands before OVER."""
        return Call(self.name, self.arguments, function=self.function, type=self.type, span=self.span)


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    operator: Only["+", "-", "*", "/", "%"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Negate(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    operator: Only["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Logical(Node):
    operator: Only["AND", "OR"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Not(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    operand: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Between(Node):
    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class In(Node):
    operand: Expression
    options: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Subquery(Node):
    """The only option of an `In`: what its one column holds. Planning a question takes both away."""

    query: Query


@dataclass(frozen=True, slots=True)
class Like(Node):
    operand: Expression
    pattern: Expression
    escape: str | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Case(Node):
    """`operand` only for CASE x WHEN …; the analyser turns that into the searched form."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None
    operand: Expression | None = None


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """To `target`. A value that cannot be converted becomes null."""

    operand: Expression
    target: DataType


@dataclass(frozen=True, slots=True)
class Subscript(Node):
    """`array[i]` counts from 1, from the end with negatives; `map[key]`. Absent is null."""

    base: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Dereference(Node):
    """`struct->field`."""

    base: Expression
    field: str


@dataclass(frozen=True, slots=True)
class ArrayLiteral(Node):
    elements: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class MapLiteral(Node):
    entries: tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True, slots=True)
class StructLiteral(Node):
    fields: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Lambda(Node):
    parameters: tuple[str, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class LambdaVariable(Node):
    name: str


Expression = (
    Literal
    | Name
    | ColumnRef
    | Call
    | Over
    | Arithmetic
    | Negate
    | Comparison
    | Logical
    | Not
    | IsNull
    | Between
    | In
    | Subquery
    | Like
    | Case
    | Cast
    | Subscript
    | Dereference
    | ArrayLiteral
    | MapLiteral
    | StructLiteral
    | Lambda
    | LambdaVariable
)
