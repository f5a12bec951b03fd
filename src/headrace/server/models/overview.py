"""The whole project at a glance, and whether it is up."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.server.models.base import Count, Model


class Node(Model, frozen=True):
    id: str
    kind: Literal["collector", "topic", "query", "view"]
    name: str
    rate: float
    state: Literal["ok", "lagging", "failed", "starting", "idle"]
    message: str | None
    detail: dict[str, Any]


class Edge(Model, frozen=True):
    from_: str = msgspec.field(name="from")
    to: str
    rate: float


class Totals(Model, frozen=True):
    events: Count
    rate: float
    dead_letters: Count
    """How many there ever were."""
    open_dead_letters: Count
    """Those that were not sent again with success."""
    late_rows: Count
    bytes: Count
    alerts: Count
    """Those that fire."""


class EngineModel(Model, frozen=True):
    state: str
    pid: int | None
    detail: str | None = None


class Overview(Model, frozen=True):
    project: str
    version: str
    uptime_s: float
    nodes: list[Node]
    edges: list[Edge]
    totals: Totals
    engine: EngineModel


class RatesHistory(Model, frozen=True):
    """Records a second at each of the times, oldest first, by a node's id; `total` is what arrived."""

    times_ms: list[int]
    rates: dict[str, list[float]]


class Health(Model, frozen=True):
    status: Literal["ok"]


class Ready(Model, frozen=True):
    """The project is ready if nothing is waited for and nothing failed."""

    waiting_for: list[str]
    problems: list[str] = []
    """What the project's files get wrong, with its place: `failed`, and what runs on as it was."""
    failed: list[str] = []
    """Statements and functions of the project's files that could not be created, with file, line and reason. They keep
    the project from being ready; everything else is served."""
