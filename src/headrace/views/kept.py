"""A version that is kept, and whether it is what is wanted: then it serves again, and nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.sql.api import same_definition, same_results
from headrace.sql.plan import PersistentQuery
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect
from headrace.views.versions import Strategy

NOW = "now"
"""A start that is another one each time."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A version that does not serve, and goes on running."""

    number: int
    source: Source
    query: PersistentQuery
    """As it runs: with its own functions, over the versions that it reads."""
    strategy: Strategy = "kappa"
    start: str = "beginning"
    """Where its replay began, as it was asked for."""
    behind: int = 0
    """Records that it has yet to read."""


def find_kept(
    kept: Sequence[Kept], statement: CreateAsSelect, query: PersistentQuery, strategy: Strategy, start: str
) -> Kept | None:
    """The newest one that is what this statement would make: text, functions, what it reads, strategy and start."""
    for one in sorted(kept, key=lambda one: -one.number):
        as_asked = (one.strategy, one.start) == (strategy, start) and start != NOW
        if as_asked and same_definition(one.source.statement, statement) and same_results(one.query, query):
            return one
    return None
