"""What the API says about tickets."""

from __future__ import annotations

from typing import Any, Literal

from headrace.server.models.base import Count, Model
from headrace.server.models.events import Rejected


class TicketGiven(Model, frozen=True):
    ticket: str
    state: Literal["waiting"]
    result: str
    """Where its result will be."""


class TicketResult(Model, frozen=True):
    accepted: Count
    duplicates: Count
    rejections: Count
    rejected: list[Rejected]
    """The first thousand of them."""
    positions: list[tuple[int, int, int]]
    repeated: bool
    shed: Count
    """Left out by the collector's `[shed]`."""


class CallbackModel(Model, frozen=True):
    url: str
    state: Literal["waiting", "delivered", "undelivered"]
    attempts: Count
    error: str | None


class TicketModel(Model, frozen=True):
    ticket: str
    state: Literal["waiting", "done", "failed"]
    taken_at: str
    result: TicketResult | None
    error: dict[str, Any] | None
    """Why nothing was taken, if it failed."""
    callback: CallbackModel | None
