"""An agent as its file says it, read and checked. `topology` reads it, `running` runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.collect.agents.interceptors import InterceptorKind
from headrace.collect.agents.options import ComponentKind, Options, Problem
from headrace.collect.agents.processors import ProcessorKind
from headrace.collect.agents.selectors import SelectorKind


@dataclass(frozen=True, slots=True)
class InterceptorDefinition:
    name: str
    kind: InterceptorKind
    options: Options


@dataclass(frozen=True, slots=True)
class ComponentDefinition:
    name: str
    kind: ComponentKind
    options: Options
    line: int
    channels: tuple[str, ...] = ()
    """Of a source all, of a sink the one."""
    selector: SelectorKind | None = None
    selector_options: Options | None = None
    interceptors: tuple[InterceptorDefinition, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDefinition:
    name: str
    sinks: tuple[str, ...]
    kind: ProcessorKind
    options: Options
    line: int


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    name: str
    sources: Mapping[str, ComponentDefinition]
    channels: Mapping[str, ComponentDefinition]
    sinks: Mapping[str, ComponentDefinition]
    groups: Mapping[str, GroupDefinition]
    problems: tuple[Problem, ...] = field(default=())

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]


def explain(agent: AgentDefinition) -> list[str]:
    """What the agent does, a line for each way from a source to a sink."""
    lines = [f"agent {agent.name}"]
    for source in agent.sources.values():
        lines += [f"  {source.name}: {one.kind.name}, {_lower(one.kind.summary)}" for one in source.interceptors]
        if source.selector is not None and len(source.channels) > 1:
            lines.append(f"  {source.name}: {source.selector.name}, {_lower(source.selector.summary)}")
        for name in source.channels:
            channel = agent.channels.get(name)
            sinks = [sink for sink in agent.sinks.values() if name in sink.channels]
            lines += [f"  {_said(source)} → {_said(channel)} → {_said(sink)}" for sink in sinks if channel is not None]
    groups = agent.groups.values()
    return lines + [
        f"  {one.name}: {one.kind.name} over {', '.join(one.sinks)}, {_lower(one.kind.summary)}" for one in groups
    ]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


_TELLING = (
    "topic",
    "kafka.topic",
    "kafka.topics",
    "kafka.bootstrap.servers",
    "capacity",
    "dataDirs",
    "command",
    "spoolDir",
    "hostname",
    "bind",
    "port",
)


def _said(component: ComponentDefinition) -> str:
    options = component.options
    told = []
    for name in _TELLING:
        value = options.get(name)
        if value not in (None, "", ()):
            told.append(f"{name} {' '.join(value) if isinstance(value, tuple) else value}")
    return f"{component.name} ({', '.join([component.kind.name, *told])})"
