"""Agents, channels and events for the tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.clock import SystemClock
from headrace.collect.agents.base import Channel, Counters, Event, Role
from headrace.collect.agents.ports import LogWriter, Ports, Written
from headrace.collect.agents.properties import parse_properties
from headrace.collect.agents.running import Agent
from headrace.collect.agents.topology import read_agent
from headrace.collect.agents.writers import DirectWriter
from headrace.collect.decode import EventCollector
from headrace.config import CollectSettings, LogSettings
from headrace.log.base import Log
from headrace.log.local import LocalLog


def counters(role: Role = "channel", name: str = "c") -> Counters:
    return Counters(role, name, SystemClock())


def events(*bodies: str) -> list[Event]:
    return [Event(body.encode()) for body in bodies]


def bodies(found: Sequence[Event]) -> list[str]:
    return [event.body.decode() for event in found]


def put(channel: Channel, *texts: str) -> None:
    with channel.transaction() as transaction:
        transaction.put(events(*texts))


def take(channel: Channel, most: int = 100) -> list[str]:
    with channel.transaction() as transaction:
        return bodies(transaction.take(most))


def agent(text: str, ports: Ports | None = None, name: str = "a1") -> Agent:
    return Agent(read_agent(parse_properties(text), name), ports or Ports())


@contextmanager
def running(text: str, ports: Ports | None = None, name: str = "a1") -> Iterator[Agent]:
    found = agent(text, ports, name)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def log_ports(log: Log, folder: Path, **more: Any) -> Ports:
    settings = CollectSettings()
    clock = SystemClock()
    writer = DirectWriter(log, EventCollector(log, clock, settings), settings, clock.now_ms, "agent a1")
    return Ports(folder=folder, open_log=lambda: writer, **more)


@contextmanager
def local_log(folder: Path) -> Iterator[LocalLog]:
    log = LocalLog(folder, LogSettings(linger_ms=0.0), SystemClock(), serve=False)
    try:
        yield log
    finally:
        log.close()


def values(log: Log, topic: str) -> list[bytes]:
    """All records of a topic of bytes, in order, partition by partition."""
    if topic not in log.snapshot().ends:
        return []
    found: list[bytes] = []
    for partition, ends in enumerate(log.snapshot().ends[topic]):
        for records in log.read(topic, partition, ends.start, ends.end, ["VALUE"]):
            found += records.batch.column("VALUE").to_pylist()
    return found


class Shelf(LogWriter):
    """Keeps what it is given, and fails when told to: a next hop that can go away."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.broken = threading.Event()

    def write(self, topic: str, events: Sequence[Event]) -> Written:
        if self.broken.is_set():
            raise OSError("the next hop is away")
        self.events += events
        return Written(len(events))

    def open_topic(self, topic: str, make: bool) -> None:
        return None

    def bury(self, topic: str, events: Sequence[Event], reason: str) -> None:
        raise AssertionError(f"it takes everything: {reason}")

    def close(self) -> None:
        return None
