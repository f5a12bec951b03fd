"""Computing what runs again from the log, unchanged: for queries whose checkpoint is lost or is of another log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.events import QueryWanted
from headrace.coordinate.refreshing import serving_version
from headrace.errors import HeadraceError, NotFound, UsageError
from headrace.log.base import Log
from headrace.types import display_name
from headrace.views.change import Plan
from headrace.views.versions import Deployment, Version, query_ids

if TYPE_CHECKING:
    from headrace.coordinate.deployments import Deployments

INSERTS = "INSERT INTO cannot be computed again without repeating its rows: TERMINATE it, and decide where to begin"


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
    """Return the versions that rebuilds have taken over from and stopped. They are no way back."""
    found: list[Version] = []
    for deployment in catalog.deployments():
        if deployment.again and deployment.stage == "switched":
            for version in _older(catalog, deployment):
                queries = [catalog.query(id_) for id_ in query_ids(version)]
                stopped = all(query is None or query.wanted == "stopped" for query in queries)
                if version.state == "retired" and stopped and version not in found:
                    found.append(version)
    return found


def stopped_queries(catalog: Catalog, deployment: Deployment, has_failed: Callable[[str], bool]) -> list[QueryWanted]:
    """Return events that stop the queries of versions that a rebuild takes over from: those before it, and older ones
    that have failed too."""
    before = {(item.name, item.before) for item in deployment.items}
    ids = [
        id_
        for version in _older(catalog, deployment)
        for id_ in query_ids(version)
        if (version.name, version.number) in before or has_failed(id_)
    ]
    return [QueryWanted(id_, "stopped") for id_ in ids if catalog.query(id_) is not None]


def _older(catalog: Catalog, deployment: Deployment) -> list[Version]:
    numbers = deployment.switches()
    return [
        version for name, number in numbers.items() for version in catalog.versions(name) if version.number < number
    ]


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What becomes of the queries of a log that was restored without their checkpoints."""

    cancelled: tuple[int, ...] = ()
    """Deployments that were under way."""
    rebuilt: tuple[str, ...] = ()
    """Streams and tables that are computed again from the log, as soon as the project runs."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Queries that somebody has to decide about, and why."""


def rebuild_all(deployments: Deployments, catalog: Catalog, log: Log) -> Aftermath:
    """Compute everything again that has written to the log, where the log still holds what it is made of."""
    cancelled = [one.id for one in catalog.deployments() if not one.over]
    for number in cancelled:
        deployments.cancel(number)
    ran = [query for query in catalog.queries() if log.last_identity(query.id, query.version) is not None]
    inserts = {query.id: INSERTS for query in ran if query.inserts}
    ids = {query.id for query in ran}
    names = []
    for name in catalog.state.serving:
        version = serving_version(catalog, name)
        if version is not None and ids & set(query_ids(version)):
            names.append(name)
    try:
        started = deployments.rebuild(names, who="restore") if names else None
    except HeadraceError as error:
        why = " ".join(part for part in (f"{error.message}:" if error.detail else error.message, error.detail) if part)
        return Aftermath(tuple(cancelled), (), inserts | dict.fromkeys(map(display_name, names), why))
    rebuilt = [display_name(item.name) for item in started.items] if started is not None else []
    return Aftermath(tuple(cancelled), tuple(rebuilt), inserts)
