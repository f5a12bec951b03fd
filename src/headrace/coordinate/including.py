"""Whether a view or a stream includes what a topic held at a moment: through the queries in between, one by one.

A query says with each commit which records it had read. Once it has read those of the moment, what it wrote up to now
is the moment that the next one has to have read, down to the view's own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from headrace.coordinate.base import QueryDefinition
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.how_far import cut_of, lag_of
from headrace.errors import Conflict, NotFound, PositionOfAnotherLog
from headrace.log.base import ARRIVAL, Log, PartitionEnds, Snapshot
from headrace.store.arrivals import behind, has_arrivals, position_of
from headrace.store.base import ViewStore
from headrace.store.cuts import has_reached, places_now
from headrace.types import display_name


@dataclass(slots=True)
class Inclusion:
    """Asked again and again until it says yes."""

    log: Log
    catalog: Catalog
    view: Callable[[], ViewStore] | None
    """What is read; None for a stream, which is read from its topic."""
    topic: str
    """Where the records were written; for a stream that is read, its topic."""
    moments: dict[str, Snapshot] = field(default_factory=dict)
    """By topic: the moment up to which those who read it have to have read it."""
    done: set[str] = field(default_factory=set)

    def check(self) -> None:
        """Raise `Conflict` if no record of the topic can ever be included."""
        self.check_topic(self.topic)

    def can_include(self, topic: str) -> bool:
        return self._leads_to(topic, self._target(), set())

    def check_topic(self, topic: str) -> None:
        if not self.can_include(topic):
            raise Conflict(
                f"no event of topic `{topic}` comes to {self._name()}", hint="ask a view whose running query reads it"
            )

    def _target(self) -> str:
        return self.topic if self.view is None else self.view().source.topic

    def _name(self) -> str:
        return f"topic `{self.topic}`" if self.view is None else f"view `{display_name(self.view().source.name)}`"

    def include_all(self) -> None:
        """What all topics that lead here hold now is to be included."""
        snapshot = self.log.snapshot()
        made = {query.sink_topic for query in self._queries()}
        target = self._target()
        for topic in snapshot.ends:
            if topic not in made and self._leads_to(topic, target, set()):
                self.moments[topic] = snapshot
        if not self.moments:
            raise Conflict(
                f"nothing that is written comes to {self._name()}: the query that makes it does not run",
                hint="`headrace status` says why; ask without waiting for what it holds",
            )

    def include(self, topic: str, moment: Snapshot) -> None:
        """What a topic held at a moment is to be included, together with what was asked for before."""
        self.check_topic(topic)
        known = self.moments.get(topic)
        self.moments[topic] = moment if known is None else _later(topic, known, moment)

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
        target = self._target()
        while self._step():
            pass
        moment = self.moments.get(target)
        return moment is not None and self._has_applied(target, moment)

    def missing(self) -> str:
        """Say how far it is, for people."""
        for query in self._queries():
            if query.id not in self.done and self._inputs_known(query) and not self._is_through(query):
                return f"query `{query.id}` has {lag_of(self.log, query):,} records of its inputs to read"
        moment = self.moments.get(self._target())
        if self.view is not None and moment is not None:
            left = behind(moment, self._target(), self.view().position())
            return f"{self._name()} has {left:,} changes of its topic to take in"
        return f"{self._name()} waits for the queries that write it"

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
        if self.view is not None:
            return behind(moment, topic, self.view().position()) == 0
        # On Kafka a record can be read a moment after it was acknowledged.
        readable = {number: end.end for number, end in enumerate(self.log.snapshot().ends.get(topic, ()))}
        return behind(moment, topic, position_of(readable)) == 0


def _later(topic: str, one: Snapshot, other: Snapshot) -> Snapshot:
    """Both moments of one topic."""
    pairs = zip_longest(one.ends.get(topic, ()), other.ends.get(topic, ()), fillvalue=PartitionEnds(0, 0))
    ends = tuple(max(pair, key=lambda end: end.end) for pair in pairs)
    return Snapshot(max(one.arrival, other.arrival), {topic: ends}, {})


def token_of(log: Log, topic: str, positions: Iterable[tuple[int, int, int]]) -> str:
    """Return what a read takes as `after`: the last offset of each partition, and the epoch of the log. Without
    positions (partition, first and last offset) it is everything that the topic holds when it is read."""
    lasts: dict[int, int] = {}
    for partition, _, last in positions:
        lasts[partition] = max(last, lasts.get(partition, -1))
    epochs = log.epochs()
    places = ",".join(f"{partition}:{last}" for partition, last in sorted(lasts.items()))
    return f"{topic}@{places}" + ("" if epochs is None else f".{epochs.current.id}")


def moment_of(log: Log, topic: str, offsets: Mapping[int, int]) -> Snapshot:
    """Return the moment at which a topic held the records before these offsets, by partition, and as little else as can
    be. `PositionOfAnotherLog` if it does not hold them."""
    snapshot = log.snapshot()
    ends = snapshot.ends.get(topic)
    if ends is None:
        raise NotFound(f"topic `{topic}` does not exist", hint="`headrace topic list` lists what there is")
    arrival = 0 if has_arrivals(log) else snapshot.arrival
    for number, offset in offsets.items():
        if number >= len(ends) or (has_arrivals(log) and offset > ends[number].end):
            raise PositionOfAnotherLog(
                f"topic `{topic}` has no record before offset {offset} of partition {number}",
                detail="the log was restored to an earlier moment since, or is another one",
            )
        if has_arrivals(log) and ends[number].start < offset:
            read = log.read(topic, number, offset - 1, offset, [ARRIVAL])
            found = [part.batch.column(ARRIVAL)[0].as_py() for part in read if part.batch.num_rows]
            # A record that compaction took away has none: then it is everything.
            arrival = max(arrival, found[0] + 1 if found else snapshot.arrival)
    wanted = tuple(PartitionEnds(0, offsets.get(number, 0)) for number in range(len(ends)))
    return Snapshot(arrival, {topic: wanted}, {})
