"""What the API says of dead letters."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from headrace.server.models.base import Count, Model, Optional


class DeadLetterModel(Optional, frozen=True, kw_only=True):
    offset: Count
    time_ms: Count
    topic: str
    reason: str
    source: str
    id: str | None
    bytes: str
    text: str | None = None
    attempts: Count
    """How often it was tried: until it became a letter, and since then."""
    redriven: bool = False


class DeadLetters(Model, frozen=True):
    dead_letters: list[DeadLetterModel]
    total: Count


class RedriveRequest(Model, frozen=True):
    where: str | None = None
    """SQL over the letter and the event's fields as text; without it, all that were not sent again yet."""
    values: Annotated[dict[str, str], msgspec.Meta(max_length=1000)] = msgspec.field(name="set", default_factory=dict)
    """Column, or `payload`, → what it is to be, in SQL."""
    preview: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


class RedriveSample(Model, frozen=True):
    letter: DeadLetterModel
    event: str | None
    """As it is sent; null if it could not be made."""
    outcome: Literal["accepted", "duplicate", "rejected"]
    reason: str | None


class Redriven(Model, frozen=True):
    """With `preview`, what would be. The samples are the first of each outcome."""

    matched: Count
    accepted: Count
    duplicates: Count
    rejected: Count
    samples: list[RedriveSample]
