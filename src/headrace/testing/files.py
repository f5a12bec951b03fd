"""Events and rows in files beside a test: `.csv` with a header line, `.json` with an array, `.ndjson` with one object a
line."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import ConfigError
from headrace.structs import ready
from headrace.types import Bytes, Column, Date, Decimal, Time, Timestamp, Varchar

Row = dict[str, Any]

_TEXTUAL = (Varchar, Bytes, Date, Decimal, Time, Timestamp)
_rows = msgspec.json.Decoder(ready(list[Row]))
_row = msgspec.json.Decoder(ready(Row))
_value = msgspec.json.Decoder()


def read_text(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"file `{name}` of a test cannot be read: {error}") from error


def read_events(folder: Path, name: str) -> list[Row]:
    """A CSV field is text: `typed_event` makes of it what the topic wants."""
    return _read(folder, name, lambda text: text)


def read_rows(folder: Path, name: str) -> list[Row]:
    """A CSV field is what it would be in JSON, text if it is none of that, null if it is empty."""
    return _read(folder, name, plain_value)


def typed_event(event: Mapping[str, str], columns: Sequence[Column]) -> Row:
    """A CSV row as an event of these columns: text stays where text is wanted, an empty field is not sent.

    >>> from headrace.types import INTEGER, VARCHAR
    >>> typed_event({"k": "7", "n": "7", "gone": ""}, [Column("K", VARCHAR), Column("N", INTEGER)])
    {'k': '7', 'n': 7}
    """
    textual = {column.name.lower() for column in columns if isinstance(column.type, _TEXTUAL)}
    return {name: text if name.lower() in textual else plain_value(text) for name, text in event.items() if text != ""}


def plain_value(text: str) -> Any:
    """
    >>> [plain_value(text) for text in ("7", "1.50", "true", "", "/a", "[1, 2]", '"7"')]
    [7, 1.5, True, None, '/a', [1, 2], '7']
    """
    try:
        return _value.decode(text) if text else None
    except msgspec.DecodeError:
        return text


def _read(folder: Path, name: str, convert: Any) -> list[Row]:
    text = read_text(folder, name)
    try:
        match Path(name).suffix:
            case ".csv":
                return _read_csv(text, convert)
            case ".json":
                return _rows.decode(text)
            case ".ndjson" | ".jsonl":
                return [_row.decode(line) for line in text.splitlines() if line.strip()]
    except (msgspec.DecodeError, csv.Error, ValueError) as error:
        raise ConfigError(f"file `{name}` of a test cannot be read: {error}") from error
    raise ConfigError(f"file `{name}` of a test is neither .csv, .json nor .ndjson")


def _read_csv(text: str, convert: Any) -> list[Row]:
    rows = [row for row in csv.reader(io.StringIO(text), strict=True) if row]
    if not rows:
        raise ValueError("it has no header line")
    header, *lines = rows
    for number, line in enumerate(lines, 1):
        if len(line) != len(header):
            raise ValueError(f"row {number} has {len(line)} fields, the header has {len(header)}")
    return [{name: convert(field) for name, field in zip(header, line, strict=True)} for line in lines]
