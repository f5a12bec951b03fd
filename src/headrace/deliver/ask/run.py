"""Evaluates a question's plan: one function per node, rows in chunks from the bottom up."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice, zip_longest

from headrace.deliver.ask.around import around_rows
from headrace.deliver.ask.budget import Budget, Chunks, Row, chunked
from headrace.deliver.ask.grouping import group_rows
from headrace.deliver.ask.ordering import sort_key, sort_rows
from headrace.deliver.ask.pairing import pair_rows
from headrace.deliver.ask.reading import Opened, opened
from headrace.deliver.base import Address, Delivery
from headrace.errors import NotFound
from headrace.sql.ask_plan import (
    Around,
    AskNode,
    AskQuery,
    Cut,
    Expand,
    Group,
    Pair,
    Read,
    Select,
    Sort,
    Unique,
    Where,
)
from headrace.sql.evaluate import compile_expression
from headrace.sql.expressions import ColumnRef
from headrace.sql.functions.arrays import hashable
from headrace.store.rows import names_of, over_rows, project_rows


def ask_rows(delivery: Delivery, query: AskQuery, budget: Budget, most: int) -> tuple[list[Row], list[Address]]:
    """At most so many rows, and what they were made of."""
    try:
        return _ask(delivery, query, budget, most)
    except NotFound:
        # A view that was closed under us has been replaced (filled again, a new version): the answer is there. One that
        # is not served at all says so again.
        budget.held = 0
        return _ask(delivery, query, budget, most)


def _ask(delivery: Delivery, query: AskQuery, budget: Budget, most: int) -> tuple[list[Row], list[Address]]:
    with opened(delivery, query, budget) as reads:
        rows = list(islice(_flat(evaluate(query.root, reads, budget)), most))
        return rows, reads.addresses


def _flat(chunks: Chunks) -> Iterator[Row]:
    for chunk in chunks:
        yield from chunk


def evaluate(node: AskNode, reads: Opened, budget: Budget) -> Chunks:
    match node:
        case Read():
            return reads.chunks(node)
        case Pair():
            return pair_rows(node, evaluate(node.left, reads, budget), evaluate(node.right, reads, budget), budget)
        case Cut(Sort() as sort, int(limit), offset):
            return _first(sort, evaluate(sort.input, reads, budget), limit, offset, budget)
        case _:
            return _above(node, evaluate(node.input, reads, budget), budget)


def _above(
    node: Where | Expand | Group | Around | Select | Unique | Sort | Cut, chunks: Chunks, budget: Budget
) -> Chunks:
    match node:
        case Where():
            return _where(node, chunks)
        case Select():
            return _select(node, chunks)
        case Expand():
            return _expand(node, chunks)
        case Group():
            return group_rows(node, chunks, budget)
        case Around():
            return around_rows(node, chunks, budget)
        case Unique():
            return _unique(chunks, budget)
        case Sort():
            return _sort(node, chunks, budget)
        case Cut():
            end = None if node.limit is None else node.offset + node.limit
            return chunked(islice(_flat(chunks), node.offset, end), budget)


def _where(node: Where, chunks: Chunks) -> Chunks:
    matches = over_rows(node.predicate, names_of(node.input.columns))
    for chunk in chunks:
        rows = [row for row in chunk if matches(row) is True]
        if rows:
            yield rows


def _select(node: Select, chunks: Chunks) -> Chunks:
    names = names_of(node.input.columns)
    if [item.expression.name for item in node.items if isinstance(item.expression, ColumnRef)] == list(names):
        return chunks
    project = project_rows([item.expression for item in node.items], names)
    return ([project(row) for row in chunk] for chunk in chunks)


def _expand(node: Expand, chunks: Chunks) -> Chunks:
    """As many rows as the longest list has elements."""
    names = names_of(node.input.columns)
    functions = [compile_expression(named.expression) for named in node.functions]
    for chunk in chunks:
        rows: list[Row] = []
        for row in chunk:
            by_name = dict(zip(names, row, strict=True))
            lists = [function(by_name) or [] for function in functions]
            rows += [row + more for more in zip_longest(*lists)]
        if rows:
            yield rows


def _unique(chunks: Chunks, budget: Budget) -> Chunks:
    seen: set[Row] = set()
    for chunk in chunks:
        fresh = []
        for row in chunk:
            known = tuple(map(hashable, row))
            if known not in seen:
                seen.add(known)
                fresh.append(row)
        budget.hold(fresh)
        if fresh:
            yield fresh


def _sort(node: Sort, chunks: Chunks, budget: Budget) -> Chunks:
    rows: list[Row] = []
    for chunk in chunks:
        budget.hold(chunk)
        rows += chunk
    return chunked(iter(sort_rows(rows, node.order, names_of(node.columns))), budget)


def _first(node: Sort, chunks: Chunks, limit: int, offset: int, budget: Budget) -> Chunks:
    """Only the first rows are kept while the others pass."""
    key = sort_key(node.order, names_of(node.columns))
    rows = heapq.nsmallest(limit + offset, _flat(_counted(chunks, limit + offset, budget)), key=key)
    return chunked(iter(rows[offset:]), budget)


def _counted(chunks: Chunks, most: int, budget: Budget) -> Chunks:
    """Of rows that pass, at most so many are held."""
    for chunk in chunks:
        budget.hold(chunk[: max(0, most)])
        most -= len(chunk)
        yield chunk
