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
are not looked at. Rows are compared without regard to order. Where there are many, they are in a `file` beside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import ConfigError
from headrace.testing.files import read_events, read_rows, read_text
from headrace.toml_files import convert_settings, read_settings

GUIDE = "docs/howto/test-a-pipeline.md"
Row = dict[str, Any]


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events of one topic, in order: plain ones, or `records` with key, value, time, headers and partition."""

    topic: str
    events: list[Row] = []
    records: list[Row] = []
    file: str | None = None
    settled: bool = False
    """Sent only once the queries have done with all that came before: a join with a table that a query writes finds it
    then."""

    @property
    def texts(self) -> bool:
        """Whether the values are as a CSV file has them."""
        return self.file is not None and self.file.endswith(".csv")


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of a stream or table, or of a query's answer."""

    source: str | None = msgspec.field(name="from", default=None)
    query: str | None = None
    rows: list[Row] | None = None
    file: str | None = None

    @property
    def title(self) -> str:
        return self.source or " ".join((self.query or "").split())


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    input: list[Input] = []
    expect: list[Expectation] = []
    rejected: int = 0
    """How many of the events must be refused as dead letters."""
    late: dict[str, int] = {}
    """By table: how many (record, window) pairs must have come too late."""
    statements: str | None = None
    script: str | None = None
    """A file of statements beside this one."""
    shuffle: bool = True
    """Whether events may be tried in other orders that must mean the same."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    test: list[Case] = []


def load_cases(folder: Path) -> list[tuple[Path, Case]]:
    """Every case of a project's `tests` folder, in order, with what its files hold."""
    return [(file, case) for file in sorted((folder / "tests").glob("*.toml")) for case in _load(file)]


def _load(file: Path) -> list[Case]:
    shown = f"{file.parent.name}/{file.name}"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown} cannot be read: {error}", hint=GUIDE) from error
    return [_with_files(case, file.parent) for case in read_settings(shown, text, _cases)]


def _cases(raw: dict[str, Any]) -> list[Case]:
    cases = convert_settings(raw, _File, GUIDE).test
    names: set[str] = set()
    for number, case in enumerate(cases):
        problem = f"the name `{case.name}` is there twice" if case.name in names else _problem(case)
        if problem is not None:
            raise ConfigError(problem, hint=GUIDE, path=("test", number))
        names.add(case.name)
    return cases


def _problem(case: Case) -> str | None:
    if not (case.expect or case.rejected or case.late):
        return f"test `{case.name}` expects nothing: add [[test.expect]]"
    if case.statements is not None and case.script is not None:
        return f"test `{case.name}` has both `statements` and `script`"
    for one in case.input:
        if one.file is not None and (one.events or one.records):
            return f"test `{case.name}`: an input of `{one.topic}` has a `file` and events beside it"
        if one.events and one.records:
            return f"test `{case.name}`: an input of `{one.topic}` has `events` and `records`: make it two"
    for expected in case.expect:
        if (expected.source is None) == (expected.query is None):
            return f"test `{case.name}`: an expectation needs either `from` or `query`"
        if (expected.rows is None) == (expected.file is None):
            return f"test `{case.name}`: the expectation of `{expected.title}` needs either `rows` or a `file`"
    return None


def _with_files(case: Case, folder: Path) -> Case:
    """The same with everything in it."""
    return msgspec.structs.replace(
        case,
        statements=case.statements if case.script is None else read_text(folder, case.script),
        script=None,
        input=[
            one if one.file is None else msgspec.structs.replace(one, events=read_events(folder, one.file))
            for one in case.input
        ],
        expect=[
            one if one.file is None else msgspec.structs.replace(one, rows=read_rows(folder, one.file), file=None)
            for one in case.expect
        ],
    )
