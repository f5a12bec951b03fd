"""The catalog's vocabulary: what is defined and what should run. Events on the topic `_catalog` change it,
nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headrace.functions.files import FunctionFile
from headrace.store.cuts import Cut

CATALOG_TOPIC = "_catalog"
DEAD_LETTERS_TOPIC = "_dead_letters"
TRANSIENT_PREFIX = "_transient."
"""Begins the topics of push queries that run in the engine."""


QUESTION_PREFIX = "ASK"
"""Begins the ids of questions that the engine answers: a SELECT without EMIT, which ends."""


def is_question(query_id: str) -> bool:
    return query_id.startswith(f"{QUESTION_PREFIX}_")


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
    sink_topic: str = ""
    """Which version of the sink: the one with this topic. Filled in when the event is read, if it does not say."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """By source: the topic of the version it reads. What it reads stays when another version begins to serve."""
    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By topic and partition: where a build begins; from the log's start where it does not say."""
    rows_per_second: int = 0
    """How much it may read; 0 is as much as it can."""
    until: Cut | None = None
    """What it must not read beyond, while it is compared."""
    functions: tuple[FunctionFile, ...] = ()
    """The Python functions it uses, as they were: it goes on with them whatever becomes of the files."""
    layer: Literal["", "batch", "speed"] = ""
    """Of a Lambda view: the job that computes the batch layer and ends, or the query that goes on from the cut."""
    cut: Cut = 0
    """The arrival number that a batch layer ends at and a speed layer begins at."""
    keeps_empty: bool = False
    """It goes on with a state of before empty groups went (docs/decisions/0131), though its table was declared anew."""

    @property
    def inserts(self) -> bool:
        """INSERT INTO … SELECT: one more writer of what is there; nothing is made of it."""
        return self.statement[:6].upper() == "INSERT"


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A table that is served: which version, written by which query."""

    name: str
    version: int
    query_id: str | None
    topic: str
