"""A pull query's rows as a stream of chunks: an answer of any size, in bounded memory.

`pull` makes a whole answer for a request that wants one; here each chunk is made when the one before was taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice

from headrace.deliver.ask.budget import Budget, Chunks, Row, chunked
from headrace.deliver.ask.ordering import sort_rows
from headrace.deliver.ask.reading import Opened, opened
from headrace.deliver.ask.run import evaluate
from headrace.deliver.base import Address, Delivery
from headrace.deliver.pull import Prepared, matcher, prepare
from headrace.deliver.records import stream_rows
from headrace.errors import NotFound
from headrace.sql.ask_plan import AskQuery
from headrace.sql.plan import PullQuery
from headrace.store.rows import names_of
from headrace.types import Column


@dataclass(slots=True)
class RowStream:
    """An open pull query. `chunks` can be read once, while the query is open."""

    columns: tuple[Column, ...]
    reads: tuple[Address, ...]
    chunks: Chunks
    limit: int | None
    truncated: bool = field(default=False, init=False)
    """Whether there were more rows than `limit`; known when all chunks were read."""

    def limited(self) -> Chunks:
        """Return the chunks up to the limit."""
        left = self.limit
        for chunk in self.chunks:
            if left is not None and len(chunk) > left:
                self.truncated = True
                if left:
                    yield chunk[:left]
                return
            left = None if left is None else left - len(chunk)
            yield chunk


def columns_of(query: PullQuery | AskQuery) -> tuple[Column, ...]:
    """Return the columns of the answer, before anything is read."""
    return query.columns if isinstance(query, AskQuery) else prepare(query).answer


@contextmanager
def open_rows(
    delivery: Delivery, query: PullQuery | AskQuery, budget: Budget, limit: int | None = None
) -> Iterator[RowStream]:
    """Open a pull query. The rows of a table are those of one moment, however long they are read."""
    with ExitStack() as stack:
        try:
            found = _open(delivery, query, budget, stack)
        except NotFound:
            # The view was closed between finding and opening it: its successor answers, or says that there is none.
            found = _open(delivery, query, budget, stack)
        reads, chunks = found
        yield RowStream(columns_of(query), reads, chunks, limit)


def _open(
    delivery: Delivery, query: PullQuery | AskQuery, budget: Budget, stack: ExitStack
) -> tuple[tuple[Address, ...], Chunks]:
    if isinstance(query, AskQuery):
        reads = stack.enter_context(opened(delivery, query, budget))
        return tuple(reads.addresses), _evaluated(query, reads, budget)
    prepared = prepare(query)
    address, rows = (
        _open_table(delivery, prepared, budget, stack)
        if query.source.kind == "table"
        else _open_stream(delivery, prepared, budget)
    )
    return (address,), _finished(rows, prepared, budget, query.source.kind == "table")


def _evaluated(query: AskQuery, reads: Opened, budget: Budget) -> Chunks:
    """Evaluate lazily: some operators read everything when they are made, and the header goes out before that."""
    yield from evaluate(query.root, reads, budget)


def _open_table(
    delivery: Delivery, prepared: Prepared, budget: Budget, stack: ExitStack
) -> tuple[Address, Iterator[Row]]:
    query = prepared.query
    view = delivery.views.of_source(query.source)
    scan = stack.enter_context(
        view.scan(prepared.names, query.predicate, prepared.store_order or (), query.limit, budget.left)
    )
    rows = _counted(scan.rows, budget)
    if scan.residual is not None:
        matches = matcher(scan.residual, prepared.needed)
        rows = (row for row in rows if matches(row) is True)
    return Address(query.source.name, view.version, scan.position), rows


def _open_stream(delivery: Delivery, prepared: Prepared, budget: Budget) -> tuple[Address, Iterator[Row]]:
    query = prepared.query
    position, found = stream_rows(delivery.log, query.source, prepared.needed, 20_000)
    rows = _counted(found, budget)
    if query.predicate is not None:
        matches = matcher(query.predicate, prepared.needed)
        rows = (row for row in rows if matches(row) is True)
    return Address(query.source.name, None, position), rows


def _counted(rows: Iterator[Row], budget: Budget) -> Iterator[Row]:
    """Count the rows that are read, for progress, and look at the clock now and then."""
    for chunk in chunked(rows, budget):
        budget.read += len(chunk)
        yield from chunk


def _finished(rows: Iterator[Row], prepared: Prepared, budget: Budget, in_store: bool) -> Chunks:
    """Sort what the store could not sort, then limit and project."""
    if prepared.sort_key is not None and not (in_store and prepared.store_order is not None):
        held: list[Row] = []
        for chunk in chunked(rows, budget):
            budget.hold(chunk)
            held += chunk
        rows = iter(sort_rows(held, prepared.query.order, names_of(prepared.needed)))
    for chunk in chunked(islice(rows, prepared.query.limit), budget):
        yield chunk if prepared.project is None else [prepared.project(row) for row in chunk]
