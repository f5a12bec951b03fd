"""What of the log is still needed: retention waits for it, and nobody deletes it by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headrace.coordinate.base import QueryDefinition, is_question
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.how_far import cut_of, offsets_at
from headrace.errors import Conflict
from headrace.log.base import Log
from headrace.views.versions import Deployment, query_ids

Beside = Callable[[str], Mapping[int, int]]
"""Topic → partition → offset."""


def needed_offsets(log: Log, catalog: Catalog, topic: str, beside: Beside = lambda topic: {}) -> dict[int, int]:
    """By partition: the first record that somebody has yet to read of those who run, and of those who are being built,
    paused or not. A query that somebody has stopped holds nothing: it may never go on. `beside`: for whom else."""
    found = dict(beside(topic))
    building = {query.id for _, query in _builds(catalog)}
    for query in catalog.queries():
        reads = topic in query.reads.values() and not query.transient and not is_question(query.id)
        if reads and (query.wanted == "running" or query.id in building):
            for partition, offset in _next(log, query, topic).items():
                found[partition] = min(offset, found.get(partition, offset))
    return found


def refuse_needed(log: Log, catalog: Catalog, topic: str, before: Mapping[int, int]) -> None:
    """`Conflict` if a deployment that is not over has yet to read what is before these offsets."""
    for deployment, query in _builds(catalog):
        if topic in query.reads.values():
            left = _next(log, query, topic)
            if any(left.get(partition, offset) < offset for partition, offset in before.items()):
                raise Conflict(
                    f"deployment {deployment.id} has yet to read these records of topic `{topic}`",
                    hint=f"wait for it, or end it:  headrace deploy cancel {deployment.id}",
                )


def _builds(catalog: Catalog) -> Iterator[tuple[Deployment, QueryDefinition]]:
    for deployment in catalog.deployments():
        if deployment.over:
            continue
        for item in deployment.items:
            version = catalog.state.versions.get(item.name, {}).get(item.number)
            for id_ in query_ids(version) if version is not None else ():
                if (query := catalog.query(id_)) is not None:
                    yield deployment, query


def _next(log: Log, query: QueryDefinition, topic: str) -> dict[int, int]:
    """Where the query goes on."""
    read = dict(enumerate(offsets_at(log, topic, cut_of(log, query))))
    begun = query.starts.get(topic, {})
    return {partition: max(offset, begun.get(partition, 0)) for partition, offset in read.items()}
