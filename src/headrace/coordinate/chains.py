"""What is compared: a view in two versions, with what they read as far as that has two versions too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.errors import HeadraceError
from headrace.types import display_name
from headrace.views.versions import Item, Version, query_ids


class NotComparable(HeadraceError):
    """There is a reason why these versions cannot be compared at the same records."""

    code, status = "not_comparable", 409


@dataclass(frozen=True, slots=True)
class Chain:
    """Names in two versions each, inputs first: `before` goes on as it does, and `number` may have to wait for it."""

    items: tuple[Item, ...]
    queries: Callable[[], list[QueryDefinition]]
    """Those that write the versions that may have to wait, as they are now; inputs first."""

    def first(self) -> list[QueryDefinition]:
        return first_of(self.queries())


def first_of(queries: Sequence[QueryDefinition]) -> list[QueryDefinition]:
    """Those that read nothing which another of them writes."""
    written = {query.sink_topic for query in queries}
    return [query for query in queries if not written & set(query.reads.values())]


def independent(catalog: Catalog, chain: Chain) -> list[Chain]:
    """A chain for each group of its items in which one reads another, in either version: what is held up in one group
    leaves the others as they are."""
    names = {item.name for item in chain.items}
    groups: list[set[str]] = []
    for item in chain.items:
        reads = _reads(catalog, item) & names | {item.name}
        met = [group for group in groups if group & reads]
        groups = [group for group in groups if group not in met] + [reads.union(*met)]
    return [_among(chain, group) for group in groups]


def _reads(catalog: Catalog, item: Item) -> set[str]:
    known = catalog.state.versions.get(item.name, {})
    versions = [version for number in (item.before, item.number) if (version := known.get(number)) is not None]
    queries = [_query(catalog, version) for version in versions]
    makers = [_maker(catalog, version) for version in versions]
    reads = {name for query in queries if query is not None for name in query.reads}
    return reads | {maker.name for maker in makers if maker is not None}


def _among(chain: Chain, names: Collection[str]) -> Chain:
    items = tuple(item for item in chain.items if item.name in names)
    return Chain(items, lambda: [query for query in chain.queries() if query.sink in names])


def query_of(catalog: Catalog, name: str, number: int) -> QueryDefinition:
    """Return the query that writes a version; of what is declared over another's topic, the one that writes that."""
    version = catalog.state.versions.get(name, {}).get(number)
    if version is not None and version.source.query is None:
        version = catalog.maker(version.source.topic)
    query = _query(catalog, version)
    if query is None:
        raise NotComparable(f"nothing writes version {number} of `{display_name(name)}` any more")
    return query


def chain_between(catalog: Catalog, name: str, one: int, other: int) -> Chain:
    """Of two versions of a view: the second waits for the first, or, where that would hold up what serves, the first
    for the second."""
    for before, number in ((one, other), (other, one)):
        items: dict[str, Item] = {}
        _collect(catalog, name, before, number, items)
        chain = Chain(tuple(items.values()), partial(_writers, catalog, tuple(items.values())))
        if not _serves(catalog, chain):
            return chain
    raise NotComparable(
        f"versions {one} and {other} of `{display_name(name)}` both feed what serves: neither can wait for the other",
        hint="compare each with the version that serves",
    )


def _collect(catalog: Catalog, name: str, before: int, number: int, items: dict[str, Item]) -> None:
    known = catalog.state.versions.get(name, {})
    makers = [_maker(catalog, known.get(one)) for one in (before, number)]
    if makers[0] is not None and makers[1] is not None and makers[0].name == makers[1].name:
        # It is declared over the topic of something else, which has these versions.
        _collect(catalog, makers[0].name, makers[0].number, makers[1].number, items)
    old, new = (_query(catalog, known.get(one)) for one in (before, number))
    if old is not None and new is not None:
        for source in new.reads.keys() & old.reads.keys():
            pair = [_at(catalog, source, query.reads[source]) for query in (old, new)]
            if pair[0] is not None and pair[1] is not None and pair[0] != pair[1] and source not in items:
                _collect(catalog, source, pair[0], pair[1], items)
    items[name] = Item(name, "", number, before)


def _maker(catalog: Catalog, version: Version | None) -> Version | None:
    """Return the version over whose topic another name's version is declared."""
    return catalog.maker(version.source.topic) if version is not None and version.source.query is None else None


def _query(catalog: Catalog, version: Version | None) -> QueryDefinition | None:
    return catalog.query(version.source.query or "") if version is not None else None


def _at(catalog: Catalog, name: str, topic: str) -> int | None:
    return next((one.number for one in catalog.versions(name) if one.source.topic == topic), None)


def _writers(catalog: Catalog, items: Sequence[Item]) -> list[QueryDefinition]:
    versions = [catalog.state.versions.get(item.name, {}).get(item.number) for item in items]
    ids = [id_ for version in versions if version is not None for id_ in query_ids(version)]
    return [query for id_ in ids if (query := catalog.query(id_)) is not None]


def _serves(catalog: Catalog, chain: Chain) -> bool:
    """Whether what serves is among what would have to wait, or reads it."""
    waiting = chain.queries()
    ids, topics = {query.id for query in waiting}, {query.sink_topic for query in waiting}
    for query in catalog.queries():
        version = catalog.version_of(query)
        concerned = query.id in ids or topics & set(query.reads.values())
        if concerned and version is not None and version.state == "serving":
            return True
    return False
