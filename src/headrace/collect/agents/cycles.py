"""Events that come back: a way from a sink to a source that leads to the sink again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.collect.agents.definition import AgentDefinition, ComponentDefinition
from headrace.collect.agents.options import Problem

_HERE = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}
Place = tuple[str, str]
"""Agent and source."""


def find_cycles(agents: Sequence[AgentDefinition]) -> Iterator[Problem]:
    ways = {
        (agent.name, name): list(_ways(agents, agent, source))
        for agent in agents
        for name, source in agent.sources.items()
    }
    found: set[frozenset[Place]] = set()
    for start in ways:
        path = _path_back(start, ways)
        if path and frozenset(path) not in found:
            found.add(frozenset(path))
            sink = next(sink for sink, place in ways[start] if place in path)
            around = " → ".join(f"`{agent}.{source}`" for agent, source in [*path, start])
            yield Problem(
                sink.line, f"sink `{sink.name}` sends events back to where they came from: {around}", "break the circle"
            )


def _ways(
    agents: Sequence[AgentDefinition], agent: AgentDefinition, source: ComponentDefinition
) -> Iterator[tuple[ComponentDefinition, Place]]:
    """The sinks that the source's events reach, and the sources that these send to."""
    for sink in agent.sinks.values():
        if not set(sink.channels) & set(source.channels):
            continue
        for other in agents:
            for name, target in other.sources.items():
                if _leads_to(sink, target):
                    yield sink, (other.name, name)


def _leads_to(sink: ComponentDefinition, source: ComponentDefinition) -> bool:
    if sink.kind.name == source.kind.name == "avro":
        return sink.options.get("port") == source.options.get("port") and _same_host(
            sink.options.text("hostname"), source.options.text("bind")
        )
    if sink.kind.name == source.kind.name == "kafka":
        same = sink.options.get("kafka.bootstrap.servers") == source.options.get("kafka.bootstrap.servers")
        return bool(same) and sink.options.text("kafka.topic") in source.options.words("kafka.topics")
    return False


def _same_host(to: str, bind: str) -> bool:
    return to == bind or (to in _HERE and bind in _HERE)


def _path_back(start: Place, ways: dict[Place, list[tuple[ComponentDefinition, Place]]]) -> list[Place]:
    """The sources from `start` back to itself; none if there is no way."""
    waiting: list[list[Place]] = [[start]]
    seen: set[Place] = set()
    while waiting:
        path = waiting.pop()
        for _, place in ways.get(path[-1], ()):
            if place == start:
                return path
            if place not in seen:
                seen.add(place)
                waiting.append([*path, place])
    return []
