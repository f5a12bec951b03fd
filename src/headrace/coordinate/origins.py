"""What two versions read, and what that is made of.

A record that is made of another one arrives later than that, so one arrival number is not the same records for a
version that reads a stream and one that reads what it is made of. Where the version that serves reads what is derived,
its place is followed back to the other's inputs (`inputs_below`); the other way round nothing can be followed: whoever
writes a derived stream for what serves ends its batches where it likes.
"""

from __future__ import annotations

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.chains import Chain, NotComparable, query_of
from headrace.types import display_name


def check_origins(catalog: Catalog, chain: Chain) -> None:
    """Raise if a version that waits reads something derived, in place of what the one that serves reads."""
    before, now = serving_topics(catalog, chain), waiting_topics(chain)
    origins = frozenset(topic for read in before for topic in with_origins(catalog, read))
    for topic in sorted(now - origins):
        hidden = sorted((with_origins(catalog, topic) & origins) - now)
        if hidden:
            raise NotComparable(
                f"the new version reads `{display_name(topic)}`, which is made of `{display_name(hidden[0])}`: what is "
                "read of the one at some moment is not what is read of the other"
            )


def inputs_below(catalog: Catalog, chain: Chain, query: QueryDefinition) -> dict[str, QueryDefinition]:
    """Of a query that serves, who writes what it reads where the other versions read something else, by topic."""
    changed = {item.name: item.before for item in chain.items if item.number != item.before}
    found: dict[str, QueryDefinition] = {}
    for name, topic in query.reads.items():
        if changed.get(name):
            found[topic] = query_of(catalog, name, changed[name])
        elif (writer := _followed(catalog, chain, topic)) is not None:
            found[topic] = writer
    return found


def serving_queries(catalog: Catalog, chain: Chain) -> dict[str, QueryDefinition]:
    """By the topics they write, the queries of the versions that serve, down to where the other ones begin."""
    found: dict[str, QueryDefinition] = {}
    todo: list[tuple[str, QueryDefinition]] = []
    for item in chain.items:
        version = catalog.state.versions.get(item.name, {}).get(item.before)
        if version is not None and version.source.query is not None and item.number != item.before:
            todo.append((version.source.topic, query_of(catalog, item.name, item.before)))
    while todo:
        topic, query = todo.pop()
        if topic not in found:
            found[topic] = query
            todo += inputs_below(catalog, chain, query).items()
    return found


def followed_topics(catalog: Catalog, chain: Chain) -> frozenset[str]:
    """Those that the places of the versions which serve are followed back to."""
    queries = serving_queries(catalog, chain)
    return frozenset(topic for query in queries.values() for topic in query.reads.values()) - queries.keys()


def _followed(catalog: Catalog, chain: Chain, topic: str) -> QueryDefinition | None:
    """Who writes a topic that the version that serves reads, if the other one reads what it is made of instead."""
    before, now = serving_topics(catalog, chain), waiting_topics(chain)
    if topic in now or not (with_origins(catalog, topic) & now) - before:
        return None
    writers = _writers(catalog, topic)
    if len(writers) > 1:
        raise NotComparable(
            f"the new version reads what `{display_name(topic)}` is made of, and {len(writers)} queries write that"
        )
    return writers[0]


def waiting_topics(chain: Chain) -> frozenset[str]:
    """The topics that the versions which wait begin with."""
    return frozenset(topic for query in chain.first() for topic in query.reads.values())


def serving_topics(catalog: Catalog, chain: Chain) -> frozenset[str]:
    """Those that the versions which do not wait begin with. What goes on in place is an input of both like any
    other."""
    moved = [item for item in chain.items if item.number != item.before]
    versions = [catalog.state.versions.get(item.name, {}).get(item.before) for item in moved]
    known = [catalog.query(version.source.query or "") for version in versions if version is not None]
    queries = [query for query in known if query is not None]
    written = {query.sink_topic for query in queries}
    return frozenset(topic for query in queries for topic in query.reads.values()) - written


def with_origins(catalog: Catalog, topic: str) -> frozenset[str]:
    """A topic, and all that it is made of."""
    found: set[str] = set()
    todo = [topic]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += [read for query in _writers(catalog, one) for read in query.reads.values()]
    return frozenset(found)


def _writers(catalog: Catalog, topic: str) -> list[QueryDefinition]:
    return [query for query in catalog.queries() if query.sink_topic == topic]
