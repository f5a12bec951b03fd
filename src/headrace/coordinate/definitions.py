"""Definitions as text: are two the same, and how is one taken back?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.coordinate.catalog import Catalog
from headrace.nearest import did_you_mean
from headrace.sql.api import parse, same_definition
from headrace.sql.clauses import Element, Identifier
from headrace.sql.source import Source
from headrace.sql.statements import CreateSource
from headrace.types import Column, display_name, quote_name

__all__ = ["drop_text", "query_hint", "same_definition", "several", "substitute", "with_columns"]


def substitute(sql: str, variables: Mapping[str, str]) -> str:
    """Variables are gone before a statement is kept: whoever plans it again does not have them. Unknown ones stay, and
    the parser complains."""
    values = {name.upper(): value for name, value in variables.items()}
    return re.sub(r"\$\{([^}]*)\}", lambda found: values.get(found[1].upper(), found[0]), sql) if values else sql


def with_columns(source: Source, added: Sequence[Column]) -> CreateSource:
    """The statement that declares it, with further columns."""
    [statement] = parse(source.statement)
    assert isinstance(statement, CreateSource)
    elements = tuple(Element(Identifier(column.name), column.type) for column in added)
    return replace(statement, elements=statement.elements + elements)


def drop_text(source: Source) -> str:
    """Return the statement that drops a source, to be copied. It keeps the topic: a hint never destroys records."""
    name = quote_name(source.name)
    return f"DROP {source.kind.upper()} {name.lower() if name == source.name else name};"


def several(ids: Sequence[str]) -> str:
    """
    >>> several(["A_1"]), several(["A_1", "B_2"])
    ('A_1 is', 'A_1, B_2 are')
    """
    return f"{', '.join(ids)} {'is' if len(ids) == 1 else 'are'}"


def query_hint(wanted: str, catalog: Catalog) -> str | None:
    """For the id of a query that does not exist: perhaps it is what the query writes."""
    source = catalog.source(wanted)
    if source is not None:
        name = display_name(source.name)
        writer = f"it is written by {source.query}" if source.query else f"DESCRIBE {name}; says what it is"
        return f"`{name}` is a {source.kind};  {writer}"
    return did_you_mean(wanted, [query.id for query in catalog.queries()], "SHOW QUERIES; lists all")
