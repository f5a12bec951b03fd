"""Versions that are kept for a rollback, and who still needs them."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.coordinate.catalog import Catalog
from headrace.errors import Conflict
from headrace.types import display_name
from headrace.views.versions import Deployment, Version


def refuse_if_needed(catalog: Catalog, versions: Sequence[Version]) -> None:
    """Raise `Conflict` if a deployment, a declared source or a kept version needs one of the versions."""
    for version in versions:
        if (running := find_deployment_to(catalog, version)) is not None:
            raise Conflict(
                f"deployment {running.id} is to let version {version.number} of "
                f"`{display_name(version.name)}` serve again",
                hint=f"wait for it, or end it:  headrace deploy cancel {running.id}",
            )
    going = {version.source.query for version in versions}
    for source in catalog.sources():
        over = [one for one in versions if one.source.query is not None and one.source.topic == source.topic]
        if over and source.query is None:
            raise Conflict(
                f"version {over[0].number} of `{display_name(over[0].name)}` is what `{display_name(source.name)}` "
                "reads",
                hint="bring it to the version that serves:  headrace deploy",
            )
    for query in catalog.queries():
        read = [version for version in versions if version.source.topic in query.reads.values()]
        if read and query.id not in going:
            reader = display_name(query.sink)
            raise Conflict(
                f"version {read[0].number} of `{display_name(read[0].name)}` is read by a version of `{reader}` "
                "that is kept, too",
                hint=f"first:  headrace view forget {reader}",
            )


def find_deployment_to(catalog: Catalog, version: Version) -> Deployment | None:
    """Return the deployment under way that lets a version serve."""
    running = (one for one in catalog.deployments() if not one.over)
    return next((one for one in running if one.switches().get(version.name) == version.number), None)


def find_unneeded(catalog: Catalog, versions: Sequence[Version]) -> list[Version]:
    """Return those that are still as they were when they were looked at, that nobody else reads, and that no
    deployment lets serve."""
    going = {version.source.query for version in versions}
    read = {topic for q in catalog.queries() if q.id not in going for topic in q.reads.values()}
    declared = {source.topic for source in catalog.sources() if source.query is None}
    kept = [one for one in catalog.beside() if one in versions and find_deployment_to(catalog, one) is None]
    return [one for one in kept if one.source.topic not in read | (declared if one.source.query else set())]
