"""Public topics: which versions still write one, and moving them to topics of their own.

The first version of a name writes the public topic itself, which costs nothing. Before another version serves, its
topic is forked: the version, and whoever reads it, goes on in the fork, and the public topic belongs to the publisher
(`publishing`). docs/decisions/0160.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.events import TopicForked
from headrace.log.base import Log
from headrace.views.public import public_topic
from headrace.views.versions import Version, version_topic


def direct_writer(catalog: Catalog, name: str) -> Version | None:
    """Return the version of a name whose query writes the public topic itself."""
    for version in catalog.versions(name):
        source = version.source
        if source.query is not None and version.layers is None and source.topic == public_topic(source):
            return version
    return None


def fork_public(log: Log, catalog: Catalog, names: Iterable[str]) -> list[TopicForked]:
    """Fork the public topics that versions of these names write; the events that have to follow."""
    events = []
    if "fork" not in log.capabilities:
        return []
    for name in names:
        if (version := direct_writer(catalog, name)) is not None:
            topic = version.source.topic
            fork = version_topic(topic, version.number)
            writers = [(query.id, query.version) for query in catalog.queries() if query.sink_topic == topic]
            log.fork_topic(topic, fork, writers)
            events.append(TopicForked(topic, fork))
    return events


def superseded_writers(catalog: Catalog) -> list[str]:
    """Return the names of which another version serves than the one that writes the public topic."""
    found = []
    for name, number in catalog.state.serving.items():
        version = direct_writer(catalog, name)
        serving = catalog.state.versions.get(name, {}).get(number)
        if version is not None and serving is not None and serving.source.query and version.number != number:
            found.append(name)
    return found


def half_forked(log: Log, catalog: Catalog) -> list[str]:
    """Return the names whose public topic was forked, which the catalog does not know yet."""
    forks = {topic.forked_from for topic in log.topics() if topic.forked_from}
    ids = {topic.name: topic.id for topic in log.topics()} if forks else {}
    written = ((name, direct_writer(catalog, name)) for name in catalog.state.versions) if forks else ()
    return [name for name, version in written if version is not None and ids.get(version.source.topic) in forks]
