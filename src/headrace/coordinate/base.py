"""The catalog's vocabulary: what is defined and what should run. Events on the topic `_catalog` change it,
nothing else does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CATALOG_TOPIC = "_catalog"
DEAD_LETTERS_TOPIC = "_dead_letters"


def late_topic(query_id: str) -> str:
    return f"_late.{query_id}"


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """A query that should exist. The engine makes it so."""

    id: str
    version: int
    statement: str
    """CREATE … AS SELECT, as written; planned again by whoever runs it."""
    sink: str
    """Name of the stream or table it writes."""
    sources: tuple[str, ...]
    wanted: Literal["running", "stopped"] = "running"
    transient: bool = False
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A table that is served: which version, written by which query."""

    name: str
    version: int
    query_id: str | None
    topic: str
