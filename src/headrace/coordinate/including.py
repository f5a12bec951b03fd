"""Whether a view includes what a topic held at a moment: through the queries in between, one after the other.

A query says with each commit which records it had read. Once it has read those of the moment, what it wrote up to now
is the moment that the next one has to have read, down to the view's own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.how_far import cut_of, lag_of
from headrace.errors import Conflict
from headrace.log.base import Log, Snapshot
from headrace.store.arrivals import behind, has_arrivals
from headrace.store.base import ViewStore
from headrace.store.cuts import has_reached, places_now
from headrace.types import display_name


@dataclass(slots=True)
class Inclusion:
    """Asked again and again until it says yes. Made right after the records were acknowledged."""

    log: Log
    catalog: Catalog
    view: Callable[[], ViewStore]
    topic: str
    moments: dict[str, Snapshot] = field(default_factory=dict)
    """By topic: the moment up to which those who read it have to have read it."""
    done: set[str] = field(default_factory=set)

    def check(self) -> None:
        """Before anything is sent: whether it can ever be."""
        target = self.view().source
        if not self._leads_to(self.topic, target.topic, set()):
            name = display_name(target.name)
            raise Conflict(
                f"no event of topic `{self.topic}` comes to view `{name}`", hint="ask a view whose query reads it"
            )

    def begin(self, positions: Sequence[tuple[int, int, int]]) -> None:
        """All that is in the topic now is to be included, and what was written at these positions, though on Kafka it
        may not be readable yet."""
        snapshot = self.log.snapshot()
        ends = list(snapshot.ends.get(self.topic, ()))
        for partition, _, last in positions:
            if partition < len(ends):
                ends[partition] = replace(ends[partition], end=max(ends[partition].end, last + 1))
        self.moments[self.topic] = replace(snapshot, ends={**snapshot.ends, self.topic: tuple(ends)})

    def is_complete(self) -> bool:
        target = self.view().source.topic
        while self._step():
            pass
        moment = self.moments.get(target)
        return moment is not None and self._has_applied(target, moment)

    def _step(self) -> bool:
        """Look at one more query that may be through; whether one was."""
        for query in self._queries():
            if query.id not in self.done and self._inputs_known(query) and self._is_through(query):
                if not self.log.at_rest([query.sink_topic]):
                    continue  # a part of what it wrote cannot be read yet
                self.done.add(query.id)
                # What it wrote about those records is below this.
                self.moments[query.sink_topic] = self.log.snapshot()
                return True
        return False

    def _queries(self) -> list[QueryDefinition]:
        return [query for query in self.catalog.queries() if query.wanted == "running" and not query.transient]

    def _inputs_known(self, query: QueryDefinition) -> bool:
        """One input at a known moment, and none that waits for another query on the way."""
        return any(topic in self.moments for topic in query.reads.values()) and not any(
            topic not in self.moments and any(self._leads_to(first, topic, set()) for first in self.moments)
            for topic in query.reads.values()
        )

    def _is_through(self, query: QueryDefinition) -> bool:
        known = {topic: self.moments[topic] for topic in query.reads.values() if topic in self.moments}
        if has_arrivals(self.log):
            return lag_of(self.log, query, max(moment.arrival for moment in known.values())) == 0
        wanted = {topic: places_now(moment, [topic])[topic] for topic, moment in known.items()}
        return has_reached(cut_of(self.log, query), wanted)

    def _leads_to(self, topic: str, target: str, seen: set[str]) -> bool:
        if topic == target:
            return True
        for query in self._queries():
            if topic in query.reads.values() and query.sink_topic not in seen:
                seen.add(query.sink_topic)
                if self._leads_to(query.sink_topic, target, seen):
                    return True
        return False

    def _has_applied(self, topic: str, moment: Snapshot) -> bool:
        return behind(moment, topic, self.view().position()) == 0
