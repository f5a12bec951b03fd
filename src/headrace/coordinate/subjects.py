"""A version of a view as something to ask about: the table and the plan of the query that keeps it."""

from __future__ import annotations

from headrace.coordinate.base import ViewDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.planning import plan_definition
from headrace.errors import NotFound, UsageError
from headrace.types import display_name
from headrace.views.subject import Subject, over_topic
from headrace.views.versions import Version


def view_subject(catalog: Catalog, view: ViewDefinition, number: int | None = None) -> Subject:
    """The version that serves, or another that is there. `NotFound` for one that is not."""
    versions = {version.number: version for version in catalog.versions(view.name)}
    wanted = view.version if number is None else number
    name = display_name(view.name)
    if wanted not in versions:
        known = ", ".join(str(number) for number in versions)
        raise NotFound(f"there is no version {wanted} of `{name}`", hint=f"there is {known or 'none'}")
    version = versions[wanted]
    if version.source.query is None:
        return over_topic(version.source, version.number)
    subject = _written(catalog, version)
    if subject is None:
        raise UsageError(
            f"the query `{version.source.query}` that wrote `{name}` is gone", hint="its rows are the last it wrote"
        )
    return subject


def source_subject(catalog: Catalog, name: str, topic: str) -> Subject | None:
    """Return the version of a stream or table that has this topic, or that it is declared over; None if no query writes
    it, or several do."""
    found = [version for version in catalog.versions(name) if version.source.topic == topic]
    made = catalog.maker(topic) if found and found[0].source.query is None else None
    return _written(catalog, made or found[0]) if found else None


def _written(catalog: Catalog, version: Version) -> Subject | None:
    source = version.source
    query = catalog.query(source.query) if source.query is not None else None
    if query is None or len(catalog.writers(source)) != 1:
        return None
    # A stream that goes on from a cut shows what came before it too.
    starts, plan = {} if query.layer else query.starts, plan_definition(query, catalog)
    return Subject(source, version.number, plan, query.id, query.version, starts, query.cut)
