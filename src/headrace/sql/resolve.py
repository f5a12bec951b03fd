"""Names → columns, nodes → typed nodes. Implicit conversions become `Cast`s; constants are converted here and now."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import SqlError
from headrace.sql import datetimes
from headrace.sql.calls import resolve_call
from headrace.sql.casting import boolean_word, caster
from headrace.sql.coerce import (
    arithmetic_type,
    as_decimal,
    castable,
    common_type,
    is_nested,
    is_number,
    is_ordered,
    literal_type,
)
from headrace.sql.expressions import (
    Arithmetic,
    ArrayLiteral,
    Between,
    Call,
    Case,
    Cast,
    ColumnRef,
    Comparison,
    Dereference,
    Expression,
    In,
    IsNull,
    Lambda,
    LambdaVariable,
    Like,
    Literal,
    Logical,
    MapLiteral,
    Name,
    Negate,
    Not,
    Over,
    StructLiteral,
    Subquery,
    Subscript,
)
from headrace.sql.implicit import convert
from headrace.sql.named_types import known_type
from headrace.sql.over import resolve_over
from headrace.sql.resolve_case import resolve_case
from headrace.sql.resolve_nested import resolve_dereference, resolve_map, resolve_struct, resolve_subscript
from headrace.sql.scope import TIME_COLUMNS, Scope
from headrace.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    INTEGER,
    TIME,
    TIMESTAMP,
    VARCHAR,
    Array,
    DataType,
)

_TEMPORAL = (DATE, TIME, TIMESTAMP)


def resolve(expression: Expression, scope: Scope, aggregates: str | None = None) -> Expression:
    """The expression with types. NULL alone keeps type None: what it stands in decides. `aggregates` names the clause
    if no aggregate may stand there."""
    return Resolver(scope, aggregates).resolve(expression)


def resolve_predicate(expression: Expression, scope: Scope, clause: str, aggregates: str | None) -> Expression:
    """As `resolve`; must be BOOLEAN, and only whether it is true counts."""
    resolver = Resolver(scope, aggregates)
    if isinstance(expression, Literal) and expression.value is None:
        raise resolver.error(f"{clause} needs BOOLEAN, got NULL", expression)
    return resolver.condition(expression, clause)


class Resolver:
    """One walk over one expression."""

    def __init__(self, scope: Scope, aggregates: str | None) -> None:
        self.scope = scope
        self.aggregates = aggregates

    def inside(self, scope: Scope, aggregates: str | None) -> Resolver:
        return Resolver(scope, aggregates)

    def resolve(self, node: Expression) -> Expression:
        match node:
            case Literal():
                return replace(node, type=literal_type(node.value)) if node.type is None else node
            case Name():
                return self.scope.column(node)
            case ColumnRef():
                return node
            case LambdaVariable():
                return replace(node, type=self.scope.variables[node.name])
            case Call():
                return resolve_call(node, self)
            case Arithmetic():
                return self._arithmetic(node)
            case Negate():
                return self._negate(node)
            case In() | Between() if node.negated:
                return self._opposite(node)
            case Comparison() | Between() | In() | Like():
                return _never_null(self._predicate(node))
            case Logical():
                left, right = self.resolve(node.left), self.resolve(node.right)
                return replace(
                    node,
                    left=self.boolean(left, node.operator),
                    right=self.boolean(right, node.operator),
                    type=BOOLEAN,
                )
            case Not():
                return replace(node, operand=self.boolean(self.resolve(node.operand), "NOT"), type=BOOLEAN)
            case IsNull():
                operand = self.resolve(node.operand)
                return replace(node, operand=operand if operand.type else convert(operand, VARCHAR), type=BOOLEAN)
            case Case():
                return resolve_case(node, self)
            case Cast():
                return self._cast(node)
            case Subscript():
                return resolve_subscript(node, self)
            case Dereference():
                return resolve_dereference(node, self)
            case ArrayLiteral():
                elements = self.unify([self.resolve(element) for element in node.elements], "an array", node)
                assert elements[0].type is not None
                return replace(node, elements=tuple(elements), type=Array(elements[0].type))
            case MapLiteral():
                return resolve_map(node, self)
            case StructLiteral():
                return resolve_struct(node, self)
            case Over():
                return resolve_over(node, self)
            case Subquery():
                hint = "it is for WHERE of a SELECT without EMIT, with nothing but AND around it"
                raise self.scope.error("IN (SELECT …) cannot stand here", node.span, hint)
            case Lambda():
                raise self.scope.error("a lambda can only be an argument of a function that takes one", node.span)

    def condition(self, node: Expression, what: str) -> Expression:
        """A node of which only counts whether it is true, so that null need not be told from false."""
        if isinstance(node, Logical):
            left, right = self.condition(node.left, node.operator), self.condition(node.right, node.operator)
            return replace(node, left=left, right=right, type=BOOLEAN)
        if isinstance(node, In | Between) and node.negated:
            return self._opposite(node)
        if isinstance(node, Comparison | Between | In | Like):
            return self._predicate(node)
        return self.boolean(self.resolve(node), what)

    def _opposite(self, node: In | Between) -> Expression:
        """As in KSQL, NOT IN and NOT BETWEEN are true wherever the test without NOT is not, also about null."""
        return Not(_never_null(self._predicate(replace(node, negated=False))), type=BOOLEAN, span=node.span)

    def _predicate(self, node: Comparison | Between | In | Like) -> Expression:
        match node:
            case Comparison():
                return self._comparison(node)
            case Between():
                return self._between(node)
            case In():
                return self._in(node)
            case Like():
                return self._like(node)

    def boolean(self, node: Expression, what: str) -> Expression:
        if node.type is None:
            return convert(node, BOOLEAN)
        if node.type != BOOLEAN:
            raise self.scope.error(f"{what} needs BOOLEAN, got {node.type}", node.span)
        return node

    def unify(self, nodes: list[Expression], what: str, whole: Expression) -> list[Expression]:
        """All of one type: the one they have in common. Text constants become what the others are."""
        if not nodes:
            raise self.scope.error(f"{what} cannot be empty", whole.span)
        typed = [node for node in nodes if node.type is not None]
        deciding = [node for node in typed if not (isinstance(node, Literal) and node.type == VARCHAR)] or typed
        if any(node.type == VARCHAR for node in deciding):
            # Beside text that is not constant, other constants become text.
            deciding = [node for node in deciding if node.type == VARCHAR or not isinstance(node, Literal)]
        if not deciding:
            raise self.scope.error(f"the type of {what} of NULLs is not known", whole.span, "CAST one of them")
        shared = deciding[0].type
        for node in deciding[1:]:
            assert shared is not None
            assert node.type is not None
            wider = common_type(shared, node.type)
            if wider is None:
                raise self.scope.error(f"{what} cannot have both {shared} and {node.type}", node.span, _cast_hint(node))
            shared = wider
        assert shared is not None
        return [self._in_shared(node, shared, what) for node in nodes]

    def _in_shared(self, node: Expression, shared: DataType, what: str) -> Expression:
        try:
            return self.constant(node, shared) or convert(node, shared)
        except SqlError as error:
            error.detail = f"{what} has one type, and the others say {shared}"
            raise

    def constant(self, node: Expression, target: DataType) -> Expression | None:
        """A text constant as a constant of another type; None if it is nothing of the kind."""
        if not isinstance(node, Literal) or node.type != VARCHAR or target == VARCHAR:
            return None
        if not castable(VARCHAR, target):
            raise self.scope.error(f"expected {target}, got VARCHAR", node.span)
        try:
            convert_text = boolean_word if target == BOOLEAN else caster(VARCHAR, target)
            return replace(node, value=convert_text(node.value), type=target)
        except (ValueError, ArithmeticError):
            raise self.scope.error(f"`{node.value}` is not {target}", node.span) from None

    def _arithmetic(self, node: Arithmetic) -> Expression:
        left, right = self.resolve(node.left), self.resolve(node.right)
        if node.operator == "+" and left.type == VARCHAR and right.type == VARCHAR:
            return Call("CONCAT", (left, right), type=VARCHAR, span=node.span)
        if left.type is None or right.type is None:
            message = f"`{node.operator}` is not defined for {left.type or 'NULL'} and {right.type or 'NULL'}"
            hint = f"say which type it has:  CAST(NULL AS {left.type or right.type or INTEGER})"
            raise self.scope.error(message, (right if right.type is None else left).span, hint)
        result = arithmetic_type(node.operator, left.type, right.type)
        if result is None:
            wrong = left if not is_number(left.type) else right
            message = f"`{node.operator}` is not defined for {left.type} and {right.type}"
            raise self.scope.error(message, wrong.span, _cast_hint(wrong))
        shared = common_type(left.type, right.type)
        # Decimals are computed exactly from their own scales; converting them first could only lose digits.
        if shared in (BIGINT, INTEGER) or shared == result:
            left, right = convert(left, result), convert(right, result)
        else:
            left, right = _to_decimal(left), _to_decimal(right)
        return replace(node, left=left, right=right, type=result)

    def _negate(self, node: Negate) -> Expression:
        operand = self.resolve(node.operand)
        operand = operand if operand.type else convert(operand, INTEGER)
        if not is_number(operand.type):
            raise self.scope.error(f"`-` is not defined for {operand.type}", operand.span)
        return replace(node, operand=operand, type=operand.type)

    def _comparison(self, node: Comparison) -> Expression:
        left, right = self.resolve(node.left), self.resolve(node.right)
        for side in (left, right):
            if side.type is None and "DISTINCT" not in node.operator:
                raise self.scope.error("comparing with NULL is never true", side.span, "use IS NULL or IS NOT NULL")
        left, right = self._compared(left, right, node.operator)
        return replace(node, left=left, right=right, type=BOOLEAN)

    def _compared(self, left: Expression, right: Expression, operator: str) -> tuple[Expression, Expression]:
        """Both sides with one type that the operator is defined for."""
        left, right = self._temporal(left, right), self._temporal(right, left)
        if left.type is None or right.type is None:
            known = left.type or right.type or VARCHAR
            return convert(left, known), convert(right, known)
        shared = common_type(left.type, right.type)
        equality = operator in ("=", "<>") or "DISTINCT" in operator
        if shared is None or not (equality or is_ordered(shared)):
            message = f"cannot compare {left.type} with {right.type} by `{operator}`"
            if shared is not None:
                message = f"{shared} has no order: `{operator}` is not defined for it"
            raise self.scope.error(message, right.span, _cast_hint(right) if shared is None else None)
        return convert(left, shared), convert(right, shared)

    def _temporal(self, node: Expression, other: Expression) -> Expression:
        """As `_moment`; and text that is not constant is read as a date or a time row by row."""
        if node.type == VARCHAR and other.type in _TEMPORAL and not isinstance(node, Literal):
            return convert(node, other.type)
        return self._moment(node, other)

    def _moment(self, node: Expression, other: Expression) -> Expression:
        """A text constant compared with a date or a time becomes one; with ROWTIME and window bounds, milliseconds."""
        if not isinstance(node, Literal) or node.type != VARCHAR or node.value is None:
            return node
        if other.type in _TEMPORAL:
            return self.constant(node, other.type) or node
        if isinstance(other, ColumnRef) and other.name in TIME_COLUMNS and other.type == BIGINT:
            try:
                return replace(node, value=datetimes.parse_moment(node.value), type=BIGINT)
            except (ValueError, OverflowError):
                hint = "such as '2026-11-15T14:00:00'"
                raise self.scope.error(f"`{node.value}` is not a timestamp", node.span, hint) from None
        return node

    def _between(self, node: Between) -> Expression:
        operand, low, high = (self.resolve(part) for part in (node.operand, node.low, node.high))
        low, high = self._temporal(low, operand), self._temporal(high, operand)
        operand = self._temporal(operand, low)
        for bound in (low, high):
            if {operand.type, bound.type} > {VARCHAR} and None not in (operand.type, bound.type):
                hint = "convert one side with CAST(… AS …)"
                raise self.scope.error(f"cannot compare {operand.type} with {bound.type} by BETWEEN", node.span, hint)
        operand, low, high = self.unify([operand, low, high], "BETWEEN", node)
        if operand.type is None or not is_ordered(operand.type):
            raise self.scope.error(f"{operand.type} has no order: BETWEEN is not defined for it", node.span)
        return replace(node, operand=operand, low=low, high=high, type=BOOLEAN)

    def _in(self, node: In) -> Expression:
        operand = self.resolve(node.operand)
        options = [self._moment(self.resolve(option), operand) for option in node.options]
        operand, *unified = self.unify([operand, *options], "IN", node)
        return replace(node, operand=operand, options=tuple(unified), type=BOOLEAN)

    def _like(self, node: Like) -> Expression:
        operand, pattern = self.resolve(node.operand), self.resolve(node.pattern)
        for part in (operand, pattern):
            if part.type not in (VARCHAR, None):
                raise self.scope.error(
                    f"LIKE needs VARCHAR, got {part.type}", part.span, "CAST(… AS VARCHAR) makes it text"
                )
        return replace(node, operand=convert(operand, VARCHAR), pattern=convert(pattern, VARCHAR), type=BOOLEAN)

    def _cast(self, node: Cast) -> Expression:
        operand, target = self.resolve(node.operand), known_type(node.target, self.scope.types, self.scope.script)
        if operand.type is None:
            return Literal(None, type=target, span=node.span)
        if not castable(operand.type, target):
            raise self.scope.error(f"cannot cast {operand.type} to {target}", node.span)
        return replace(node, operand=operand, target=target, type=target)

    def error(self, message: str, node: Expression, hint: str | None = None) -> SqlError:
        return self.scope.error(message, node.span, hint)


def _never_null(node: Expression) -> Expression:
    """As in KSQL, a comparison with null is false."""
    if isinstance(node, Comparison) and "DISTINCT" in node.operator:
        return node
    return Call("COALESCE", (node, Literal(False, type=BOOLEAN)), type=BOOLEAN, span=node.span)


def _to_decimal(node: Expression) -> Expression:
    assert node.type is not None
    target = as_decimal(node.type)
    assert target is not None
    return convert(node, target)


def _cast_hint(node: Expression) -> str | None:
    return None if node.type is None or is_nested(node.type) else "convert one side with CAST(… AS …)"
