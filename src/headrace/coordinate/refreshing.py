"""Refreshing a Lambda view: a new version of the same definition, with a later cut, that takes over in one step.

To whoever reads it is a switch like any other, between two versions that say the same. Nothing is compared, and the
version before is let go soon: it has nothing to go back to.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.layers import check_whole, partitions_apart, refresh_ms
from headrace.coordinate.planning import pinned_sources
from headrace.errors import NotFound, UsageError
from headrace.log.base import Log
from headrace.sql.api import parse, plan_query
from headrace.sql.layered import check_cut
from headrace.sql.statements import CreateAsSelect
from headrace.types import display_name
from headrace.views.change import Change, Wanted
from headrace.views.versions import NONE, Deployment, Item, Version, version_topic

REFRESHES = "refreshes"
KEPT_MS = 60_000
"""How long the version before is kept, so that feeds can cross."""


def refresh_change(log: Log, catalog: Catalog, name: str) -> Change:
    """What refreshing the view does. Refused if it has no layers and was not to have any, or would lose records."""
    version = serving_version(catalog, name)
    query = catalog.query(version.source.query or "") if version is not None else None
    if version is None or query is None:
        raise NotFound(f"no query keeps a table `{display_name(name)}`", hint="headrace view list lists what there is")
    [statement] = parse(query.statement)
    assert isinstance(statement, CreateAsSelect)
    plan = plan_query(statement, pinned_sources(query, catalog))
    if version.layers is None and plan.refresh_ms is None:
        raise UsageError(
            f"`{display_name(name)}` has no batch layer that could be computed again",
            hint="give it one:  REFRESH EVERY 1 HOUR in its statement, or deploy --strategy lambda",
        )
    check_cut(plan, partitions_apart(log))
    check_whole(log, version, query)
    number = catalog.state.view_versions.get(name, 0) + 1
    sink = replace(plan.sink, topic=version_topic(plan.sink.topic, number), partitions=version.source.partitions)
    return Change(
        name,
        "table",
        "rebuilds",
        wanted=Wanted(statement),
        number=number,
        before=version.number,
        old_statement=query.statement,
        source=sink,
        query=replace(plan, sink=sink),
        strategy="lambda",
    )


def waits_for_somebody(deployment: Deployment) -> bool:
    return deployment.stage == "waiting" or deployment.paused


def may_go_beside(catalog: Catalog, deployment: Deployment, name: str) -> bool:
    """Whether a view can be refreshed though this deployment is not over: it waits for somebody, maybe for days, and
    changes neither the view nor what it reads. (Nothing reads a view with layers.)"""
    version = serving_version(catalog, name)
    query = catalog.query(version.source.query or "") if version is not None else None
    names = {name, *(query.sources if query is not None else ())}
    return waits_for_somebody(deployment) and not names & set(deployment.switches())


def is_refresh(deployment: Deployment) -> bool:
    return any(item.verdict == REFRESHES for item in deployment.items)


def refreshed_versions(catalog: Catalog) -> list[Version]:
    """Versions that refreshes have taken over from."""
    found = []
    deployments = catalog.deployments()
    for name, number in catalog.state.serving.items():
        origin = origin_of(deployments, name, number)
        found += [v for v in catalog.versions(name) if v.state == "retired" and origin <= v.number < number]
    return found


def due_refreshes(catalog: Catalog, now_ms: int) -> list[str]:
    """Views whose time has come, by when their batch layer was made. A clock that was set back makes none wait for
    long: what seems to have been made in the future is due."""
    due = []
    for name in sorted(catalog.state.views):
        version = serving_version(catalog, name)
        every = None if version is None else refresh_ms(version.source.statement)
        if version is not None and every is not None:
            made = version.layers.made_ms if version.layers is not None else 0
            if not 0 <= now_ms - max(made, _last_try(catalog, name)) < every:
                due.append(name)
    return due


def _last_try(catalog: Catalog, name: str) -> int:
    """When the newest refresh began: one that failed is tried again when the next is due."""
    tries = [
        d.started_ms for d in catalog.deployments() if any((i.name, i.verdict) == (name, REFRESHES) for i in d.items)
    ]
    return max(tries, default=0)


def serving_version(catalog: Catalog, name: str) -> Version | None:
    return catalog.state.versions.get(name, {}).get(catalog.state.serving.get(name, NONE))


def origin_of(deployments: list[Deployment], name: str, number: int) -> int:
    """The version that the first of the refreshes which led to this one began with."""
    for deployment in reversed(deployments):
        for item in deployment.items:
            if item.verdict == REFRESHES and (item.name, item.number) == (name, number):
                return item.origin
    return number


def refresh_item(catalog: Catalog, change: Change) -> Item:
    origin = origin_of(catalog.deployments(), change.name, change.before)
    text = change.old_statement
    return Item(change.name, REFRESHES, change.number, change.before, text, text, origin)
