"""An agent's way to the log: a server over HTTP, or the project's own log."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from headrace.clock import SystemClock
from headrace.collect.agents.base import Event
from headrace.collect.agents.ports import LogWriter, Written
from headrace.collect.agents.texts import json_headers, readable, to_bytes
from headrace.collect.agents.writers import DirectWriter, event_time
from headrace.collect.decode import EventCollector
from headrace.config import Project
from headrace.errors import Conflict, NotFound, NotRunning, Refused, TooLarge

if TYPE_CHECKING:
    from headrace.cli.api import Api
    from headrace.log.base import Log


logger = logging.getLogger("headrace.agent")

COMING_BACK_S = 30.0


def project_writer(project: Project, source: str) -> LogWriter:
    """Through the owner if one runs, else as the owner, for as long as the agent runs."""
    clock = SystemClock()
    log = _open(project)
    settings = project.settings.collect
    collector = EventCollector(log, clock, settings)
    return DirectWriter(log, collector, settings, clock.now_ms, source, log.close)


def _open(project: Project) -> Log:
    """As a client that sends again what was not answered, should the server be started anew meanwhile."""
    from headrace.log.local.gathering_client import GatheringClient
    from headrace.log.local.lock import read_holder
    from headrace.log.open import open_log
    from headrace.log.registry.schemas import RegistrySchemas

    deadline = time.monotonic() + COMING_BACK_S
    while project.settings.log.backend == "local":
        try:
            client = GatheringClient(project.log_folder)
            client.schemas = RegistrySchemas.of_log(client)
            return client
        except (NotRunning, NotFound, FileNotFoundError):
            # An owner that was killed left its name: it is about to be started again, and must not find us there.
            if read_holder(project.log_folder) is None or time.monotonic() > deadline:
                logger.warning("project `%s` is not running: this agent owns its log until it ends", project.name)
                break
            time.sleep(0.2)
    return open_log(project, SystemClock())


class HttpWriter(LogWriter):
    """A server's API. What is sent again after a lost answer has the same ids, and lands once."""

    def __init__(self, api: Api, source: str) -> None:
        self._api, self._source = api, source
        self._kinds: dict[str, str] = {}

    def write(self, topic: str, events: Sequence[Event]) -> Written:
        raw = self._kind(topic) == "raw"
        try:
            answer = self._send(topic, [_record(event, raw) for event in events])
        except TooLarge:
            if len(events) == 1:
                raise
            half = len(events) // 2
            first, second = self.write(topic, events[:half]), self.write(topic, events[half:])
            return Written(
                first.accepted + second.accepted,
                first.duplicates + second.duplicates,
                first.rejected + second.rejected,
            )
        return Written(answer["accepted"], answer["duplicates"], len(answer["rejected"]))

    def open_topic(self, topic: str, make: bool) -> None:
        self._kind(topic, make)

    def bury(self, topic: str, events: Sequence[Event], reason: str) -> None:
        """The server makes a letter, with all that is in it, of a record that has a field it does not know."""
        self._kind(topic)
        for event in events:
            self._send(topic, [{"refused": reason} | _record(event, raw=True)])

    def _send(self, topic: str, records: list[dict[str, Any]]) -> Any:
        body = msgspec.json.encode({"records": records})
        try:
            return self._api.request(
                "POST", f"{_path(topic)}/records", content=body, headers={"Content-Type": "application/json"}
            )
        except NotFound:
            # It was deleted since: it is made anew when they are sent again.
            self._kinds.pop(topic, None)
            raise

    def _kind(self, topic: str, make: bool = True) -> str:
        if topic not in self._kinds:
            if topic.startswith("_"):
                raise Refused(f"topic `{topic}` is Headrace's own: nobody sends events to it")
            try:
                found = self._api.get(_path(topic))
            except NotFound:
                if not make:
                    raise
                found = self._api.post("/v1/topics", {"name": topic, "kind": "raw"})
            if found.get("role", "events") != "events":
                raise Conflict(f"topic `{topic}` is written by a query", hint="name another topic")
            self._kinds[topic] = found["kind"]
        return self._kinds[topic]

    def close(self) -> None:
        self._api.close()


def _path(topic: str) -> str:
    return f"/v1/topics/{quote(readable(topic), safe='')}"


def _record(event: Event, raw: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"value": {"base64": base64.b64encode(event.body).decode()} if raw else _json(event.body)}
    if event.headers:
        record["headers"] = json_headers(event.headers)
    if raw and "key" in event.headers:
        record["key"] = {"base64": base64.b64encode(to_bytes(event.headers["key"])).decode()}
    if event.id is not None:
        record["id"] = event.id
    time = event_time(event.headers)
    if time is not None:
        record["time"] = time
    return record


def _json(body: bytes) -> Any:
    """As it is, if it is JSON; else as text, which the server makes a dead letter of."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "replace")
    return msgspec.Raw(body)
