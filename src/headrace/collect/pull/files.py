"""The collector `file`: follows growing files, over their rotation, and every line once."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import msgspec

from headrace.collect.base import Sent, sent_objects
from headrace.collect.columns import Columns
from headrace.collect.definitions import CollectorSettings
from headrace.collect.feed import Feed
from headrace.collect.gate import Arrival
from headrace.collect.poison import guarded, is_poison, text_of
from headrace.collect.pull.tail import Piece, Place, Tail
from headrace.collect.reset import BEGINNING, END, no_such_place
from headrace.collect.weblogs import WebLog
from headrace.errors import ConfigError
from headrace.log.codecs.json_codec import Unreadable
from headrace.structs import ready

Format = Literal["lines", "json", "csv", "common", "combined", "w3c"]


class FileSettings(CollectorSettings, frozen=True, kw_only=True):
    path: str | list[str] = ""
    """Which files, relative to the project: `logs/*.log`, or several such."""
    format: Format = "lines"
    """What a line is: `lines` (the field `message`), `json` (an event), `csv` (its columns named by the file's first
    line, or by `columns`), or of a web server's log: `common`, `combined`, `w3c`."""
    columns: list[str] = []
    """Names of the columns of CSV files without a first line that says them."""
    delimiter: str = ","
    """What separates the columns of CSV."""
    start: Literal["earliest", "latest"] = "earliest"
    """Whether what files hold the first time is read, too."""
    every_seconds: float = 0.5
    """How often files are looked at."""
    max_line_bytes: int = 1024 * 1024
    """A longer line is a dead letter: its beginning."""

    def check(self) -> None:
        super().check()
        if not self.patterns:
            raise ConfigError("a puller of files needs a `path`", hint='path = "logs/*.log"', path=("path",))
        if len(self.delimiter) != 1:
            raise ConfigError("`delimiter` is one character", path=("delimiter",))

    @property
    def patterns(self) -> list[str]:
        return [one for one in ([self.path] if isinstance(self.path, str) else self.path) if one]


async def start(feed: Feed) -> None:
    settings = feed.settings(FileSettings)
    known = await feed.cursor()
    places = msgspec.convert(known["files"], ready(list[Place])) if isinstance(known, dict) and "files" in known else []
    tail = Tail(feed.project.folder, settings.patterns, settings.max_line_bytes, places, feed.clock.monotonic)
    try:
        begin = known.get("start") if isinstance(known, dict) else settings.start
        if begin == "latest":
            await asyncio.to_thread(tail.begin_at_end, lambda head: first_state(head, settings))
            await _write(feed, sent_objects([], _nothing), Arrival(), tail)
        while True:
            await _take_new(feed, tail, settings)
            await asyncio.sleep(settings.every_seconds)
    finally:
        tail.close()


def place(settings: FileSettings, to: str) -> Any:
    """The cursor that begins there: what files hold is read again, or left out."""
    if to not in (BEGINNING, END):
        raise no_such_place(to, BEGINNING, END)
    return {"files": []} if to == BEGINNING else {"start": "latest"}


async def _take_new(feed: Feed, tail: Tail, settings: FileSettings) -> None:
    pieces = tail.new()

    def following_piece() -> Piece | None:
        with tail.lock:
            return next(pieces, None)

    while (piece := await asyncio.to_thread(following_piece)) is not None:
        # The place moves on only together with its lines.
        events, following = await asyncio.to_thread(read_any, piece, settings)
        tail.advance(following)
        await _write(feed, events, Arrival(size=len(piece.data), position=positions(piece, settings)), tail)
    for why in tail.told():
        feed.counters.failed(why)
    feed.running(f"following {len(tail.places)} files of {', '.join(settings.patterns)}{_left_out(tail.unreadable)}")


def _left_out(unreadable: dict[str, str]) -> str:
    shown = [f"{path} ({why})" for path, why in sorted(unreadable.items())[:3]]
    more = [f"{len(unreadable) - 3} more"] if len(unreadable) > 3 else []
    return f"; cannot read {', '.join(shown + more)}" if unreadable else ""


def first_state(head: bytes, settings: FileSettings) -> dict[str, Any]:
    """What a file's beginning says about all of its lines."""
    lines = head[: head.find(b"\n") + 1] if settings.format == "csv" else head
    return read_piece(Piece(Place("", 0), lines), settings)[1].state


async def _write(feed: Feed, events: Sent | Columns, arrived: Arrival, tail: Tail) -> None:
    await feed.put(events, arrived, {"files": msgspec.to_builtins(tail.places)})


def _nothing(row: int) -> bytes:
    raise IndexError(row)


def positions(piece: Piece, settings: FileSettings) -> Callable[[int], str]:
    """Where the line of event *i* begins: the file and its byte. Counted when somebody asks."""
    starts: list[int] = []

    def position(row: int) -> str:
        if not starts:
            starts.extend(_starts(piece, settings))
        return f"{piece.place.path}:{starts[row] if row < len(starts) else piece.place.offset}"

    return position


