"""What the tests of collectors share: a log with a topic, and gates over the files of a project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headrace.clock import Clock, SystemClock
from headrace.collect.base import Outcome, Sent, sent_objects
from headrace.collect.decode import EventCollector
from headrace.collect.gate import Arrival
from headrace.collect.gates import Gates
from headrace.config import load_project
from headrace.log.base import TopicSpec
from headrace.log.dead_letters import create_dead_letters
from headrace.log.local import LocalLog
from tests.log.support import VIEWS, open_owner, rows


@dataclass(frozen=True, slots=True)
class Gated:
    folder: Path
    log: LocalLog
    gates: Gates

    def write(self, name: str, text: str) -> None:
        """A collector's file, read at once."""
        file = self.folder / "collectors" / f"{name}.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        self.gates.reload()

    def take(self, name: str, *events: Any, **arrived: Any) -> Outcome:
        return self.gates.named(name).take(objects(*events), Arrival(**arrived)).result(30)

    def rows(self, topic: str = "pageviews") -> list[dict[str, Any]]:
        return rows(self.log, topic)


def objects(*events: Any) -> Sent:
    return sent_objects(events, lambda row: msgspec.json.encode(str(events[row])))


@contextmanager
def gated(folder: Path, toml: str = "", topic: TopicSpec = VIEWS, clock: Clock | None = None) -> Iterator[Gated]:
    """A project whose topic is `pageviews (userid KEY, pageid, n BIGINT)`."""
    (folder / "headrace.toml").write_text(toml)
    project, clock = load_project(folder), clock or SystemClock()
    log = open_owner(folder / "log", clock)
    try:
        create_dead_letters(log)
        log.create_topic(topic)
        yield Gated(folder, log, Gates(project, EventCollector(log, clock, project.settings.collect), clock))
    finally:
        log.close()
