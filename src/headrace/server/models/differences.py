"""What the API says about two versions of a view, compared when somebody asked."""

from __future__ import annotations

from typing import Any, Literal

from headrace.server.models.base import Count, Error, Model
from headrace.views.difference_rows import Differing


class CompareRequest(Model, frozen=True):
    """By default the version that serves with the one that came before it, or is to come after it."""

    old: Count | None = None
    new: Count | None = None


class DifferenceModel(Model, frozen=True):
    id: Count
    view: str
    old: Count
    new: Count
    state: Literal["waiting", "comparing", "done", "failed"]
    error: Error | None
    """Why it failed."""
    comparison: dict[str, Any] | None
    """Once it is done: rows same, changed, only in one of both; deltas by column, windows."""
    keys: list[str]
    columns: list[str]
    """That both versions have: what rows can be chosen by."""
    windowed: bool
    made_ms: Count
    found: Count
    """Rows that differ, as far as they were compared."""


class DifferenceRowsAnswer(Model, frozen=True):
    """The newest window first, then by key."""

    rows: list[Differing]
    matching: Count
    """How many there are in all, with these filters."""
    next: Count | None
    """What to give as `after` for those that follow; null if these are the last."""
