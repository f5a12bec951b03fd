"""`tests/*.toml` of a project: events in, rows expected.

    [[test]]
    name = "views are counted by page"

    [[test.input]]
    topic = "pageviews"
    events = [
      { userid = "ann", pageid = "/a", viewtime = "2026-11-15T12:00:00Z" },
    ]

    [[test.expect]]
    from = "views_by_page"
    rows = [
      { pageid = "/a", views = 1 },
    ]

A test runs the project's pipelines, or `statements` of its own. Expected rows name the columns that matter; the others
are not looked at. Rows are compared without regard to order.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import ConfigError


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    events: list[dict[str, Any]]


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str = msgspec.field(name="from")
    rows: list[dict[str, Any]]


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    input: list[Input] = []
    expect: list[Expectation] = []
    rejected: int = 0
    """How many of the events must be refused as dead letters."""
    late: dict[str, int] = {}
    """By table: how many (record, window) pairs must have come too late."""
    statements: str | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    test: list[Case] = []


def load_cases(folder: Path) -> list[tuple[Path, Case]]:
    """Every case of a project's `tests` folder, in order."""
    return [(file, case) for file in sorted((folder / "tests").glob("*.toml")) for case in _load(file)]


def _load(file: Path) -> list[Case]:
    try:
        cases = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _File).test
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"{file.name} is not a file of tests: {error}", hint="docs/howto/test-a-pipeline.md"
        ) from error
    for case in cases:
        if not (case.expect or case.rejected or case.late):
            raise ConfigError(f"{file.name}: test `{case.name}` expects nothing", hint="add [[test.expect]]")
    return cases
