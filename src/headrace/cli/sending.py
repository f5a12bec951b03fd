"""Files and standard input → events with their places → batches → the log, with progress and with errors by line."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from headrace.cli.backend import Backend
from headrace.cli.output import duration
from headrace.errors import Overloaded, UsageError

BATCH_BYTES = 1024 * 1024
SHOWN_ERRORS = 20
PATIENCE_S = 60.0


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
        yield from _read_json(text.encode(), f"argument {number}")
    else:
        yield Found(b" ".join(text.encode().splitlines()), f"event {number}")


def _form_of(file: Path) -> str:
    return {".csv": "csv", ".json": "json"}.get(file.suffix.lower(), "auto")


def read_stream(stream: IO[bytes], name: str, form: str, columns: list[dict[str, Any]]) -> Iterator[Found]:
    separator = " " if name == "line" else ":"
    if form == "csv":
        yield from _read_csv(stream, name, separator, columns)
    elif form == "json":
        yield from _read_document(stream, name, separator)
    else:
        yield from _read_lines(stream, name, separator)


def _read_lines(stream: IO[bytes], name: str, separator: str) -> Iterator[Found]:
    """One object a line. What begins like an array is one JSON text, whatever its lines are."""
    for number, line in enumerate(stream, 1):
        if number == 1 and line.lstrip(b"\xef\xbb\xbf \t").startswith(b"["):
            yield from _read_json(line + stream.read(), name)
            return
        if line.strip():
            yield Found(line.strip(), f"{name}{separator}{number}")


def _read_document(stream: IO[bytes], name: str, separator: str) -> Iterator[Found]:
    """Many a file that is called .json has one object a line. One whose first line is an object is read like that,
    which of a single object makes the same."""
    first = stream.readline()
    try:
        by_line = isinstance(msgspec.json.decode(first.removeprefix(b"\xef\xbb\xbf")), dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        by_line = False
    if not by_line:
        yield from _read_json(first + stream.read(), name)
        return
    yield Found(first.removeprefix(b"\xef\xbb\xbf").strip(), f"{name}{separator}1")
    yield from (
        Found(line.strip(), f"{name}{separator}{number}") for number, line in enumerate(stream, 2) if line.strip()
    )


def _read_json(text: bytes, name: str) -> Iterator[Found]:
    """One event or an array of them, as they are written. What is not JSON goes to the server too: it becomes a dead
    letter."""
    text = text.strip().removeprefix(b"\xef\xbb\xbf")
    try:
        events = msgspec.json.decode(text, type=list[msgspec.Raw]) if text.startswith(b"[") else [text]
    except msgspec.DecodeError:
        events = [text]
    for number, event in enumerate(events):
        yield Found(b" ".join(bytes(event).splitlines()), f"{name}, event {number}")


def _read_csv(stream: IO[bytes], name: str, separator: str, columns: list[dict[str, Any]]) -> Iterator[Found]:
    """The heading names the fields. A value is what its column's type says; an empty one is null."""
    rows = csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""), restkey="$more")
    convert = {column["name"].lower(): _converter(column["type"]) for column in columns}
    for row in rows:
        event = {
            field: None if value == "" else convert.get(field.lower(), str)(value)
            for field, value in row.items()
            if field is not None and value is not None
        }
        yield Found(json.dumps(event, ensure_ascii=False).encode(), f"{name}{separator}{rows.line_num}")


def _converter(type_: str) -> Callable[[Any], Any]:
    """Text as the JSON that the server takes for the type. What does not fit stays text, for the server to say so."""
    if type_ in ("INTEGER", "BIGINT"):
        return lambda text: int(text) if text.strip().lstrip("-").isdecimal() else text
    if type_ == "DOUBLE":
        return _number
    if type_ == "BOOLEAN":
        return lambda text: {"true": True, "false": False}.get(text.strip().lower(), text)
    if type_.startswith(("ARRAY", "MAP", "STRUCT")):
        return _json
    return str


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def how_far(sent: int, seconds: float, before: float | None, now: float | None) -> str:
    """What to show while sending; `before` and `now` are the shares of everything at the beginning and now.

    >>> how_far(5000, 2.0, None, None)
    '5,000 events  2,500/s'
    >>> how_far(5000, 2.0, 0.5, 0.6)
    '5,000 events  2,500/s  60%  8 seconds left'
    """
    text = f"{sent:,} events  {sent / max(0.001, seconds):,.0f}/s"
    if before is None or now is None or now <= before:
        return text
    return f"{text}  {now:.0%}  {duration(seconds * (1 - now) / (now - before))} left"


@dataclass(slots=True)
class Sender:
    """Sends batch after batch, and gathers what became of them."""

    backend: Backend
    topic: str
    batch: int
    key: str | None
    quiet: bool = False
    sent: int = 0
    accepted: int = 0
    duplicates: int = 0
    rejected: list[dict[str, Any]] = field(default_factory=list)
    positions: list[Any] = field(default_factory=list)
    acknowledged: Callable[[Sequence[Found]], None] = lambda batch: None
    """Called after each batch that the log has."""
    share: Callable[[Found], float | None] = lambda event: None
    """How much of everything is read with this event, from 0 to 1, for whoever knows."""

    @property
    def answer(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "positions": self.positions,
        }

    def send(self, events: Iterable[Found]) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        from headrace.cli.output import console

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        target = console(stderr=True)
        key = self.key or uuid.uuid4().hex
        with Progress(*columns, console=target, transient=True, disable=self.quiet or not target.is_terminal) as bar:
            task = bar.add_task("0 events", total=None)
            started, before = time.monotonic(), None
            for number, batch in enumerate(self._batches(events)):
                before = self.share(batch[0]) if number == 0 else before
                # The first batch has the plain key, so that few events are the same however they are sent.
                self._send_batch(batch, key if number == 0 else f"{key}/{number}")
                text = how_far(self.sent, time.monotonic() - started, before, self.share(batch[-1]))
                bar.update(task, description=text)

    def _batches(self, events: Iterable[Found]) -> Iterator[list[Found]]:
        batch: list[Found] = []
        size = 0
        for event in events:
            if batch and (len(batch) >= self.batch or size + len(event.text) > BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(event)
            size += len(event.text)
        if batch:
            yield batch

    def _send_batch(self, batch: list[Found], key: str) -> None:
        answer = self._patiently(b"\n".join(event.text for event in batch), key)
        self.accepted += answer.get("accepted", 0)
        self.duplicates += answer.get("duplicates", 0)
        self.positions += answer.get("positions", [])
        for one in answer.get("rejected", []):
            place = batch[one["index"]].place
            self.rejected.append(one | {"index": self.sent + one["index"], "place": place})
            if not self.quiet and len(self.rejected) <= SHOWN_ERRORS:
                print(f"  {place} was rejected: {one['reason']}", file=sys.stderr)
            elif not self.quiet and len(self.rejected) == SHOWN_ERRORS + 1:
                print(f"  more are rejected; all are dead letters:  headrace dlq list {self.topic}", file=sys.stderr)
        self.sent += len(batch)
        self.acknowledged(batch)

    def _patiently(self, body: bytes, key: str) -> dict[str, Any]:
        """A busy server is asked again. The batch has its key, so it lands once."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.backend.put(self.topic, body, key)
            except Overloaded as busy:
                if time.monotonic() + busy.retry_after > deadline:
                    raise
                time.sleep(busy.retry_after)
