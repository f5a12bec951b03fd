"""What the catalog knows by offsets or arrival numbers of a log that is copied to another: where Lambda views are cut,
where their batch layers end, where queries began. Said again in the other log's own terms, after its copy.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.events import Event, QueryCreated, VersionCreated
from headrace.errors import Conflict
from headrace.log.base import Log
from headrace.log.copy.moves import Moves
from headrace.store.arrivals import has_arrivals
from headrace.store.cuts import Cut, offsets_at
from headrace.types import display_name
from headrace.views.versions import Version


def say_places_again(source: Log, target: Log, catalog: Catalog, moves: Moves) -> None:
    """Nothing is said that the target's catalog has already: copying again is the same call."""
    there = Catalog(target)
    moving = _Moving(source, target, moves)
    events: list[Event] = []
    for name, versions in catalog.state.versions.items():
        for number, version in versions.items():
            moved = moving.version(version, catalog)
            if moved != version and there.state.versions.get(name, {}).get(number) != moved:
                events.append(VersionCreated(moved))
    for query in catalog.queries():
        moved_query = moving.query(query)
        if moved_query != query and there.query(query.id) != moved_query:
            events.append(QueryCreated(moved_query))
    if events:
        there.append(events)


class _Moving:
    def __init__(self, source: Log, target: Log, moves: Moves) -> None:
        self._source, self._target, self._moves = source, target, moves
        self._then = source.snapshot()

    def version(self, version: Version, catalog: Catalog) -> Version:
        layers = version.layers
        if layers is None:
            return version
        if layers.ends is None and has_arrivals(self._target):
            raise Conflict(
                f"the batch layer of `{display_name(version.name)}` is being computed, up to a place that the local "
                "log has no number for",
                hint="wait until it serves, or give it up (headrace deploy cancel), and copy again",
            )
        speed = catalog.query(layers.speed) or catalog.query(layers.batch)
        topics = tuple(speed.reads.values()) if speed is not None else tuple(layers.begins)
        begins = {
            topic: list(self._moves.offsets(topic, dict(enumerate(offsets))).values())
            for topic, offsets in layers.begins.items()
        }
        ends = None if layers.ends is None else self._moves.offsets(version.source.topic, layers.ends)
        cut = self._cut(layers.cut, topics)
        return replace(version, layers=msgspec.structs.replace(layers, cut=cut, begins=begins, ends=ends))

    def query(self, query: QueryDefinition) -> QueryDefinition:
        starts = {topic: self._moves.offsets(topic, offsets) for topic, offsets in query.starts.items()}
        cut: Cut = self._cut(query.cut, tuple(query.reads.values())) if query.layer else query.cut
        # What held it back was a comparison, which is made anew.
        return replace(query, starts=starts, cut=cut, until=None)

    def _cut(self, cut: Cut, topics: tuple[str, ...]) -> int | dict[str, dict[int, int]]:
        """The local log has one number for it only where all was read that is copied (`move_to_local` says which query
        has not): then it is the end."""
        if has_arrivals(self._target):
            return self._target.snapshot().arrival
        return {topic: self._moves.offsets(topic, offsets_at(self._source, self._then, topic, cut)) for topic in topics}
