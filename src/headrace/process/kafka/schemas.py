"""The registry as Spark's Python workers see it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from headrace.clock import SystemClock
from headrace.config import LogSettings
from headrace.errors import NotFound, UsageError
from headrace.log.base import TopicSpec
from headrace.log.codecs.base import Schemas, SchemaType, WriterSchema
from headrace.log.codecs.formats import REGISTRY_FORMATS
from headrace.log.kafka import KafkaLog
from headrace.log.registry.base import RegistryError
from headrace.log.registry.registry import Registry
from headrace.structs import ready


@dataclass(slots=True)
class WorkerSchemas:
    """`codecs.base.Schemas`, pickled into a query's functions: what the registry held of a topic when the query was
    started. A schema that was registered later is looked for in Kafka, at most once a batch: whoever wrote a record
    with it registered it first."""

    settings: LogSettings
    password: str
    known: dict[int, WriterSchema]
    subjects: Mapping[str, tuple[int, ...]]
    _asked: bool = field(default=False, init=False)

    def begin_batch(self) -> None:
        self._asked = False

    def by_id(self, schema_id: int) -> WriterSchema:
        if schema_id not in self.known:
            self.known[schema_id] = self._look(schema_id)
        return self.known[schema_id]

    def newest(self, subject: str) -> WriterSchema:
        if not self.subjects.get(subject):
            raise NotFound(f"subject `{subject}` is not registered")
        return self.known[self.subjects[subject][-1]]

    def ids(self, subject: str) -> list[int]:
        return list(self.subjects.get(subject, ()))

    def register(self, subject: str, type_: SchemaType, schema: str) -> int:
        raise UsageError(f"subject `{subject}`: a task registers no schemas")

    def _look(self, schema_id: int) -> WriterSchema:
        if self.password:
            os.environ.setdefault(self.settings.kafka.password_env, self.password)
        registry = _opened(msgspec.json.encode(self.settings))
        if not self._asked:
            registry.refresh()
            self._asked = True
        try:
            schema = registry.schema(schema_id)
        except RegistryError as error:
            raise NotFound(error.message) from None
        return WriterSchema(schema_id, schema.type, schema.text, registry.references(schema))


@lru_cache(maxsize=8)
def _opened(settings: bytes) -> Registry:
    """One for all queries of a worker."""
    return Registry(KafkaLog(msgspec.json.decode(settings, type=ready(LogSettings)), SystemClock()))


def worker_schemas(log: KafkaLog, password: str, topic: TopicSpec) -> WorkerSchemas | None:
    """None for a topic whose formats need no registry, or if there is none."""
    formats = {"key": topic.key_format, "value": topic.value_format}
    sides = [side for side, format_ in formats.items() if format_.upper() in REGISTRY_FORMATS]
    if not sides or log.schemas is None:
        return None
    schemas: Schemas = log.schemas
    subjects = {subject: _newest_last(schemas, subject) for subject in (f"{topic.name}-{side}" for side in sides)}
    asked = [options.schema_id for options in (topic.key_options, topic.value_options)]
    wanted = {id_ for ids in subjects.values() for id_ in ids} | {id_ for id_ in asked if id_ is not None}
    return WorkerSchemas(log.settings, password, {id_: schemas.by_id(id_) for id_ in wanted}, subjects)


def _newest_last(schemas: Schemas, subject: str) -> tuple[int, ...]:
    ids = schemas.ids(subject)
    if not ids:
        return ()
    newest = schemas.newest(subject).id
    return (*(one for one in ids if one != newest), newest)
