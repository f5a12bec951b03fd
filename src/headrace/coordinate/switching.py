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
        f"`{display_name(name)}` is as it was first made, or was rolled back already", hint=_undo_hint(catalog, name)
    )


def _undo_hint(catalog: Catalog, name: str) -> str:
    """Whoever rolls back what was rolled back may want it undone."""
    back = [one for one in catalog.deployments() if one.stage == "rolled back" and name in one.changes()]
    if not back:
        return "headrace history lists what was deployed"
    last = max(back, key=lambda one: (one.changed_ms, -one.id))
    return f"undo the rollback:  headrace deploy restore {last.id}"


def check_kept(catalog: Catalog, deployment: Deployment) -> None:
    """Whether all that served before a deployment is still there, and nothing that serves, or is being built, reads
    what it made."""
    for item in deployment.items:
        if item.before and item.number and item.before not in catalog.state.versions.get(item.name, {}):
            raise Conflict(
                f"version {item.before} of `{display_name(item.name)}` is not kept any more",
                hint=f"build it again:  headrace deploy restore {deployment.id} --before",
            )
    _check_unread(catalog, deployment)
    _check_not_built_on(catalog, deployment)


def _check_unread(catalog: Catalog, deployment: Deployment) -> None:
    """What was made later, and serves, may read what would go."""
    switched = deployment.switches()
    topics = set(_made(catalog, deployment).values())
    for query in catalog.queries():
        version = catalog.version_of(query)
        if version and version.state == "serving" and query.sink not in switched and topics & {*query.reads.values()}:
            raise Conflict(
                f"`{display_name(query.sink)}` reads what deployment {deployment.id} made",
                hint=f"build what was before it again, and switch:  headrace deploy restore {deployment.id} --before",
            )


def _made(catalog: Catalog, deployment: Deployment) -> dict[str, str]:
    """Return the topics of the versions that a deployment made, by name."""
    found = {}
    for item in deployment.items:
        version = catalog.state.versions.get(item.name, {}).get(item.number)
        if version is not None and item.number != item.before:
            found[item.name] = version.source.topic
    return found


def _check_not_built_on(catalog: Catalog, deployment: Deployment) -> None:
    """What is being built may read what would go, or take the place of what would come back."""
    made = {topic: name for name, topic in _made(catalog, deployment).items()}
    names = deployment.changes()
    for running in catalog.deployments():
        if running.over:
            continue
        built = set(_made(catalog, running).values())
        read = {topic for q in catalog.queries() if q.sink_topic in built for topic in q.reads.values()}
        problems = [f"changes `{display_name(name)}`" for name in sorted(names & running.changes())]
        problems += [f"reads `{display_name(made[topic])}`" for topic in sorted(read & made.keys())]
        if problems:
            raise Conflict(
                f"deployment {running.id} is {running.stage}, and {problems[0]}",
                hint=f"wait for it, or end it:  headrace deploy cancel {running.id}",
            )


def switch_problem(catalog: Catalog, deployment: Deployment) -> str | None:
    """Why what a deployment has built must not serve: two versions of one name would be read, one of them for good.
    Statements are refused that would lead there, so this is for what nobody thought of."""
    changes = deployment.changes()
    made = _made(catalog, deployment)
    refreshed = {item.name for item in deployment.items if item.origin}
    after = {name: source.topic for name, source in catalog.state.sources.items() if name not in changes}
    after |= made
    for query in catalog.queries():
        version, sink = catalog.version_of(query), display_name(query.sink)
        stale = [display_name(name) for name, topic in query.reads.items() if after.get(name) != topic]
        if not stale or version is None or query.transient or query.sink in refreshed:
            continue
        if query.sink_topic in made.values():
            return f"`{sink}` was built from a version of `{stale[0]}` that does not serve any more"
        if version.state == "serving" and query.sink not in changes and changes & query.reads.keys():
            who = f"`{sink}`" if version.source.query == query.id else query.id
            replaced = next(name for name in query.reads if name in changes)
            return f"{who} reads the version of `{display_name(replaced)}` that this would replace"
    return None
