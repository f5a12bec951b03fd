"""What the API answers about collectors."""

from __future__ import annotations

from typing import Any, Literal

from headrace.collect.kinds import Where
from headrace.collect.status import State
from headrace.server.models.base import Count, Model
from headrace.server.models.events import Rejected


class CollectorModel(Model, frozen=True, kw_only=True):
    """One file of `collectors/`."""

    name: str
    type: str
    where: Where | None
    topic: str
    file: str
    state: State
    detail: str
    problem: str | None
    """What is wrong with the file; a collector that ran before goes on as it was."""
    rate: float
    received: Count
    """accepted + duplicates + rejected + shed + refused"""
    accepted: Count
    duplicates: Count
    rejected: Count
    shed: Count
    refused: Count
    bytes: Count
    errors: Count
    last_error: str | None
    last_error_ms: int | None
    last_event_ms: int | None
    connections: Count
    components: dict[str, dict[str, int | float]]
    """Of an agent: what each source, channel and sink counts since it was started."""


class CollectorDetail(CollectorModel, frozen=True, kw_only=True):
    settings: dict[str, Any]
    """As the file has them; secrets are not shown."""
    example: str
    """What to send, to be copied."""
    sample: dict[str, Any] | None
    """The test event that would be sent."""
    page: str
    warnings: list[str]
    """Ways past what it hides."""


class KindModel(Model, frozen=True):
    name: str
    where: Where
    summary: str
    page: str


class Collectors(Model, frozen=True):
    collectors: list[CollectorModel]
    kinds: list[KindModel]


class TrialEvent(Model, frozen=True):
    """Without an event, one is made."""

    event: dict[str, Any] | None = None


class TrialAnswer(Model, frozen=True):
    """What became of the test event."""

    outcome: Literal["accepted", "duplicate", "rejected", "shed"]
    event: dict[str, Any]
    """As it was sent."""
    topic: str
    partition: Count | None
    offset: Count | None
    rejected: list[Rejected]


class ResetWanted(Model, frozen=True):
    """Where a collector is to begin."""

    to: str = "beginning"
    """`beginning`, `end`, `PARTITION:OFFSET,…` or `cursor:VALUE`, as its type has them."""


class ResetAnswer(Model, frozen=True):
    name: str
    to: str
    cursor: Any
    """As it is kept."""


class VisitModel(Model, frozen=True):
    visitor: str
    session: str
    new_visitor: bool
    new_session: bool
    token: str
    """What later calls carry, as `X-Headrace-Visit` or as the cookie."""
