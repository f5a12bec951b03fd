"""What the API answers about alerts."""

from __future__ import annotations

from typing import Literal

from headrace.deliver.alerts.state import State
from headrace.server.models.base import Count, Model


class AlertSubject(Model, frozen=True):
    subject: str
    state: State
    since_ms: int | None
    """Since when it is in this state; of one that fires, since when it is too much. None if it always was."""
    value: float | None
    """Now; None if that is not known."""
    detail: str
    """What was said when it came into this state."""
    fired: Count
    """How often it has fired."""


class AlertDestination(Model, frozen=True):
    to: str
    waiting: Count
    """Notices that it has not taken yet."""
    told_ms: int | None
    """When telling it was last over."""
    attempts: Count
    error: str | None
    """What went wrong the last time, or goes wrong now."""


class AlertModel(Model, frozen=True):
    name: str
    file: str
    watch: str
    about: str
    """The one subject it watches, or that it watches all."""
    rule: str
    """When it fires, in words."""
    description: str
    state: Literal["ok", "pending", "firing", "resolved", "disabled"]
    """That of its worst subject."""
    since_ms: int | None
    subjects: list[AlertSubject]
    """Those that are or were too much, newest first, and the one it names."""
    destinations: list[AlertDestination]
    problem: str | None


class AlertProblem(Model, frozen=True):
    """A file that cannot be read; the alert goes on as it was."""

    file: str
    line: Count
    message: str
    hint: str | None


class WatchModel(Model, frozen=True):
    name: str
    of: str
    summary: str


class AlertsAnswer(Model, frozen=True):
    alerts: list[AlertModel]
    problems: list[AlertProblem]
    watches: list[WatchModel]
    """What there is to watch."""


class AlertTrial(Model, frozen=True):
    to: str
    error: str | None
    """What went wrong; None if it was taken."""


class AlertTrials(Model, frozen=True):
    told: list[AlertTrial]
