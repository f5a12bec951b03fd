"""JOIN: by a hash of what must be equal, checking the rest; without an equality every pair is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.deliver.ask.budget import ROWS_PER_CHUNK, Budget, Chunks, Row
from headrace.sql.ask_plan import Pair
from headrace.sql.expressions import ColumnRef, Comparison, Expression, Literal
from headrace.sql.functions.arrays import hashable
from headrace.sql.walk import conjunction, conjuncts, walk
from headrace.store.rows import names_of, over_rows, project_rows


def pair_rows(node: Pair, left: Chunks, right: Chunks, budget: Budget) -> Chunks:
    """The right side is held; the left one passes by it, in its order."""
    return _in_chunks(_pairs(node, left, _Held(node, right, budget), budget), budget)


def _in_chunks(batches: Iterator[list[Row]], budget: Budget) -> Chunks:
    waiting: list[Row] = []
    for batch in batches:
        waiting += batch
        if len(waiting) >= ROWS_PER_CHUNK:
            budget.look()
            yield waiting
            waiting = []
    if waiting:
        yield waiting


class _Held:
    """The right side by the key it is joined by. Null equals nothing, so a row with one is in no list."""

    def __init__(self, node: Pair, chunks: Chunks, budget: Budget) -> None:
        left_keys, right_keys, rest = equalities(node)
        self.left_key = project_rows(left_keys, names_of(node.left.columns))
        right_key = project_rows(right_keys, names_of(node.right.columns))
        self.matches = None if rest is None else over_rows(rest, names_of(node.columns))
        self.by_key: dict[Any, list[int]] = {}
        self.rows: list[Row] = []
        for chunk in chunks:
            budget.hold(chunk)
            for row in chunk:
                key = right_key(row)
                if None not in key:
                    self.by_key.setdefault(_known(key), []).append(len(self.rows))
                self.rows.append(row)

    def partners(self, row: Row) -> list[int]:
        key = self.left_key(row)
        return [] if None in key else self.by_key.get(_known(key), [])


def _known(key: tuple[Any, ...]) -> Any:
    return tuple(hashable(part) for part in key)


def _pairs(node: Pair, left: Chunks, held: _Held, budget: Budget) -> Iterator[list[Row]]:
    keep_left, keep_right = node.kind in ("left", "full"), node.kind in ("right", "full")
    no_right: Row = (None,) * len(node.right.columns)
    no_left: Row = (None,) * len(node.left.columns)
    met: set[int] = set()
    seen = 0
    for chunk in left:
        budget.look()
        for row in chunk:
            partners = held.partners(row)
            found: list[Row] = []
            for place in partners:
                pair = row + held.rows[place]
                if held.matches is None or held.matches(pair) is True:
                    found.append(pair)
                    if keep_right:
                        met.add(place)
            seen += len(partners)
            if seen > ROWS_PER_CHUNK:
                seen = 0
                budget.look()
            if found:
                yield found
            elif keep_left:
                yield [row + no_right]
    if keep_right:
        yield [no_left + row for place, row in enumerate(held.rows) if place not in met]


def equalities(node: Pair) -> tuple[list[Expression], list[Expression], Expression | None]:
    """What must be equal, as expressions over the left and over the right side, and the rest of the condition."""
    left, right = ({column.name for column in side.columns} for side in (node.left, node.right))
    on_left: list[Expression] = []
    on_right: list[Expression] = []
    rest: list[Expression] = []
    for part in conjuncts(node.condition):
        sides = _sides(part, left, right)
        if sides is not None:
            on_left.append(sides[0])
            on_right.append(sides[1])
        elif not (isinstance(part, Literal) and part.value is True):
            rest.append(part)
    return on_left, on_right, conjunction(rest)


def _sides(part: Expression, left: set[str], right: set[str]) -> tuple[Expression, Expression] | None:
    if not isinstance(part, Comparison) or part.operator != "=":
        return None
    one, other = _names(part.left), _names(part.right)
    if one and other and one <= left and other <= right:
        return part.left, part.right
    if one and other and one <= right and other <= left:
        return part.right, part.left
    return None


def _names(expression: Expression) -> set[str]:
    return {node.name for node in walk(expression) if isinstance(node, ColumnRef)}
