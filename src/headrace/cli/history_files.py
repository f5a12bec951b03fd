"""Files of history → events: Parquet, CSV, NDJSON and JSON, plain or compressed, each row with an id of its own.

A row's id is made of its file's name, its number and its content as the file has it. So importing a file again adds
nothing, a file that has grown adds what is new, and a row that was mended is a new one; on a log that knows event ids,
whatever was lost on the way, and whatever the topic's columns have become.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa

from headrace.cli.csv_events import read_csv, read_moment
from headrace.cli.event_texts import is_object, read_json
from headrace.cli.file_rows import Rows
from headrace.errors import UsageError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
}
PIECE_BYTES = 256 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read: what the command line says, and what the topic is."""

    form: str = "auto"
    time: str | None = None
    """The field that holds the event time."""
    delimiter: str | None = None
    encoding: str | None = None
    columns: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a file, ready to be sent, and how much of the file is read with them, from 0 to 1."""

    file: Path
    first: int
    """The first row's number, from 1."""
    texts: list[bytes]
    lines: Sequence[int]
    fields: Sequence[str] | None
    part: float
    by_line: bool

    def place(self, index: int) -> str:
        return f"{self.file}:{self.lines[index]}" if self.by_line else f"{self.file}, event {self.lines[index]}"

    def cut(self, start: int, stop: int) -> Piece:
        return Piece(
            self.file,
            self.first + start,
            self.texts[start:stop],
            self.lines[start:stop],
            self.fields,
            self.part,
            self.by_line,
        )


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Pieces that are sent at once: of many small files, too."""

    pieces: list[Piece]

    @property
    def texts(self) -> list[bytes]:
        return [text for piece in self.pieces for text in piece.texts]

    def find(self, index: int) -> tuple[Piece, int]:
        for piece in self.pieces:
            if index < len(piece.texts):
                return piece, index
            index -= len(piece.texts)
        raise IndexError(index)

    def place(self, index: int) -> str:
        piece, within = self.find(index)
        return piece.place(within)


def find_files(patterns: Sequence[str]) -> list[Path]:
    """Files, folders (everything in them that has a known ending and is not hidden) and globs, by name, each once."""
    found: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            here = sorted(
                file for file in path.rglob("*") if _form(file) and file.is_file() and not _hidden(file, path)
            )
        elif path.is_file():
            here = [path]
        else:
            here = sorted(Path(name) for name in glob.glob(pattern, recursive=True) if Path(name).is_file())
        if not here and path.is_dir():
            endings = ", ".join([*FORMATS, *COMPRESSIONS])
            raise UsageError(f"no file in `{pattern}` has an ending that is known", hint=f"one of {endings}")
        if not here:
            raise UsageError(f"no file is called `{pattern}`", hint="a file, a folder, or a glob in quotes")
        found += here
    return list(dict.fromkeys(found))


def _hidden(file: Path, folder: Path) -> bool:
    """Such as a project's own `.headrace`."""
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _form(file: Path) -> str | None:
    inner = Path(file.stem) if file.suffix.lower() in COMPRESSIONS else file
    return FORMATS.get(inner.suffix.lower())


def read_pieces(file: Path, how: Reading, name: str | None = None, skip: int = 0) -> Iterator[Piece]:
    """The rows of a file after the first `skip`. `name` is what their ids call the file."""
    kind = _form(file) if how.form == "auto" else how.form
    if kind is None:
        raise UsageError(f"`{file}` does not say what it is", hint="--format parquet, csv, ndjson or json")
    by_line = True
    number = 0
    try:
        for rows, part in _read(file, kind, how):
            before, number = number, number + len(rows.texts)
            if number <= skip:
                continue
            start = max(0, skip - before)
            texts = [_stamped(text, how.time) for text in rows.texts] if how.time else rows.texts
            by_line = not isinstance(rows.lines, range) or kind == "parquet"
            found = _identified(texts[start:], (name or file.name).encode(), before + start + 1, rows.contents[start:])
            yield Piece(file, before + start + 1, found, rows.lines[start:], rows.fields, part, by_line)
    except UsageError as error:
        raise UsageError(f"`{file}`: {error.message}", detail=error.detail, hint=error.hint) from error
    except (pa.ArrowException, EOFError, OSError, zlib.error) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"`{file}` cannot be read as {kind}: {said}", detail=f"after row {number:,}") from error


