"""A view of the catalog as something to ask about: the table and the plan of the query that keeps it."""

from __future__ import annotations

from headrace.coordinate.base import ViewDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.planning import plan_definition
from headrace.errors import NotFound, UsageError
from headrace.types import display_name
from headrace.views.subject import Subject, over_topic


def view_subject(catalog: Catalog, view: ViewDefinition, version: int | None = None) -> Subject:
    """`NotFound` for a version that does not serve."""
    source = catalog.source(view.name)
    name = display_name(view.name)
    if source is None:
        raise NotFound(f"table `{name}` does not exist")
    if version is not None and version != view.version:
        raise NotFound(f"`{name}` v{version} does not serve", hint=f"v{view.version} does")
    if view.query_id is None:
        return over_topic(source, view.version)
    subject = source_subject(catalog, view.name)
    if subject is None:
        raise UsageError(
            f"the query `{view.query_id}` that wrote `{name}` is gone", hint="its rows are the last it wrote"
        )
    return subject


def source_subject(catalog: Catalog, name: str) -> Subject | None:
    """A stream or table that a query writes; None if none does, or several do."""
    source = catalog.source(name)
    query = catalog.query(source.query) if source is not None and source.query is not None else None
    if source is None or query is None or len(catalog.writers(source)) != 1:
        return None
    view = catalog.view(name)
    version = view.version if view is not None else query.version
    return Subject(source, version, plan_definition(query, catalog), query.id, query.version, query.starts)
