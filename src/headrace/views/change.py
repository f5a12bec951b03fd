"""What a plan is made of: what is wanted, what runs, and what is to become of it.

The verdicts, in the order of what they cost:

- `nothing`: it is as it runs;
- `creates`: the name is new;
- `keeps its state`: another declaration, the same results; goes on where it is, nothing is computed again;
- `continues`: in place, if that was asked for: goes on from an offset, and what it has written stays as it is;
- `serves again`: a version that is kept is what is wanted; nothing is computed again;
- `rebuilds`: a new version is computed from the log beside the one that serves; of what is declared over the topic of
  something that has another version: it reads that version from the switch on;
- `drops`: no file has it any more;
- `refused`: cannot be done, why, and what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headrace.sql.plan import PersistentQuery
from headrace.sql.source import Source
from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.views.versions import NONE, Strategy

Verdict = Literal["nothing", "creates", "keeps its state", "continues", "serves again", "rebuilds", "drops", "refused"]
Definition = CreateSource | CreateAsSelect


@dataclass(frozen=True, slots=True)
class Wanted:
    """A statement, and where it stands; with `error` it cannot be read."""

    statement: Definition
    file: str = ""
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Runs:
    """What runs under a name."""

    source: Source
    number: int
    query: PersistentQuery | None = None
    """None for what is declared over a topic."""
    kept: Mapping[str, tuple[int, Source]] = field(default_factory=dict)
    """Of what is declared over a topic: the versions that are kept, by their topics."""
    inserted_by: tuple[str, ...] = ()
    """Queries of INSERT INTO that write to it."""
    inserts: tuple[str, ...] = ()
    """Queries of INSERT INTO that read it."""
    offsets: Mapping[int, int] = field(default_factory=dict)
    """How far its query has read its first input."""
    strategy: Strategy = "kappa"


@dataclass(frozen=True, slots=True)
class Figures:
    """What the log holds, and how fast it is read."""

    records: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    """By topic: how many records it no longer has."""
    compacted: frozenset[str] = frozenset()
    """Topics that keep only the newest record of each key."""
    apart: Mapping[str, int] = field(default_factory=dict)
    """On a log whose partitions are in no common order: how many each topic has."""
    rows_per_second: float = 0.0
    """Of the last build; 0 if there was none."""


@dataclass(frozen=True, slots=True)
class Change:
    """The verdict on one name."""

    name: str
    kind: Literal["stream", "table"]
    verdict: Verdict
    reason: str = ""
    hint: str = ""
    wanted: Wanted | None = None
    old_statement: str = ""
    number: int = NONE
    """Of the version it would make, or of the kept one that would serve."""
    before: int = NONE
    source: Source | None = None
    """As it would be."""
    query: PersistentQuery | None = None
    dependents: tuple[str, ...] = ()
    replays: int = 0
    offsets: Mapping[int, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    functions: frozenset[str] = frozenset()
    """Python functions that it calls, now or as it would be."""
    strategy: Strategy = "kappa"
    """How it is computed, or runs."""
    over: str = ""
    """Of what is declared: the stream or table whose topic it is declared over, if a query writes that."""
    because: str = ""
    """Of a refusal that only follows from another one: the name where something is wrong."""

    @property
    def statement(self) -> str:
        return self.wanted.statement.text if self.wanted else ""


@dataclass(frozen=True, slots=True)
class FunctionChange:
    """A Python function that is not what it was, and the streams and tables that call it."""

    name: str
    file: str
    verdict: Literal["new", "changed", "gone"]
    used_by: tuple[str, ...]
    topic: str = ""
    """Of a function that is called with the records of a topic."""


@dataclass(frozen=True, slots=True)
class Plan:
    changes: tuple[Change, ...]
    """Inputs before what reads them; those to do nothing about too."""
    figures: Figures
    functions: tuple[FunctionChange, ...] = ()
    from_scratch: tuple[str, ...] = ()
    """What fails, with file and line, where only the files are: in a fresh clone of the project."""

    @property
    def pending(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.verdict != "nothing")

    @property
    def refused(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.verdict == "refused")

    @property
    def wrong(self) -> tuple[Change, ...]:
        """The refused changes where something is wrong, without those that only read such a one."""
        return tuple(change for change in self.refused if not change.because)

    @property
    def replays(self) -> int:
        """Of what is computed. What a version that is kept has yet to read, it reads anyway."""
        return sum(change.replays for change in self.changes if change.verdict != "serves again")

    def seconds(self, replays: int) -> float | None:
        """About how long so many records take; None if nobody knows how fast it goes."""
        return replays / self.figures.rows_per_second if self.figures.rows_per_second else None
