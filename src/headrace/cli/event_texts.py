"""Arguments, standard input and files → events as JSON text, each with its place, for `headrace topic put`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from headrace.cli.csv_events import read_csv
from headrace.errors import UsageError


@dataclass(frozen=True, slots=True)
class Found:
    """An event as JSON text, and where it was."""

    text: bytes
    place: str


def read_events(
    given: Sequence[str] | None, files: Sequence[Path] | None, form: str, columns: list[dict[str, Any]]
) -> Iterator[Found]:
    """Events of the command line, of files, or of standard input, as they are read."""
    if form not in ("auto", "json", "ndjson", "csv"):
        raise UsageError(f"`{form}` is not a format", hint="json, ndjson or csv")
    if given:
        yield from (found for number, text in enumerate(given) for found in _read_argument(text, number))
        return
    for file in files or [Path("-")]:
        if str(file) == "-":
            yield from read_stream(sys.stdin.buffer, "line", form, columns)
        else:
            with file.open("rb") as stream:
                yield from read_stream(stream, str(file), _form_of(file) if form == "auto" else form, columns)


def _read_argument(text: str, number: int) -> Iterator[Found]:
    if text.lstrip().startswith("["):
        yield from read_json(text.encode(), f"argument {number}")
    else:
        yield Found(b" ".join(text.encode().splitlines()), f"event {number}")


def _form_of(file: Path) -> str:
    return {".csv": "csv", ".tsv": "csv", ".json": "json"}.get(file.suffix.lower(), "auto")


def read_stream(stream: IO[bytes], name: str, form: str, columns: list[dict[str, Any]]) -> Iterator[Found]:
    separator = " " if name == "line" else ":"
    if form == "csv":
        for rows in read_csv(stream, columns, most=1):
            places = (f"{name}{separator}{line}" for line in rows.lines)
            yield from map(Found, rows.texts, places)
    elif form == "json":
        yield from _read_document(stream, name, separator)
    else:
        yield from _read_lines(stream, name, separator)


def _read_lines(stream: IO[bytes], name: str, separator: str) -> Iterator[Found]:
    """One object a line. What begins like an array is one JSON text, whatever its lines are."""
    for number, line in enumerate(stream, 1):
        if number == 1 and line.lstrip(b"\xef\xbb\xbf \t").startswith(b"["):
            yield from read_json(line + stream.read(), name)
            return
        if line.strip():
            yield Found(line.strip(), f"{name}{separator}{number}")


def _read_document(stream: IO[bytes], name: str, separator: str) -> Iterator[Found]:
    """Many a file that is called .json has one object a line. One whose first line is an object is read like that,
    which of a single object makes the same."""
    first = stream.readline()
    if not is_object(first):
        yield from read_json(first + stream.read(), name)
        return
    yield Found(first.removeprefix(b"\xef\xbb\xbf").strip(), f"{name}{separator}1")
    yield from (
        Found(line.strip(), f"{name}{separator}{number}") for number, line in enumerate(stream, 2) if line.strip()
    )


def is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf")), dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def read_json(text: bytes, name: str) -> Iterator[Found]:
    """One event or an array of them, as they are written. What is not JSON goes to the server too: it becomes a dead
    letter."""
    text = text.strip().removeprefix(b"\xef\xbb\xbf")
    try:
        events = msgspec.json.decode(text, type=list[msgspec.Raw]) if text.startswith(b"[") else [text]
    except msgspec.DecodeError:
        events = [text]
    for number, event in enumerate(events):
        yield Found(b" ".join(bytes(event).splitlines()), f"{name}, event {number}")
