"""`headrace import --dry-run`: what is in the files, and what the topic would make of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec

from headrace.cli.history_files import Reading, read_pieces
from headrace.cli.sending import SHOWN_ERRORS
from headrace.errors import HeadraceError, UsageError
from headrace.log.codecs.json_encode import timestamp_to_json
from headrace.log.codecs.json_values import Mismatch, Reader
from headrace.sql.api import parse_columns
from headrace.types import TIMESTAMP, quote_name

FIRST_ROWS = 3


@dataclass(slots=True)
class Field:
    """A field as the files have it."""

    kinds: set[str] = field(default_factory=set)
    rows: int = 0


@dataclass(slots=True)
class Check:
    """Reads everything, as the server would, and sends nothing."""

    how: Reading
    timestamp: str | None
    """The topic's column that holds the event time."""
    rows: int = 0
    bad: int = 0
    untimed: int = 0
    earliest: int | None = None
    latest: int | None = None
    fields: dict[str, Field] = field(default_factory=dict)
    first: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    _readers: dict[str, Reader] = field(default_factory=dict)
    _moment: Reader = field(default_factory=lambda: Reader(TIMESTAMP))

    def __post_init__(self) -> None:
        columns = self.how.columns
        declared = ", ".join(f"{quote_name(one['name'].upper())} {one['type']}" for one in columns)
        types = parse_columns(declared) if declared else ()
        self._readers = {element.column.name.lower(): Reader(element.type) for element in types}

    def file(self, file: Path) -> None:
        before = self.rows
        reason = None
        try:
            for piece in read_pieces(file, self.how):
                check_time(file, piece.fields, self.how.time)
                for index, text in enumerate(piece.texts):
                    self.rows += 1
                    problem = self._row(text)
                    self.bad += problem is not None
                    if problem is not None and self.bad <= SHOWN_ERRORS:
                        print(f"  {piece.place(index)} would be rejected: {problem}", file=sys.stderr)
        except HeadraceError as error:
            print(error, file=sys.stderr)
            reason = error.message
        self.files.append({"file": str(file), "rows": self.rows - before} | ({"problem": reason} if reason else {}))

    @property
    def body(self) -> dict[str, Any]:
        return {
            "files": len(self.files),
            "rows": self.rows,
            "would_be_rejected": self.bad,
            "unreadable": [one for one in self.files if "problem" in one],
            "without_rows": [one["file"] for one in self.files if not one["rows"] and "problem" not in one],
            "without_time": self.untimed,
            "from": None if self.earliest is None else timestamp_to_json(self.earliest),
            "to": None if self.latest is None else timestamp_to_json(self.latest),
            "fields": [
                {"name": name, "found": sorted(one.kinds), "rows": one.rows, "column": self._column(name)}
                for name, one in self.fields.items()
            ],
            "fields_without_column": sorted(name for name in self.fields if self._column(name) is None),
            "first": self.first,
        }

    def _column(self, name: str) -> str | None:
        types = (one["type"] for one in self.how.columns if one["name"].lower() == name.lower())
        return next(types, None)

    def _row(self, text: bytes) -> str | None:
        try:
            event = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return f"not JSON: {error}"
        if not isinstance(event, dict):
            return "not an object"
        shown = {name: value for name, value in event.items() if not name.startswith("$")}
        if len(self.first) < FIRST_ROWS:
            self.first.append(shown)
        return self._look(shown) or self._time(event)

    def _look(self, event: Mapping[str, Any]) -> str | None:
        problem = None
        for name, value in event.items():
            known = self.fields.setdefault(name, Field())
            if value is None:
                continue
            known.rows += 1
            known.kinds.add(kind_of(value))
            reader = self._readers.get(name.lower())
            if reader is not None and problem is None:
                try:
                    reader.convert(value)
                except Mismatch as mismatch:
                    problem = f"`{name}` {mismatch}"
        return problem

    def _time(self, event: Mapping[str, Any]) -> str | None:
        wanted = (self.timestamp or "").lower()
        value = event.get("$time")
        if value is None:
            value = next((inner for name, inner in event.items() if name.lower() == wanted), None)
        if value is None:
            self.untimed += 1
            return None
        try:
            at = self._moment.convert(value)
        except Mismatch as mismatch:
            return None if "$time" not in event else f"`{self.how.time}` {mismatch}"
        self.earliest = at if self.earliest is None else min(self.earliest, at)
        self.latest = at if self.latest is None else max(self.latest, at)
        return None


def kind_of(value: Any) -> str:
    """What a value looks like, by the names of columns' types.

    >>> [kind_of(one) for one in (True, 7, 1.5, "x", "2026-11-15", "2026-11-15T12:00:00Z", [1], {})]
    ['BOOLEAN', 'BIGINT', 'DOUBLE', 'VARCHAR', 'DATE', 'TIMESTAMP', 'ARRAY', 'STRUCT']
    """
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT"
        case float():
            return "DOUBLE"
        case list():
            return "ARRAY"
        case dict():
            return "STRUCT"
    try:
        date.fromisoformat(value)
    except ValueError:
        pass
    else:
        return "DATE"
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return "VARCHAR"
    return "TIMESTAMP"


def print_check(body: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> None:
    from headrace.cli.output import data_text, print_table

    rows = []
    for one in body["fields"]:
        values = [data_text(event.get(one["name"])) for event in body["first"]]
        found = ", ".join(one["found"]) or "null"
        rows.append([one["name"], found, one["column"] or "none: kept as it is", *values])
    if rows:
        print_table(["field", "found", "column", *(f"row {n}" for n in range(1, len(body["first"]) + 1))], rows)
    missing = {one["name"].lower() for one in columns} - {one["name"].lower() for one in body["fields"]}
    if rows and missing:
        print(f"columns that no row has: {', '.join(one['name'] for one in columns if one['name'].lower() in missing)}")
    if body["from"] is not None:
        print(f"event times from {body['from']} to {body['to']}")
    if body["without_time"]:
        print(f"{body['without_time']:,} rows have no event time: theirs would be that of their arrival")
    files = body["files"]
    print(f"{body['rows']:,} rows in {files} file{'s' * (files != 1)}; {body['would_be_rejected']:,} would be rejected")
    if body["fields_without_column"]:
        print(f"kept as they are, without a column: {', '.join(body['fields_without_column'])}")
    for file in body["without_rows"]:
        print(f"without rows: {file}")
    for one in body["unreadable"]:
        print(f"not readable: {one['problem']}")


def check_time(file: Path, fields: Sequence[str] | None, time: str | None) -> None:
    """A name that is mistyped would give all of history the time of its arrival."""
    if time and fields is not None and time.lower() not in {name.lower() for name in fields}:
        raise UsageError(
            f"`{file}` has no field `{time}`, which is to hold the event time", detail=", ".join(fields[:20])
        )
