"""Where a replay begins: the beginning, now, an offset or a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from headrace.errors import UsageError
from headrace.log.base import Log


def starts_from(text: str, log: Log, topics: Sequence[str]) -> dict[str, dict[int, int]]:
    """By topic and partition; nothing for the beginning."""
    if text == "beginning":
        return {}
    ends = log.snapshot().ends
    found: dict[str, dict[int, int]] = {}
    for topic in topics:
        for number, end in enumerate(ends.get(topic, ())):
            if text == "now":
                offset = end.end
            elif text.isascii() and text.isdigit() and len(text) < 20:
                offset = int(text)
            else:
                offset = log.offset_at_time(topic, number, _moment(text))
            found.setdefault(topic, {})[number] = min(max(offset, end.start), end.end)
    return found


def _moment(text: str) -> int:
    """
    >>> _moment("2026-01-01T00:00:00Z")
    1767225600000
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"`{text[:40]}` is no place to start", hint="beginning, now, an offset, or a time such as 2026-01-31T12:00Z"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
