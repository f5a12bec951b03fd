"""The registry's state, folded from the events on `_schemas`. The same events give the same state anywhere.

An event says how many had had an effect when it was made. One that comes too late, because another was written first,
has none: its writer looks again and makes a new one. So any number of writers may share the topic.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from headrace.errors import LogError
from headrace.log.registry.base import GLOBAL, Config, Level, Mode, Reference, Schema, SubjectVersion
from headrace.structs import ready

EVENT_VERSION = 1


class ReferenceJson(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change. `type` decides which of the other fields mean something."""

    type: str
    """registered, deleted (softly), removed (for good), config, mode"""
    base: int
    """How many events had had an effect when it was made."""
    mark: str
    """Random, so that a writer knows its own."""
    v: int = EVENT_VERSION
    subject: str = GLOBAL
    version: int = 0
    id: int = 0
    schema: str = ""
    schema_type: str = "AVRO"
    references: list[ReferenceJson] = []
    extra: dict[str, Any] = {}
    compatibility: str | None = None
    normalize: bool | None = None
    mode: str | None = None


def new_event(type_: str, subject: str, **fields: Any) -> Event:
    """Without `base` and `mark`, which are the writer's to give."""
    return Event(type=type_, base=0, mark="", subject=subject, **fields)


def encode_event(event: Event) -> str:
    return msgspec.json.encode(event).decode()


def decode_event(text: str) -> Event:
    try:
        event = msgspec.json.decode(text, type=ready(Event))
    except msgspec.DecodeError as error:
        raise LogError(f"the registry's topic holds something else: `{text[:80]}`", detail=str(error)) from None
    if event.v > EVENT_VERSION:
        raise LogError(
            f"the registry holds an event of version {event.v}, which this Headrace does not know",
            hint="upgrade:  pip install --upgrade headrace",
        )
    return event


@dataclass(slots=True)
class State:
    events: int = 0
    schemas: dict[int, Schema] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    """Fingerprint → id. A schema that is removed keeps its id: what was written with it may still be about."""
    subjects: dict[str, list[SubjectVersion]] = field(default_factory=dict)
    """In the order of versions, softly deleted ones too."""
    configs: dict[str, Config] = field(default_factory=dict)
    modes: dict[str, Mode] = field(default_factory=dict)
    last_id: int = 0

    def apply(self, event: Event) -> bool:
        """False if it came too late."""
        if event.base != self.events:
            return False
        # Counts what had an effect: of all events made for one state, the first wins, and somebody always does.
        self.events += 1
        match event.type:
            case "registered":
                self._register(event)
            case "deleted" | "removed":
                self._delete(event)
            case "config":
                self._configure(event)
            case "mode":
                if event.mode is None:
                    self.modes.pop(event.subject, None)
                else:
                    self.modes[event.subject] = event.mode  # type: ignore[assignment]
            case other:
                raise LogError(f"the registry holds an event `{other}`, which this Headrace does not know")
        return True

    def _register(self, event: Event) -> None:
        references = tuple(Reference(one.name, one.subject, one.version) for one in event.references)
        schema = Schema(event.schema, event.schema_type, references, event.extra)  # type: ignore[arg-type]
        self.schemas[event.id] = schema
        self.ids[fingerprint(schema)] = event.id
        self.last_id = max(self.last_id, event.id)
        versions = [one for one in self.subjects.get(event.subject, []) if one.version != event.version]
        versions.append(SubjectVersion(event.subject, event.version, event.id))
        self.subjects[event.subject] = sorted(versions, key=lambda one: one.version)

    def _delete(self, event: Event) -> None:
        """`version` 0 is all of them."""
        kept: list[SubjectVersion] = []
        for one in self.subjects.get(event.subject, []):
            if event.version not in (0, one.version):
                kept.append(one)
            elif event.type == "deleted":
                kept.append(replace(one, deleted=True))
        if kept:
            self.subjects[event.subject] = kept
        else:
            self.subjects.pop(event.subject, None)

    def _configure(self, event: Event) -> None:
        if event.compatibility is None and event.normalize is None:
            self.configs.pop(event.subject, None)
            return
        known = self.configs.get(event.subject) or self.configs.get(GLOBAL) or Config()
        level: Level = event.compatibility or known.compatibility  # type: ignore[assignment]
        self.configs[event.subject] = Config(level, known.normalize if event.normalize is None else event.normalize)

    def versions(self, subject: str, deleted: bool = False) -> list[SubjectVersion]:
        return [one for one in self.subjects.get(subject, []) if deleted or not one.deleted]

    def config(self, subject: str) -> Config:
        return self.configs.get(subject) or self.configs.get(GLOBAL) or Config()

    def mode(self, subject: str) -> Mode:
        return self.modes.get(subject) or self.modes.get(GLOBAL) or "READWRITE"


def fingerprint(schema: Schema) -> str:
    """The same for the same canonical schema."""
    references = [[one.name, one.subject, one.version] for one in schema.references]
    parts = [schema.type, schema.text, references, schema.extra]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()
