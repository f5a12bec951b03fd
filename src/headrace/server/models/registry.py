"""What the schema registry's API takes and answers. Names and shapes are Confluent's."""

from __future__ import annotations

from typing import Any

import msgspec


class RegistryModel(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Clients may send more than we use; it is not an error."""


class ReferenceModel(RegistryModel, frozen=True):
    name: str
    subject: str
    version: int


class SchemaRequest(RegistryModel, frozen=True):
    schema: str
    schema_type: str | None = None
    references: list[ReferenceModel] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None


class SchemaAnswer(RegistryModel, frozen=True, kw_only=True):
    schema: str
    schema_type: str = "AVRO"
    references: list[ReferenceModel] = []
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    subject: str | None = None
    id: int | None = None
    version: int | None = None
    max_id: int | None = None
    deleted: bool = False


class Registered(RegistryModel, frozen=True):
    id: int
    version: int
    subject: str


class VersionOf(RegistryModel, frozen=True):
    subject: str
    version: int


class CompatibilityAnswer(msgspec.Struct, frozen=True):
    is_compatible: bool
    messages: list[str] = []
    breaks: list[str] = []
    """Streams, tables and queries that would read what they cannot."""


class ConfigRequest(RegistryModel, frozen=True):
    compatibility: str | None = None
    compatibility_level: str | None = None
    normalize: bool | None = None


class ConfigWritten(RegistryModel, frozen=True):
    compatibility: str
    normalize: bool = False


class ConfigAnswer(RegistryModel, frozen=True):
    compatibility_level: str
    normalize: bool = False


class ModeModel(RegistryModel, frozen=True):
    mode: str


class RegistryErrorAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    error_code: int
    message: str
    hint: str | None = None
    problems: list[str] = []
    breaks: list[str] = []
