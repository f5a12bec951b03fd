"""Is this SQL right? Statements are planned against the catalog and what the statements before them would have made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.sql.api import Statement, plan_query, plan_select, source_from
from headrace.sql.source import Source, Sources
from headrace.sql.statements import CreateAsSelect, CreateSource, Explain, SelectStatement


class Draft:
    """The catalog as it would be."""

    def __init__(self, catalog: Sources) -> None:
        self._catalog = catalog
        self._added: dict[str, Source] = {}

    def source(self, name: str) -> Source | None:
        return self._added.get(name) or self._catalog.source(name)

    def sources(self) -> Iterable[Source]:
        return [*self._catalog.sources(), *self._added.values()]

    def add(self, source: Source) -> None:
        self._added[source.name] = source


def check(statements: Sequence[Statement], catalog: Sources) -> None:
    """`SqlError` at the first that could not be run. Changes nothing."""
    draft = Draft(catalog)
    for statement in statements:
        match statement:
            case CreateSource():
                draft.add(source_from(statement))
            case CreateAsSelect():
                draft.add(plan_query(statement, draft).sink)
            case SelectStatement():
                plan_select(statement, draft)
            case Explain(statement=SelectStatement() as inner):
                plan_select(inner, draft)
            case Explain(statement=CreateAsSelect() as inner):
                plan_query(inner, draft)
            case _:
                pass
