"""Versions of streams and tables, and the deployments that make them.

A name has one version that serves and others beside it: being built, kept for a rollback, failed. Each has its own
query, checkpoint, topic and, if it is a table, its own rows. All of it is folded from the catalog's events
(`coordinate.catalog`), so it is the same for whoever looks, and after any kill.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from headrace.sql.source import Source

VersionState = Literal["building", "caught up", "serving", "retired", "failed"]
Stage = Literal["building", "comparing", "waiting", "switching", "switched", "cancelled", "failed", "rolled back"]
Strategy = Literal["kappa", "lambda"]

RUNNING: tuple[Stage, ...] = ("building", "comparing", "waiting", "switching")
"""A deployment in one of these is not over."""

MOST_SERVED = 20
"""Somebody who switches back and forth all day must not make the catalog grow."""

NONE = 0
"""The number of no version: what a name is switched from when it is new, and to when it is dropped."""


class Layers(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a Lambda version is made of: a batch over what is before `cut`, and a stream of what came after."""

    cut: int | dict[str, dict[int, int]]
    """An arrival number, which says which records of every topic; on Kafka offsets by topic and partition."""
    batch: str
    """The id of the job that computes the batch layer."""
    speed: str
    """The id of the query that goes on from the cut."""
    begins: dict[str, list[int]] = {}
    """By topic and partition: the first record that was still there. What is gone cannot be computed again."""
    ends: dict[int, int] | None = None
    """By partition of the version's topic: where the batch layer ends; None while it is computed."""
    made_ms: int = 0
    """When the batch layer was there."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a stream or table. `source` has its topic and its query."""

    name: str
    number: int
    source: Source
    state: VersionState = "serving"
    deployment: int = 0
    """The one that made it; 0 for a statement."""
    since_ms: int = 0
    """When it came into its state, as far as that is known."""
    served: tuple[tuple[int, int], ...] = ()
    """From when to when it served, as far as that is known: 0 if it is not, or has not ended yet."""
    layers: Layers | None = None
    """Of a Lambda version."""

    def begins_to_serve(self, time_ms: int) -> Version:
        return replace(self, state="serving", since_ms=time_ms, served=(*self.served[-MOST_SERVED:], (time_ms, 0)))

    def retires(self, time_ms: int) -> Version:
        *before, (begun, _) = self.served or ((0, 0),)
        return replace(self, state="retired", since_ms=time_ms, served=(*before, (begun, time_ms)))


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a deployment does to one name."""

    name: str
    verdict: str
    """As `views.plan` says it."""
    number: int = NONE
    """Of the version it makes; 0 if it drops the name."""
    before: int = NONE
    """Of the version that served when it began; 0 if there was none."""
    statement: str = ""
    old_statement: str = ""
    origin: int = NONE
    """Of a refresh: the version that the first of several in a row began with."""
    old_strategy: Strategy = "kappa"
    """How the version before was computed."""


class ChangedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of Python functions that came with a deployment. None where there was none, or is none any more."""

    file: str
    old: str | None = None
    new: str | None = None


class Deployment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of what runs: who wanted it, what it does, how far it is."""

    id: int
    items: list[Item]
    started_ms: int
    who: str = ""
    strategy: Strategy = "kappa"
    max_changed: float | None = None
    """The gate: the share of rows that may differ, 0 to 1; None asks a person, unless `approved`."""
    approved: bool = False
    stage: Stage = "building"
    paused: bool = False
    rows_per_second: int = 0
    """What a build may read; 0 is as much as it can."""
    detail: str = ""
    """Why it is in this stage, where that is not plain."""
    changed_ms: int = 0
    rows_read: int = 0
    """By the build, when it had caught up; `build_ms` is how long that took."""
    build_ms: int = 0
    comparisons: list[dict[str, Any]] = []
    """By view: what `views.difference` found."""
    warnings: list[str] = []
    """What the plan noted: what its versions cannot have."""
    start: str = "beginning"
    """Where its replays began, as it was asked for."""
    functions: list[ChangedFile] = []
    again: bool = False
    """Whether it computes what runs again, unchanged: then nothing is compared, and the versions before, whose queries
    may not be able to go on, are let go soon."""

    @property
    def over(self) -> bool:
        return self.stage not in RUNNING

    def switches(self) -> dict[str, int]:
        """The version of each name that serves once it is switched."""
        return {item.name: item.number for item in self.items}

    def switches_back(self) -> dict[str, int]:
        return {item.name: item.before for item in self.items}

    def changes(self) -> set[str]:
        """The names whose version is another then: not those that were changed in place."""
        return {item.name for item in self.items if item.number != item.before}


def query_ids(version: Version) -> list[str]:
    """Those that write a version, whether they are there already, or still: of a Lambda one two."""
    batch = [version.layers.batch] if version.layers is not None else []
    return [*batch, version.source.query] if version.source.query else batch


def version_topic(topic: str, number: int) -> str:
    """The topic of a version that is built beside another: the name's own topic belongs to its first version.

    >>> version_topic("PAGE_VIEWS", 3)
    'PAGE_VIEWS.v3'
    """
    return f"{topic}.v{number}"


def version_state(stage: Stage) -> VersionState:
    """Of a version that a deployment is making."""
    match stage:
        case "comparing" | "waiting" | "switching":
            return "caught up"
        case "failed":
            return "failed"
        case _:
            return "building"
