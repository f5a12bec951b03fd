"""Which version serves: the events that switch to a deployment's versions or back, and what forbids going back."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.events import DeploymentSaved, Event, VersionsSwitched
from headrace.coordinate.refreshing import origin_of
from headrace.errors import Conflict
from headrace.types import display_name
from headrace.views.versions import NONE, Deployment, Stage


def switch_events(
    catalog: Catalog, deployment: Deployment, versions: Mapping[str, int], stage: Stage, now_ms: int
) -> list[Event]:
    """All names at once, in one append."""
    known = catalog.state.versions
    moved = {
        name: number
        for name, number in versions.items()
        if number != catalog.state.serving.get(name, NONE) and (number in known.get(name, {}) or not number)
    }
    saved = msgspec.structs.replace(deployment, stage=stage, changed_ms=now_ms)
    return [VersionsSwitched(moved, now_ms, deployment.id), DeploymentSaved(saved)]


def made_by(catalog: Catalog, name: str) -> Deployment:
    """The deployment that what serves under a name came with, and that can be taken back."""
    serving = origin_of(catalog.deployments(), name, catalog.state.serving.get(name, NONE))
    for deployment in reversed(catalog.deployments()):
        for item in deployment.items:
            changed = item.name == name and item.number != item.before
            if deployment.stage == "switched" and changed and item.number == serving:
                return deployment
    raise Conflict(
        f"`{display_name(name)}` is as it was first made, or was rolled back already",
        hint="headrace history lists what was deployed",
    )


def check_kept(catalog: Catalog, deployment: Deployment) -> None:
    """Whether all that served before a deployment is still there, and nothing that serves reads what it made."""
    for item in deployment.items:
        if item.before and item.number and item.before not in catalog.state.versions.get(item.name, {}):
            raise Conflict(
                f"version {item.before} of `{display_name(item.name)}` is not kept any more",
                hint=f"build it again:  headrace deploy restore {deployment.id} --before",
            )
    _check_unread(catalog, deployment)


def _check_unread(catalog: Catalog, deployment: Deployment) -> None:
    """What was made later, and serves, may read what would go."""
    switched = deployment.switches()
    topics = {
        version.source.topic
        for name, number in switched.items()
        if (version := catalog.state.versions.get(name, {}).get(number)) is not None
        and number != deployment.switches_back()[name]
    }
    for query in catalog.queries():
        version = catalog.version_of(query)
        if version and version.state == "serving" and query.sink not in switched and topics & {*query.reads.values()}:
            raise Conflict(
                f"`{display_name(query.sink)}` reads what deployment {deployment.id} made",
                hint=f"first:  headrace view rollback {display_name(query.sink)}, or drop it",
            )
