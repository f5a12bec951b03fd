"""Other orders of a test's events that must lead to the same rows.

What orders rows is their arrival, so most orders mean something else. These do not: events of different keys may change
places where every query that sees them, directly or through others, only filters, projects and adds up with functions
that do not care about order. Where windows are involved, an event that moves stream time on keeps its place: whether
one is late is decided by what came before it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.sql.expressions import Call
from headrace.sql.plan import (
    Aggregate,
    Filter,
    FlatMap,
    PartitionBy,
    PersistentQuery,
    PlanNode,
    Project,
    Rename,
    Scan,
    walk,
)

ORDER_FREE = {"AVG", "COUNT", "COUNT_DISTINCT", "HISTOGRAM", "MAX", "MIN", "STDDEV_SAMP", "STDDEV_SAMPLE", "SUM"}


@dataclass(frozen=True, slots=True)
class Arrived:
    """What decides where an event may go."""

    key: Any
    """None if it has none: then nothing holds it."""
    time: int


def movable_topics(plans: Sequence[PersistentQuery], topics: Iterable[str]) -> dict[str, bool]:
    """Of these topics those whose events may change places, and whether stream time must stay as it is."""
    found = {}
    for topic in topics:
        seen = _downstream(plans, topic)
        if all(_order_free(plan, plans) for plan in seen):
            found[topic] = any(isinstance(node, Aggregate) and node.window for p in seen for node in walk(p.root))
    return found


def _downstream(plans: Sequence[PersistentQuery], topic: str) -> list[PersistentQuery]:
    """The queries that see what is on the topic, directly or through others."""
    reached, found = {topic}, list[PersistentQuery]()
    while True:
        more = [p for p in plans if p not in found and any(source.topic in reached for source in p.inputs)]
        if not more:
            return found
        found += more
        reached |= {plan.sink.topic for plan in more}


def _order_free(plan: PersistentQuery, plans: Sequence[PersistentQuery]) -> bool:
    written = {other.sink.topic: other.sink.kind for other in plans}
    return all(_node_is_order_free(node) for node in walk(plan.root)) and all(
        # A stream's records read as a table: the last one of a key wins, whichever that is.
        written.get(source.topic, source.kind) == source.kind
        for source in plan.inputs
    )


def _node_is_order_free(node: PlanNode) -> bool:
    match node:
        case Aggregate():
            calls = [named.expression for named in node.aggregates]
            known = all(isinstance(call, Call) and call.name in ORDER_FREE for call in calls)
            return known and (node.window is None or node.window.kind != "session")
        case _:
            return isinstance(node, Scan | Rename | Filter | FlatMap | PartitionBy | Project)


def shuffled(events: Sequence[Arrived], timed: bool, chance: random.Random) -> list[int]:
    """The places of the events in another order. Those of a key stay in theirs; with `timed` an event that moves stream
    time on stays where it is.

    >>> events = [Arrived("a", 1), Arrived("b", 9), Arrived("c", 5), Arrived("d", 6), Arrived("c", 7)]
    >>> shuffled(events, True, random.Random(1))
    [0, 1, 3, 2, 4]
    """
    order: list[int] = []
    group: list[int] = []
    newest = None
    for place, event in enumerate(events):
        if timed and (newest is None or event.time > newest):
            order += [*_mixed(group, events, chance), place]
            group, newest = [], event.time
        else:
            group.append(place)
    return order + _mixed(group, events, chance)


def _mixed(places: Sequence[int], events: Sequence[Arrived], chance: random.Random) -> list[int]:
    """The keys change places; each key's events then take those places in their old order."""
    keys = [("none", place) if events[place].key is None else ("key", events[place].key) for place in places]
    queues: dict[Any, list[int]] = {}
    for key, place in zip(keys, places, strict=True):
        queues.setdefault(key, []).append(place)
    chance.shuffle(keys)
    return [queues[key].pop(0) for key in keys]
