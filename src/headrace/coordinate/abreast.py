"""Whether the versions that a deployment has built show no less than those that serve."""

from __future__ import annotations

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.how_far import cut_of, lag_of, next_offsets, offsets_at
from headrace.errors import NotFound
from headrace.log.base import Log
from headrace.store.follow import Followers
from headrace.views.versions import Deployment, Item


def is_abreast(log: Log, catalog: Catalog, followers: Followers, deployment: Deployment) -> bool:
    """Of every name that has a version before."""
    return all(
        _shows_no_less(log, catalog, followers, item)
        for item in deployment.items
        if item.before and item.number and item.number != item.before
    )


def _shows_no_less(log: Log, catalog: Catalog, followers: Followers, item: Item) -> bool:
    versions = catalog.state.versions.get(item.name, {})
    old, new = versions.get(item.before), versions.get(item.number)
    if old is None or new is None:
        return True
    queries = [catalog.query(version.source.query or "") for version in (old, new)]
    before, after = queries
    if before is not None and after is not None and not has_read_no_less(log, before, after):
        return False
    if new.source.kind != "table" or old.source.kind != "table":
        return True
    try:
        return followers.lag(item.name, item.number) <= followers.lag(item.name, item.before)
    except NotFound:
        return False  # not opened yet


def has_read_no_less(log: Log, old: QueryDefinition, new: QueryDefinition) -> bool:
    """Of topics that both read, by place. What is further down a chain reads other topics than the version before, and
    is compared by how much it has left to read."""
    common = set(old.reads.values()) & set(new.reads.values())
    before = cut_of(log, old)
    for topic in common:
        places = zip(next_offsets(log, new, topic).values(), offsets_at(log, topic, before), strict=False)
        if any(read < wanted for read, wanted in places):
            return False
    return len(common) == len(set(new.reads.values())) or lag_of(log, new) <= lag_of(log, old)
