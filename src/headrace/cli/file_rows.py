"""Rows of a file that follow each other: what the readers of all formats give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import UsageError


@dataclass(frozen=True, slots=True)
class Rows:
    texts: list[bytes]
    """As JSON."""
    contents: list[bytes]
    """What each row is, whatever the topic's columns make of it."""
    lines: Sequence[int]
    """Where each ends."""
    fields: Sequence[str] | None = None
    """The fields of all rows, where the file says so once."""


def check_fields(fields: Sequence[str], columns: Sequence[str]) -> None:
    """A file that has nothing to do with the topic is refused: all of it would be kept, and none of it found.

    >>> check_fields(["shop", "amount"], ["Shop"])
    >>> check_fields(["7", "2026-11-15"], ["shop", "amount"])
    Traceback (most recent call last):
    headrace.errors.UsageError: no field is a column of the topic
      its fields: 7, 2026-11-15
      the topic's columns: shop, amount; a CSV file's first line names its fields
    """
    if columns and not {name.lower() for name in fields} & {name.lower() for name in columns}:
        raise UsageError(
            "no field is a column of the topic",
            detail=f"its fields: {', '.join(fields[:20])[:500]}",
            hint=f"the topic's columns: {', '.join(columns[:20])}; a CSV file's first line names its fields",
        )
