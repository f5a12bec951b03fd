"""Who reads a topic, directly or through others: what a change of its schema would reach."""

from __future__ import annotations

from headrace.coordinate.catalog import Catalog
from headrace.log.registry.registry import Incompatible
from headrace.types import display_name


def topic_of(subject: str) -> str | None:
    """The topic whose key or value a subject describes.

    >>> topic_of("orders-value"), topic_of("orders-key"), topic_of("com.shop.Order")
    ('orders', 'orders', None)
    """
    for ending in ("-value", "-key"):
        if subject.endswith(ending) and len(subject) > len(ending):
            return subject.removesuffix(ending)
    return None


def dependents(catalog: Catalog, topic: str) -> list[str]:
    """Streams and tables over a topic, the queries that read them, and what those write; in the order data flows."""
    found: dict[str, None] = {}
    waiting = list(catalog.over_topic(topic))
    seen: set[str] = set()
    while waiting:
        source = waiting.pop(0)
        if source.name in seen:
            continue
        seen.add(source.name)
        kind = "view" if catalog.view(source.name) else source.kind
        found[f"{kind} `{display_name(source.name)}`"] = None
        for query in catalog.readers(source.name):
            found[f"query {query.id}"] = None
            sink = catalog.source(query.sink)
            if sink is not None:
                waiting.append(sink)
    return list(found)


def broken_by(catalog: Catalog, subject: str) -> list[str]:
    """What reads the topic that a subject describes."""
    topic = topic_of(subject)
    return [] if topic is None else dependents(catalog, topic)


def with_broken(catalog: Catalog, error: Incompatible) -> Incompatible:
    """The refusal of a schema says what it has spared."""
    broken = broken_by(catalog, error.subject)
    if broken:
        error.message += f"; it would have broken {', '.join(broken)}"
        error.data["breaks"] = broken
    return error
