"""An agent that runs with the project: `collectors/NAME.toml` with `type = "agent"`, or `collectors/NAME.properties`.

Its sinks of type `headrace`, and its Kafka sinks where no broker answers, pass the collector's gate like all other
events.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headrace.collect.agents.base import Event
from headrace.collect.agents.definition import AgentDefinition
from headrace.collect.agents.ports import LogWriter, Ports, Written
from headrace.collect.agents.properties import with_environment
from headrace.collect.agents.reading import agent_of, toml_properties
from headrace.collect.agents.running import Agent
from headrace.collect.agents.texts import json_headers, to_bytes
from headrace.collect.agents.topology import read_agent, read_agents
from headrace.collect.agents.writers import event_time, json_events, letters_of, open_topic, written
from headrace.collect.base import Outcome, Sent
from headrace.collect.definitions import CollectorSettings, Definition
from headrace.collect.feed import Feed
from headrace.collect.gate import Arrival
from headrace.config import Project
from headrace.errors import ConfigError
from headrace.log.base import HEADERS, ID, TIME

T = TypeVar("T")

LOOK_S = 1.0
STOP_S = 3.0
_TABLES = ("sources", "channels", "sinks", "sinkgroups")


class AgentSettings(CollectorSettings, frozen=True, kw_only=True):
    conf: str = ""
    """A `.properties` or `.toml` file of Flume's kind, relative to the project; instead of the tables below."""
    agent: str = ""
    """Which agent of that file; by default the one of the collector's name, or the only one."""
    brokers: str = "auto"
    """Where Kafka sinks write: `kafka`, the `log`, or `auto`: the log where no broker answers."""
    sources: dict[str, dict[str, Any]] = {}
    """`[sources.NAME]`: a source's `type`, `channels` and properties, by Flume's names."""
    channels: dict[str, dict[str, Any]] = {}
    """`[channels.NAME]`: a channel's `type` and properties."""
    sinks: dict[str, dict[str, Any]] = {}
    """`[sinks.NAME]`: a sink's `type`, `channel` and properties."""
    sinkgroups: dict[str, dict[str, Any]] = {}
    """`[sinkgroups.NAME]`: `sinks`, and `processor`."""

    def check(self) -> None:
        # An agent's sinks name their topics themselves.
        for table in (self.enrich, self.validate, self.privacy, self.quota, self.shed):
            table.check()
        if bool(self.conf) == bool(self.sources or self.channels or self.sinks):
            raise ConfigError(
                "an agent has either `conf` or tables of its own", hint='[sources.NAME], or conf = "FILE"'
            )
        if self.brokers not in ("auto", "kafka", "log"):
            raise ConfigError(f"`brokers` cannot be `{self.brokers}`", hint="auto, kafka or log", path=("brokers",))
        if not self.conf:
            self._check_tables()

    def _check_tables(self) -> None:
        for agent in read_agents(with_environment(toml_properties("agent", self._tables(), ""))):
            for error in agent.errors[:1]:
                raise ConfigError(error.message, hint=error.hint)

    def _tables(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _TABLES}


def definition_of(project: Project, definition: Definition) -> AgentDefinition:
    """`ConfigError` if it cannot run."""
    settings = definition.settings_as(AgentSettings)
    if not settings.conf:
        name = definition.name.replace(".", "-")
        return read_agent(with_environment(toml_properties(name, settings._tables(), definition.stamp)), name)
    file = project.folder / settings.conf
    if settings.agent:
        return agent_of(file, settings.agent)
    try:
        return agent_of(file, definition.name)
    except ConfigError:
        return agent_of(file)


async def start(feed: Feed) -> None:
    """Until cancelled. A changed `conf` starts the agent anew; a broken one lets it go on as it was."""
    await feed.call(feed.open_log)
    loop = asyncio.get_running_loop()
    while True:
        definition = await asyncio.to_thread(definition_of, feed.project, feed.definition)
        ports = Ports(
            clock=feed.clock,
            folder=feed.project.data / "agents",
            open_log=lambda: FeedWriter(feed, loop),
            brokers=feed.settings(AgentSettings).brokers,  # type: ignore[arg-type]
        )
        agent = await asyncio.to_thread(Agent, definition, ports)
        agent.start()
        try:
            await _watch(feed, agent)
        finally:
            await asyncio.shield(asyncio.to_thread(agent.stop, STOP_S))


async def _watch(feed: Feed, agent: Agent) -> None:
    """Say how it is, until its file has changed."""
    known, told = _stamp(feed), dict[str, str]()
    while True:
        waiting = ", ".join(f"{name} {channel.size():,}" for name, channel in agent.channels.items())
        feed.running(f"in channels: {waiting}")
        feed.counters.components = {f"{role} {name}": one.read() for (role, name), one in agent.counters.items()}
        for (role, name), counters in agent.counters.items():
            error = counters.last_error
            if error is not None and told.get(f"{role} {name}") != error:
                told[f"{role} {name}"] = error
                feed.counters.failed(f"{role} {name}: {error}")
        await asyncio.sleep(LOOK_S)
        if (now := _stamp(feed)) != known:
            known = now
            try:
                await asyncio.to_thread(definition_of, feed.project, feed.definition)
                return
            except ConfigError as error:
                feed.counters.failed(str(error))


def _stamp(feed: Feed) -> tuple[int, int] | None:
    conf = feed.settings(AgentSettings).conf
    try:
        status = Path(feed.project.folder / conf).stat() if conf else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if status is not None else None


class FeedWriter(LogWriter):
    """Through the collector's gate, in its writing thread."""

    def __init__(self, feed: Feed, loop: asyncio.AbstractEventLoop) -> None:
        self._feed, self._loop = feed, loop

    def write(self, topic: str, events: Sequence[Event]) -> Written:
        size = sum(len(event.body) for event in events)
        arrived = Arrival(size=size, position=lambda row: events[row].place)
        return written(self._call(self._take, topic, list(events), arrived))

    def open_topic(self, topic: str, make: bool) -> None:
        self._call(open_topic, self._feed, topic, make)

    def bury(self, topic: str, events: Sequence[Event], reason: str) -> None:
        source = f"agent {self._feed.definition.name}"
        self._call(self._feed.bury, letters_of(topic, events, reason, source))

    def _call(self, function: Callable[..., T], *arguments: object) -> T:
        return asyncio.run_coroutine_threadsafe(self._feed.call(function, *arguments), self._loop).result()

    def _take(self, topic: str, events: list[Event], arrived: Arrival) -> Outcome:
        found = open_topic(self._feed, topic)
        sent = raw_events(events) if found.spec.kind == "raw" else json_events(events)
        return self._feed.take(sent, arrived, topic)

    def close(self) -> None:
        """The collector's."""


def raw_events(events: Sequence[Event]) -> Sent:
    """For a topic of bytes, as its codec reads them."""

    def made(event: Event) -> dict[str, Any]:
        found: dict[str, Any] = {"value": base64.b64encode(event.body).decode()}
        if "key" in event.headers:
            found["key"] = base64.b64encode(to_bytes(event.headers["key"])).decode()
        if event.headers:
            found[HEADERS] = json_headers(event.headers)
        if event.id is not None:
            found[ID] = event.id
        if (time := event_time(event.headers)) is not None:
            found[TIME] = time
        return found

    return Sent([made(event) for event in events], lambda row: events[row].body)
