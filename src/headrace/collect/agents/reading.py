"""A file → the agents in it: Flume's `.properties`, or the same as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.collect.agents.definition import AgentDefinition
from headrace.collect.agents.properties import Property, read_properties, with_environment
from headrace.collect.agents.topology import PARTS, read_agent, read_agents
from headrace.errors import ConfigError
from headrace.toml_files import line_of

# Where Flume has a list of names and their properties below, TOML has a table.
_NAMED = ("filegroups", "interceptors", "serializers")


def read_file(file: Path, agent: str | None = None) -> list[Property]:
    """`agent` is the name of a TOML file's one agent; the file's own by default."""
    if file.suffix != ".toml":
        return with_environment(read_properties(file))
    try:
        text = file.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"there is no file `{file}`") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"`{file}` is not valid TOML: {error}") from None
    return with_environment(toml_properties(agent or file.stem, tables, text))


def agents_of(file: Path, agent: str | None = None) -> list[AgentDefinition]:
    return read_agents(read_file(file, agent))


def agent_of(file: Path, name: str | None = None) -> AgentDefinition:
    """The agent of that name, or the only one. `ConfigError` if it cannot run."""
    properties = read_file(file, name)
    if name is None:
        names = [agent.name for agent in read_agents(properties)]
        if len(names) != 1:
            there = ", ".join(names) or "none"
            raise ConfigError(f"`{file}` has {len(names)} agents: which?", hint=f"--name NAME; there is {there}")
        name = names[0]
    return read_agent(properties, name)


def toml_properties(agent: str, tables: Mapping[str, Any], text: str) -> list[Property]:
    """
    >>> [(p.name, p.value) for p in toml_properties("a", {"sources": {"r": {"type": "seq", "channels": ["c"]}}}, "")]
    [('a.sources', 'r'), ('a.sources.r.type', 'seq'), ('a.sources.r.channels', 'c')]
    """
    found: list[Property] = []
    for part in PARTS:
        components = tables.get(part, {})
        if not isinstance(components, dict):
            raise ConfigError(f"`{part}` must be a table of tables", hint=f"[{part}.NAME]")
        if components:
            found.append(Property(f"{agent}.{part}", " ".join(components), line_of(text, (part,))))
        for name, given in components.items():
            if not isinstance(given, dict):
                raise ConfigError(f"`{part}.{name}` must be a table", hint=f"[{part}.{name}]")
            for path, value in _flat(given):
                found.append(
                    Property(f"{agent}.{part}.{name}.{'.'.join(path)}", value, line_of(text, (part, name, *path)))
                )
    return found


def _flat(table: Mapping[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in table.items():
        path = (*before, key)
        if isinstance(value, dict):
            if key in _NAMED:
                yield path, " ".join(value)
            yield from _flat(value, path)
        elif isinstance(value, list):
            yield path, " ".join(map(_text, value))
        else:
            yield path, _text(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
