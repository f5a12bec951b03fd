"""The order in which definitions are created: each one after those it reads, whichever file it stands in."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.types import display_name

Definition = CreateSource | CreateAsSelect


@dataclass(frozen=True, slots=True)
class CreationOrder:
    """The result of `order_definitions`; definitions are given by their index."""

    sequence: tuple[int, ...]
    """All definitions that can be created, inputs first; where nothing else decides, in the order they were given."""
    needs: tuple[frozenset[int], ...]
    """By definition: the definitions that have to exist before it."""
    cycles: tuple[tuple[int, ...], ...]
    """Definitions that need each other, each one followed by what it needs; the last needs the first."""


def order_definitions(definitions: Sequence[Definition]) -> CreationOrder:
    """Return the order in which definitions with different names can be created.

    A query needs the streams and tables that it reads. A declaration over a topic that a query writes needs that query:
    otherwise the declaration would make the topic, and the query would be refused. Of several declarations over one
    topic the one that says most about it makes it, so that the topic is the same in any order of files."""
    needs = tuple(map(frozenset, _needs(definitions)))
    return CreationOrder(tuple(_sequence(needs)), needs, tuple(_cycles(needs)))


def names_read(statement: Definition) -> tuple[str, ...]:
    """Return the streams and tables that a definition reads, each once."""
    if isinstance(statement, CreateSource):
        return ()
    relation = statement.query.relation
    return tuple(dict.fromkeys([relation.source.name, *(join.source.name for join in relation.joins)]))


def topic_name(statement: Definition) -> str:
    """Return the topic that a definition declares or writes."""
    given = {one.name: one.value for one in statement.properties}
    return str(given.get("KAFKA_TOPIC") or statement.name)


def needed_names(statement: Definition) -> tuple[str, ...]:
    """Return what a definition reads: names of streams and tables, or for a declaration its topic, which may be that of
    a query with the same name."""
    return names_read(statement) if isinstance(statement, CreateAsSelect) else (topic_name(statement),)


def cycle_message(cycle: Sequence[int], index: int, definitions: Sequence[Definition]) -> str:
    """Say how the definition `index` comes to need itself."""
    at = cycle.index(index)
    names = [f"`{display_name(definitions[each].name)}`" for each in (*cycle[at:], *cycle[:at], index)]
    return f"{names[0]} needs itself: {' reads '.join(names)}"


def _needs(definitions: Sequence[Definition]) -> list[set[int]]:
    by_name = {definition.name: index for index, definition in enumerate(definitions)}
    writers: dict[str, int] = {}
    declared: dict[str, list[int]] = {}
    for index, definition in enumerate(definitions):
        if isinstance(definition, CreateAsSelect):
            writers.setdefault(topic_name(definition), index)
        else:
            declared.setdefault(topic_name(definition), []).append(index)
    needs = [{by_name[name] for name in names_read(one) if name in by_name} for one in definitions]
    for topic, over in declared.items():
        first = writers.get(topic, min(over, key=lambda index: _says_less(definitions[index])))
        for index in over:
            if index != first:
                needs[index].add(first)
    return needs


def _says_less(definition: Definition) -> tuple[object, ...]:
    """Sort key: the declaration that says most about its topic comes first."""
    assert isinstance(definition, CreateSource)
    given = {one.name for one in definition.properties}
    keys = sum(element.role in ("key", "primary") for element in definition.elements) + ("KEY" in given)
    sets = ("PARTITIONS" not in given, "TIMESTAMP" not in given)
    return not definition.elements, *sets, -keys, -len(definition.elements), -len(given), definition.name


def _sequence(needs: Sequence[frozenset[int]]) -> Iterator[int]:
    readers: list[list[int]] = [[] for _ in needs]
    missing = [len(below) for below in needs]
    for index, below in enumerate(needs):
        for input_ in below:
            readers[input_].append(index)
    free = [index for index, count in enumerate(missing) if not count]
    while free:
        index = heapq.heappop(free)
        yield index
        for reader in readers[index]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(free, reader)


def _cycles(needs: Sequence[frozenset[int]]) -> Iterator[tuple[int, ...]]:
    left = set(range(len(needs))) - set(_sequence(needs))
    seen: set[int] = set()
    for start in sorted(left):
        path: dict[int, None] = {}
        at = start
        # Whatever is left needs something that is left, so this walk ends in a cycle, or where another one did.
        while at not in path and at not in seen:
            path[at] = None
            at = min(needs[at] & left)
        if at in path:
            yield tuple(list(path)[list(path).index(at) :])
        seen |= path.keys()