def _starts(piece: Piece, settings: FileSettings) -> Iterator[int]:
    """Of the lines that are events."""
    at, format_ = piece.place.offset, settings.format
    header = format_ == "csv" and not settings.columns and not piece.place.state.get("columns")
    for line in piece.data.split(b"\n"):
        text = line.removesuffix(b"\r")
        empty = not text if format_ in ("lines", "csv") else not text or text.isspace()
        if not empty and not header and not (format_ == "w3c" and text.startswith(b"#")):
            yield at
        header = header and empty
        at += len(line) + 1


def read_any(piece: Piece, settings: FileSettings) -> tuple[Sent | Columns, Place]:
    """As `read_piece`; where a line breaks that, only this line is a dead letter."""
    try:
        return read_piece(piece, settings)
    except Exception as error:
        if not is_poison(error):
            raise
    events: list[Any] = []
    texts: list[bytes] = []
    place = piece.place
    for line in piece.data.split(b"\n")[:-1]:
        found = guarded(partial(read_piece, Piece(place, line + b"\n"), settings))
        if isinstance(found, Unreadable):
            events, texts = [*events, found], [*texts, line]
            continue
        read, place = found
        sent = read if isinstance(read, Sent) else sent_objects(read.objects(), read.originals)
        events += sent.events
        texts += [text_of(sent, row) for row in range(len(sent.events))]
    return Sent(events, texts.__getitem__), msgspec.structs.replace(piece.following, state=place.state)


def read_piece(piece: Piece, settings: FileSettings) -> tuple[Sent | Columns, Place]:
    """The events of whole lines, and the place after them."""
    following = piece.following
    if piece.too_long:
        reason = Unreadable(f"is a line longer than {settings.max_line_bytes} bytes; this is its beginning")
        return sent_objects([reason], lambda row: piece.data), following
    lines = [line.removesuffix(b"\r") for line in piece.data.split(b"\n")[:-1]]
    match settings.format:
        case "lines":
            return _read_lines([line for line in lines if line], settings), following
        case "json":
            return _read_json([line for line in lines if line and not line.isspace()], settings), following
        case "csv":
            return _read_csv(lines, settings, following)
        case format_:
            log = WebLog(format_, **piece.place.state)
            events = log.read(lines)
            state = {"fields": log.fields, "date": log.date}
            return events, msgspec.structs.replace(following, state=state)


def _read_lines(lines: list[bytes], settings: FileSettings) -> Sent | Columns:
    most = settings.max_line_bytes
    try:
        texts = b"\n".join(lines).decode().split("\n") if lines else []
    except UnicodeDecodeError:
        texts = []
    if len(texts) == len(lines) and (not lines or max(map(len, lines)) <= most):
        return Columns(len(lines), {"message": texts}, lines.__getitem__)
    return sent_objects([_text(line, most) for line in lines], lines.__getitem__)


def _text(line: bytes, most: int) -> Any:
    if len(line) > most:
        return Unreadable(f"is a line longer than {most} bytes")
    try:
        return {"message": line.decode()}
    except UnicodeDecodeError:
        return Unreadable("is not UTF-8")


def _read_json(lines: list[bytes], settings: FileSettings) -> Sent:
    try:
        events: list[Any] = msgspec.json.decode(b"[" + b",".join(lines) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        events = []
    if len(events) != len(lines) or max(map(len, lines), default=0) > settings.max_line_bytes:
        events = [_json(line, settings.max_line_bytes) for line in lines]
    return Sent(events, lines.__getitem__)


def _json(line: bytes, most: int) -> Any:
    if len(line) > most:
        return Unreadable(f"is a line longer than {most} bytes")
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Unreadable(f"is not valid JSON: {error}")


def _read_csv(lines: list[bytes], settings: FileSettings, following: Place) -> tuple[Sent, Place]:
    """One record a line: a quoted line break ends it, as nobody can know whether more is to come."""
    names = settings.columns or list(following.state.get("columns", ()))
    events: list[Any] = []
    originals: list[bytes] = []
    for line in lines:
        if not line:
            continue
        try:
            values = next(csv.reader(io.StringIO(line.decode("utf-8-sig")), delimiter=settings.delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            events.append(Unreadable(f"is not CSV: {error}"))
        else:
            if not names:
                names = values
                continue
            if len(values) == len(names):
                events.append({name: value for name, value in zip(names, values, strict=True) if value != "" and name})
            else:
                events.append(Unreadable(f"has {len(values)} columns where there are {len(names)}"))
        originals.append(line)
    state = {} if settings.columns else {"columns": names}
    return sent_objects(events, originals.__getitem__), msgspec.structs.replace(following, state=state)
