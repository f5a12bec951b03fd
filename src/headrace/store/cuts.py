"""How much of a query's inputs its rows include (contract 9): everything below one arrival number, or, on a log that
gives none, what is before an offset of each topic and partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from headrace.log.base import NO_STREAM_TIME, Log, Snapshot
from headrace.log.copy.moves import MOVED_TOPIC, Moves
from headrace.store.arrivals import has_arrivals

Places: TypeAlias = Mapping[str, Mapping[int, int]]
"""By topic and partition: the next offset."""
Cut: TypeAlias = int | Places


def parse_cut(offsets: str, topics: Iterable[str]) -> Cut | None:
    """What a batch's identity says it had read up to. None for what older versions said less of: how far the first of
    several topics was read, or nothing.

    >>> parse_cut('{"arrival": 7}', ["a"]), parse_cut('{"topics": {"a": {"0": 7}}}', ["a"])
    (7, {'a': {0: 7}})
    >>> parse_cut('{"partitions": {"0": 7}}', ["a"]), parse_cut('{"partitions": {"0": 7}}', ["a", "b"])
    ({'a': {0: 7}}, None)
    """
    body: dict[str, Any] = msgspec.json.decode(offsets)
    if isinstance(body.get("arrival"), int):
        return int(body["arrival"])
    named = body.get("topics")
    if named is None:
        only = list(dict.fromkeys(topics))
        named = {only[0]: body["partitions"]} if len(only) == 1 and body.get("partitions") else None
    return None if named is None else {topic: _numbers(places) for topic, places in named.items()}


def parse_closed(offsets: str) -> bool:
    """Whether all that a query's records had closed by then is out: a batch lets go what the one before it has closed.

    >>> parse_closed('{"arrival": 7, "closed": true}'), parse_closed('{"arrival": 7}')
    (True, False)
    """
    return bool(msgspec.json.decode(offsets).get("closed", False))


def parse_floor(offsets: str) -> int:
    """Where stream time belongs to partitions: what it had come to in all of them, or more exactly, what no record that
    is read later is judged by less than."""
    floor = msgspec.json.decode(offsets).get("floor")
    return floor if isinstance(floor, int) else NO_STREAM_TIME


def _numbers(places: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in places.items()}


@dataclass(slots=True)
class Reading:
    """How far a query has read, by what it last committed: asked again and again."""

    log: Log
    query: str
    version: int
    topics: tuple[str, ...]
    begun: Cut = 0
    """Where it began, if it goes on from a batch layer."""
    starts: Places = field(default_factory=dict)
    """By topic and partition: where it began, if not at the beginning."""
    _copied: Places | None = None

    def cut(self) -> Cut | None:
        """None if its last batch does not say."""
        identity = self.log.last_identity(self.query, self.version)
        if identity is None and has_arrivals(self.log):
            return self.begun if isinstance(self.begun, int) else 0
        if identity is None:
            return later(self._nothing(), self._results())
        found = parse_cut(identity.offsets, self.topics)
        if isinstance(found, int):
            # A first batch without a record has no arrival number to say; what came before it began is included all
            # the same.
            return max(found, self.begun) if isinstance(self.begun, int) else found
        return None if found is None else later(found, self._results())

    def floor(self) -> int:
        identity = self.log.last_identity(self.query, self.version)
        return NO_STREAM_TIME if identity is None else parse_floor(identity.offsets)

    def _nothing(self) -> Places:
        begun = {} if isinstance(self.begun, int) else self.begun
        return {topic: dict(begun.get(topic, self.starts.get(topic, {}))) for topic in self.topics}

    def _results(self) -> Places:
        """What was copied with its results, though the query has yet to read it again for its state."""
        if self._copied is None:
            moved = MOVED_TOPIC in self.log.snapshot().ends
            self._copied = Moves(self.log).queries.get((self.query, self.version), {}) if moved else {}
        return self._copied


def later(one: Places, other: Places) -> Places:
    """In each partition the later of two."""
    return {
        topic: {
            number: max(one.get(topic, {}).get(number, 0), other.get(topic, {}).get(number, 0))
            for number in {**one.get(topic, {}), **other.get(topic, {})}
        }
        for topic in {**one, **other}
    }


def cut_now(log: Log, snapshot: Snapshot, topics: Iterable[str]) -> Cut:
    """Everything that these topics hold."""
    return snapshot.arrival if has_arrivals(log) else places_now(snapshot, topics)


def places_now(snapshot: Snapshot, topics: Iterable[str]) -> Places:
    return {topic: {number: end.end for number, end in enumerate(snapshot.ends.get(topic, ()))} for topic in topics}


def offsets_at(log: Log, snapshot: Snapshot, topic: str, cut: Cut) -> dict[int, int]:
    """A cut as offsets of one topic, by partition; not beyond its end."""
    ends = enumerate(snapshot.ends.get(topic, ()))
    if isinstance(cut, int):
        return {number: min(end.end, log.offset_at_arrival(topic, number, cut)) for number, end in ends}
    return {number: min(end.end, cut.get(topic, {}).get(number, 0)) for number, end in ends}


def has_reached(one: Cut, other: Cut) -> bool:
    """Whether one includes all that the other does."""
    if isinstance(one, int) or isinstance(other, int):
        return isinstance(one, int) and isinstance(other, int) and one >= other
    return all(
        one.get(topic, {}).get(number, 0) >= offset
        for topic, places in other.items()
        for number, offset in places.items()
    )


def place_texts(places: Places) -> dict[str, dict[str, int]]:
    """As JSON has them."""
    return {topic: {str(number): offset for number, offset in offsets.items()} for topic, offsets in places.items()}
