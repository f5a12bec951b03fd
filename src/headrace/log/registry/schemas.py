"""The registry as codecs see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeVar

from headrace.errors import NotFound
from headrace.log.base import Log
from headrace.log.codecs.base import SchemaType, WriterSchema
from headrace.log.registry.base import RegistryError, Schema
from headrace.log.registry.registry import Registry

T = TypeVar("T")


class RegistrySchemas:
    """`codecs.base.Schemas`, of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._opened: Registry | None = registry
        self._log: Log | None = None

    @classmethod
    def of_log(cls, log: Log) -> Self:
        """Of the registry in a log, opened when a schema is first needed."""
        made = cls.__new__(cls)
        made._opened, made._log = None, log
        return made

    @property
    def _registry(self) -> Registry:
        if self._opened is None:
            assert self._log is not None
            self._opened = Registry(self._log)
        return self._opened

    def by_id(self, schema_id: int) -> WriterSchema:
        try:
            schema = self._registry.schema(schema_id)
        except RegistryError:
            # Somebody else may have just registered it.
            self._registry.refresh()
            schema = self._found(lambda: self._registry.schema(schema_id))
        return self._writer(schema_id, schema)

    def newest(self, subject: str) -> WriterSchema:
        self._registry.refresh()
        one = self._found(lambda: self._registry.version(subject, None))
        return self._writer(one.id, self._registry.schema(one.id))

    def ids(self, subject: str) -> list[int]:
        self._registry.refresh()
        return [one.id for one in self._registry.versions_or_none(subject)]

    def register(self, subject: str, type_: SchemaType, schema: str) -> int:
        return self._registry.register(subject, Schema(schema, type_)).id

    def _writer(self, schema_id: int, schema: Schema) -> WriterSchema:
        return WriterSchema(schema_id, schema.type, schema.text, self._registry.references(schema))

    def _found(self, look: Callable[[], T]) -> T:
        try:
            return look()
        except RegistryError as error:
            raise NotFound(error.message, hint=error.hint) from None