def _read(file: Path, kind: str, how: Reading) -> Iterator[tuple[Rows, float]]:
    if kind == "parquet":
        from headrace.cli.parquet_events import read_parquet

        yield from read_parquet(file, how.columns)
        return
    size = max(1, file.stat().st_size)
    compression = COMPRESSIONS.get(file.suffix.lower())
    with file.open("rb") as plain:
        if compression is None:
            for rows in _read_text(plain, kind, how):
                yield rows, min(1.0, plain.tell() / size)
            return
        # Arrow's own stream has no lines.
        with pa.CompressedInputStream(plain, compression) as packed, io.BufferedReader(packed, PIECE_BYTES) as stream:
            for rows in _read_text(stream, kind, how):
                yield rows, min(1.0, plain.tell() / size)


def _read_text(stream: IO[bytes], kind: str, how: Reading) -> Iterator[Rows]:
    if kind == "csv":
        yield from read_csv(stream, how.columns, how.delimiter, how.encoding)
        return
    first = stream.readline().removeprefix(BYTE_ORDER_MARK)
    # Many a file that is called .json has one object a line, and many a one that is called .ndjson an array.
    whole = not is_object(first) if kind == "json" else first.lstrip().startswith(b"[")
    if whole:
        texts = [event.text for event in read_json(first + stream.read(), "")]
        if texts != [b""]:
            yield Rows(texts, texts, range(len(texts)))
        return
    number, lines = 0, [first, *stream.readlines(PIECE_BYTES)]
    while lines:
        found = [(line, text) for line, raw in enumerate(lines, number + 1) if (text := raw.strip())]
        texts = [text for _, text in found]
        if texts:
            yield Rows(texts, texts, [line for line, _ in found])
        number += len(lines)
        lines = stream.readlines(PIECE_BYTES)


def cut_batches(pieces: Iterator[Piece], most: int, most_bytes: int) -> Iterator[FileBatch]:
    gathered: list[Piece] = []
    rows = size = 0
    for piece in pieces:
        start = 0
        for index, text in enumerate(piece.texts):
            if (rows or index > start) and (rows >= most or size + len(text) > most_bytes):
                yield FileBatch([*gathered, piece.cut(start, index)] if index > start else gathered)
                gathered, rows, size, start = [], 0, 0, index
            rows += 1
            size += len(text)
        if start < len(piece.texts):
            gathered.append(piece.cut(start, len(piece.texts)) if start else piece)
    if gathered:
        yield FileBatch(gathered)


def _identified(texts: list[bytes], name: bytes, first: int, contents: list[bytes]) -> list[bytes]:
    """An id in front: an event's own, which comes later, wins. What is no object is left to be rejected."""
    found = []
    for number, (text, content) in enumerate(zip(texts, contents, strict=True), first):
        inner = text[1:] if text.startswith(b"{") else b""
        if not inner:
            found.append(text)
            continue
        digest = hashlib.blake2b(b"%b\0%d\0%b" % (name, number, content), digest_size=12).hexdigest().encode()
        between = b"" if inner.lstrip().startswith(b"}") else b","
        found.append(b'{"$id":"import-%b"%b%b' % (digest, between, inner))
    return found


def _stamped(text: bytes, time: str) -> bytes:
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return text
    if not isinstance(fields, dict) or not text.startswith(b"{"):
        return text
    value = next((inner for name, inner in fields.items() if name.lower() == time.lower()), None)
    if value is None:
        return text
    if isinstance(value, str):
        value = read_moment(value)
    return b'{"$time":' + json.dumps(value).encode() + b"," + text[1:]
