"""Computing what runs again from the log, unchanged: for queries whose checkpoint is lost or is of another log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.refreshing import serving_version
from headrace.errors import NotFound, UsageError
from headrace.types import display_name
from headrace.views.change import Plan
from headrace.views.versions import Version


def definition_text(catalog: Catalog, name: str) -> str:
    """Return the statement that a name runs with. `UsageError` if no query writes it."""
    version, source = serving_version(catalog, name), catalog.source(name)
    if source is None:
        raise NotFound(f"`{display_name(name)}` does not exist", hint="headrace view list lists what does")
    query = catalog.query((version.source if version is not None else source).query or "")
    if query is None:
        raise UsageError(
            f"`{display_name(name)}` is declared over topic `{source.topic}`: there is nothing to compute",
            hint="name a stream or table of CREATE … AS SELECT",
        )
    return f"{query.statement.rstrip().removesuffix(';')};"


def losses_of(plan: Plan) -> Iterator[str]:
    """Return what versions that are computed again cannot have, because the log no longer holds it."""
    for change in plan.changes:
        if change.verdict == "rebuilds":
            for note in change.warnings:
                if "are gone" in note or "is compacted" in note:
                    yield f"{display_name(change.name)}: {note}"


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["A", "B"])
    '`a`, `b`'
    """
    return ", ".join(f"`{display_name(name)}`" for name in names)


def rebuilt_versions(catalog: Catalog) -> list[Version]:
    """Return the versions that rebuilds have taken over from. Their queries cannot go on, so they are no way back."""
    found = []
    for deployment in catalog.deployments():
        if deployment.again and deployment.stage == "switched":
            known = catalog.state.versions
            before = (known.get(item.name, {}).get(item.before) for item in deployment.items)
            found += [version for version in before if version is not None and version.state == "retired"]
    return found
