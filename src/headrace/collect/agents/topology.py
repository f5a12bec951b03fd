"""Properties → an agent: which components there are, what they are told, and what is wrong with that, by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.collect.agents import interceptors, processors, selectors
from headrace.collect.agents.base import Role
from headrace.collect.agents.catalogue import NOT_HERE, kind_of, names_of
from headrace.collect.agents.cycles import find_cycles
from headrace.collect.agents.definition import (
    AgentDefinition,
    ComponentDefinition,
    GroupDefinition,
    InterceptorDefinition,
)
from headrace.collect.agents.options import Option, Options, Problem, convert, read_options, suggestion
from headrace.collect.agents.properties import Property, unknown_variables
from headrace.errors import ConfigError

PARTS: dict[str, Role | None] = {"sources": "source", "channels": "channel", "sinks": "sink", "sinkgroups": None}
_WORDS = Option("names", "words")
_REPLACEMENT = "replaceString"
_BATCHES = ("batchSize", "batch-size", "flumeBatchSize", "sink.batchSize", "maxBatchSize")


def agents_in(properties: Sequence[Property]) -> list[str]:
    """Their names, as they come."""
    names = [one.name.split(".")[0] for one in properties if one.name.count(".") and one.name.split(".")[1] in PARTS]
    return list(dict.fromkeys(names))


def read_agents(properties: Sequence[Property]) -> list[AgentDefinition]:
    """All agents of a file. What the file says of none is a problem of the first."""
    names = agents_in(properties)
    agents = [_Reader(name, properties).read() for name in names]
    around = [*_strays(properties, names), *find_cycles(agents)]
    if agents:
        agents[0] = replace(agents[0], problems=_sorted([*agents[0].problems, *around]))
    return agents


def read_agent(properties: Sequence[Property], name: str) -> AgentDefinition:
    """`ConfigError` if there is no such agent, or if it cannot run."""
    agents = {agent.name: agent for agent in read_agents(properties)}
    if name not in agents:
        there = ", ".join(f"`{one}`" for one in agents) or "none"
        raise ConfigError(f"the file has no agent `{name}`{suggestion(name, agents)}", hint=f"its agents: {there}")
    agent = agents[name]
    if agent.errors:
        said = [f"line {one.line}: {one.message}" + (f" ({one.hint})" if one.hint else "") for one in agent.errors]
        raise ConfigError(
            f"agent `{name}` cannot run", detail="\n  ".join(said), hint="headrace agent check FILE explains it"
        )
    return agent


def _strays(properties: Sequence[Property], agents: Sequence[str]) -> Iterable[Problem]:
    for one in properties:
        agent, _, rest = one.name.partition(".")
        part = rest.split(".")[0]
        if agent not in agents:
            yield Problem(
                one.line, f"`{one.name}` is no agent's property", "if it is a comment, begin it with `#`", "warning"
            )
        elif part not in PARTS:
            yield Problem(
                one.line,
                f"agent `{agent}` has no `{part}`{suggestion(part, PARTS)}",
                f"an agent has {', '.join(PARTS)}",
                "warning",
            )


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(set(problems), key=lambda one: (one.line, one.message)))


class _Reader:
    """Reads one agent, and gathers what is wrong."""

    def __init__(self, agent: str, properties: Sequence[Property]) -> None:
        self._agent = agent
        self._problems: list[Problem] = []
        self._names: dict[str, tuple[str, ...]] = dict.fromkeys(PARTS, ())
        self._given: dict[tuple[str, str], dict[str, Property]] = {}
        self._lines: dict[str, int] = {}
        self._first = 0
        for one in properties:
            parts = one.name.split(".", 3)
            if parts[0] != agent or len(parts) < 2 or parts[1] not in PARTS:
                continue
            self._first = min(self._first or one.line, one.line)
            # In a replacement it is a group's name.
            for variable in unknown_variables(one.value) if not one.name.endswith(_REPLACEMENT) else ():
                self._warn(
                    one.line,
                    f"the environment has no `{variable}`",
                    f"`{one.name}` stays as it is written; set it:  export {variable}=…",
                )
            if len(parts) == 2:
                self._declare(parts[1], one)
            elif len(parts) == 4:
                self._give(parts[1], parts[2], Property(parts[3], one.value, one.line))
            else:
                self._warn(
                    one.line, f"`{one.name}` says nothing about `{parts[2]}`", "write the property's name behind it"
                )

    def _declare(self, part: str, one: Property) -> None:
        names = convert(_WORDS, one.value)
        assert isinstance(names, tuple)
        self._names[part], self._lines[part] = names, one.line
        for name in {name for name in names if names.count(name) > 1}:
            self._fail(one.line, f"`{name}` is named twice in `{self._agent}.{part}`")

    def _give(self, part: str, name: str, one: Property) -> None:
        known = self._given.setdefault((part, name), {})
        if one.name in known:
            self._warn(
                one.line,
                f"`{one.name}` of `{name}` stands in line {known[one.name].line} already",
                "the last one counts",
            )
        known[one.name] = one

    def _fail(self, line: int, message: str, hint: str | None = None) -> None:
        self._problems.append(Problem(line, message, hint))

    def _warn(self, line: int, message: str, hint: str | None = None) -> None:
        self._problems.append(Problem(line, message, hint, "warning"))

    def read(self) -> AgentDefinition:
        for part in ("sources", "channels", "sinks"):
            if not self._names[part]:
                self._fail(
                    self._lines.get(part, self._first or 1),
                    f"agent `{self._agent}` has no {part}",
                    f"name them:  {self._agent}.{part} = …",
                )
        for part, name in self._given:
            if name not in self._names[part]:
                line = min(one.line for one in self._given[part, name].values())
                self._warn(
                    line,
                    f"`{name}` is not among `{self._agent}.{part}`{suggestion(name, self._names[part])}",
                    f"add it there, or it is left out:  {self._agent}.{part} = {' '.join((*self._names[part], name))}",
                )
        channels = self._components("channels")
        sources, sinks = self._components("sources"), self._components("sinks")
        groups = self._groups(sinks)
        self._check_bindings(sources, channels, sinks)
        return AgentDefinition(self._agent, sources, channels, sinks, groups, _sorted(self._problems))

    def _components(self, part: str) -> dict[str, ComponentDefinition]:
        found = {}
        for name in self._names[part]:
            component = self._component(part, name, dict(self._given.get((part, name), {})))
            if component is not None:
                found[name] = component
        return found

    def _component(self, part: str, name: str, given: dict[str, Property]) -> ComponentDefinition | None:
        role = PARTS[part]
        assert role is not None
        line = min((one.line for one in given.values()), default=self._lines[part])
        what = f"{role} `{name}`"
        type_ = given.pop("type", None)
        if type_ is None:
            self._fail(line, f"{what} has no `type`", f"{self._agent}.{part}.{name}.type = …")
            return None
        kind = kind_of(role, type_.value)
        if kind is None:
            hint = NOT_HERE.get(type_.value.lower(), "types: " + ", ".join(names_of(role)))
            self._fail(
                type_.line, f"there is no {role} of type `{type_.value}`{suggestion(type_.value, names_of(role))}", hint
            )
            return None
        bound = given.pop("channels" if role == "source" else "channel", None) if role != "channel" else None
        channels = tuple(bound.value.replace(",", " ").split()) if bound is not None else ()
        around = {key: given.pop(key) for key in list(given) if role == "source" and _is_around(key)}
        options, problems = read_options(f"{what} ({kind.name})", kind.options, given, type_.line)
        self._problems += problems
        if not any(problem.severity == "error" for problem in problems):
            self._check_values(kind.check(options), given, type_.line, what)
        selector, selector_options = self._selector(what, around, type_.line) if role == "source" else (None, None)
        return ComponentDefinition(
            name,
            kind,
            options,
            type_.line,
            channels,
            selector,
            selector_options,
            tuple(self._interceptors(what, around)),
        )

    def _check_values(
        self, found: Iterable[tuple[str, str, str | None]], given: Mapping[str, Property], line: int, what: str
    ) -> None:
        for name, message, hint in found:
            self._fail(given[name].line if name in given else line, f"{what}: {message}", hint)

    def _fail_unknown(self, what: str, type_: Property, known: list[str]) -> None:
        near = suggestion(type_.value, known)
        self._fail(type_.line, f"there is no {what} `{type_.value}`{near}", ", ".join(known))

    def _selector(self, what: str, around: Mapping[str, Property], line: int) -> tuple[selectors.SelectorKind, Options]:
        given = {key.removeprefix("selector."): one for key, one in around.items() if key.startswith("selector.")}
        type_ = given.pop("type", Property("type", "replicating", line))
        kind = selectors.BY_NAME.get(type_.value.lower())
        if kind is None:
            self._fail_unknown("selector", type_, [kind.name for kind in selectors.SELECTORS])
            kind, given = selectors.SELECTORS[0], {}
        options, problems = read_options(f"the selector of {what}", kind.options, given, type_.line)
        self._problems += problems
        return kind, options

    def _interceptors(self, what: str, around: Mapping[str, Property]) -> Iterable[InterceptorDefinition]:
        named = around.get("interceptors")
        for name in named.value.replace(",", " ").split() if named else ():
            assert named is not None
            prefix = f"interceptors.{name}."
            given = {key.removeprefix(prefix): one for key, one in around.items() if key.startswith(prefix)}
            type_ = given.pop("type", None)
            if type_ is None:
                self._fail(named.line, f"interceptor `{name}` of {what} has no `type`")
                continue
            kind = interceptors.BY_NAME.get(type_.value.lower())
            if kind is None:
                self._fail_unknown("interceptor", type_, [kind.name for kind in interceptors.INTERCEPTORS])
                continue
            options, problems = read_options(f"interceptor `{name}` of {what}", kind.options, given, type_.line)
            self._problems += problems
            if not problems:
                self._check_values(kind.check(options), given, type_.line, f"interceptor `{name}`")
            yield InterceptorDefinition(name, kind, options)

    def _groups(self, sinks: Mapping[str, ComponentDefinition]) -> dict[str, GroupDefinition]:
        found: dict[str, GroupDefinition] = {}
        member_of: dict[str, str] = {}
        for name in self._names["sinkgroups"]:
            given = dict(self._given.get(("sinkgroups", name), {}))
            line = min((one.line for one in given.values()), default=self._lines["sinkgroups"])
            named = given.pop("sinks", None)
            members = tuple(named.value.replace(",", " ").split()) if named else ()
            if not members:
                self._fail(line, f"sink group `{name}` has no sinks", f"{self._agent}.sinkgroups.{name}.sinks = …")
            for member in members:
                self._check_member(name, member, named.line if named else line, sinks, member_of)
            inner = {key.removeprefix("processor."): one for key, one in given.items()}
            type_ = inner.pop("type", Property("type", "default", line))
            kind = processors.BY_NAME.get(type_.value.lower())
            if kind is None:
                self._fail_unknown("sink processor", type_, [kind.name for kind in processors.PROCESSORS])
                continue
            options, problems = read_options(f"the processor of sink group `{name}`", kind.options, inner, type_.line)
            self._problems += problems
            present = tuple(member for member in members if member in sinks)
            if present:
                found[name] = GroupDefinition(name, present, kind, options, line)
        return found

    def _check_member(
        self, group: str, member: str, line: int, sinks: Mapping[str, ComponentDefinition], member_of: dict[str, str]
    ) -> None:
        if member not in self._names["sinks"]:
            self._fail(
                line, f"sink group `{group}` names a sink `{member}` that is not there{suggestion(member, sinks)}"
            )
        elif member in member_of:
            self._fail(
                line, f"sink `{member}` is in the groups `{member_of[member]}` and `{group}`", "a sink has one group"
            )
        member_of[member] = group

    def _check_bindings(
        self,
        sources: dict[str, ComponentDefinition],
        channels: Mapping[str, ComponentDefinition],
        sinks: dict[str, ComponentDefinition],
    ) -> None:
        for role, components in (("source", sources), ("sink", sinks)):
            for component in components.values():
                self._check_channels(role, component, channels)
        for name, channel in channels.items():
            used = [*sources.values(), *sinks.values()]
            if not any(name in one.channels for one in used):
                self._warn(channel.line, f"nothing uses channel `{name}`")
            elif not any(name in one.channels for one in sinks.values()):
                self._warn(channel.line, f"no sink takes from channel `{name}`", "it fills, and then its sources wait")
            elif not any(name in one.channels for one in sources.values()) and channel.kind.name != "kafka":
                self._warn(channel.line, f"no source puts into channel `{name}`")

    def _check_channels(
        self, role: str, component: ComponentDefinition, channels: Mapping[str, ComponentDefinition]
    ) -> None:
        key = "channels" if role == "source" else "channel"
        if not component.channels:
            self._fail(
                component.line,
                f"{role} `{component.name}` has no {key}",
                f"{self._agent}.{role}s.{component.name}.{key} = {next(iter(channels), '…')}",
            )
        given = self._given[f"{role}s", component.name]
        line = given[key].line if key in given else component.line
        if role == "sink" and len(component.channels) > 1:
            self._fail(line, f"sink `{component.name}` takes from one channel, not from {len(component.channels)}")
        for name in component.channels:
            if name not in self._names["channels"]:
                self._fail(
                    line,
                    f"{role} `{component.name}` names a channel `{name}` that is not there{suggestion(name, channels)}",
                )
            elif name in channels:
                self._check_batch(role, component, channels[name], given)
        if role == "source" and component.selector_options is not None:
            self._check_selected(component, given)

    def _check_selected(self, component: ComponentDefinition, given: Mapping[str, Property]) -> None:
        for key, one in given.items():
            if key.startswith(("selector.mapping.", "selector.optional", "selector.default")):
                for name in one.value.replace(",", " ").split():
                    if name not in component.channels:
                        self._fail(
                            one.line,
                            f"the selector of source `{component.name}` names `{name}`, which is none of its channels",
                            f"add it to `{self._agent}.sources.{component.name}.channels`",
                        )

    def _check_batch(
        self, role: str, component: ComponentDefinition, channel: ComponentDefinition, given: Mapping[str, Property]
    ) -> None:
        most = channel.options.get("transactionCapacity")
        for key in _BATCHES:
            size = component.options.get(key)
            if most is not None and isinstance(size, int) and size > most and key in given:
                self._warn(
                    given[key].line,
                    f"`{key}` {size} of {role} `{component.name}` is more than the `transactionCapacity` {most} of "
                    f"channel `{channel.name}`",
                    f"batches of {most} are used; raise `transactionCapacity`",
                )


def _is_around(key: str) -> bool:
    return key.startswith(("selector.", "interceptors.")) or key == "interceptors"
