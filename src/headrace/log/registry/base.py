"""The registry's words: schemas, versions, levels, and its errors, numbered as Confluent's clients expect them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from headrace.errors import HeadraceError
from headrace.log.codecs.base import SchemaType

Level = Literal["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"]
Mode = Literal["READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"]
LEVELS: tuple[Level, ...] = get_args(Level)
MODES: tuple[Mode, ...] = get_args(Mode)
SCHEMA_TYPES: tuple[SchemaType, ...] = get_args(SchemaType)
DEFAULT_LEVEL: Level = "BACKWARD"
MAX_SCHEMA_BYTES = 1024 * 1024
GLOBAL = ""
"""The subject of settings that hold for all that have none of their own."""


class RegistryError(HeadraceError):
    """With Confluent's number; its first three digits are the HTTP status."""

    code = "registry"

    def __init__(self, error_code: int, message: str, **more: Any) -> None:
        super().__init__(message, error_code=error_code, **more)
        self.error_code = error_code
        self.status = int(str(error_code)[:3])  # type: ignore[misc]


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"subject `{subject}` not found", hint="headrace schema list  shows all")


def version_not_found(subject: str, version: object) -> RegistryError:
    return RegistryError(40402, f"version {version} of subject `{subject}` not found")


def schema_not_found(what: str = "schema not found") -> RegistryError:
    return RegistryError(40403, what)


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(42201, f"invalid schema: {reason}")


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses, by the name it is used under."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it is kept: canonical text, so that the same is known again."""

    text: str
    type: SchemaType = "AVRO"
    references: tuple[Reference, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """`metadata` and `ruleSet`: kept for clients that act on them."""


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    subject: str
    version: int
    id: int
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """What one schema has that the other cannot cope with. `path` is where (`/fields/2/type`, `Order.total`)."""

    kind: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.path or '/'}: {self.message}"


@dataclass(frozen=True, slots=True)
class Config:
    compatibility: Level = DEFAULT_LEVEL
    normalize: bool = False
