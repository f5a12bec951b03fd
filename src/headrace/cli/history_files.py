"""Files of history → events: Parquet, CSV, NDJSON and JSON, plain or compressed, each row with an id of its own.

A row's id is made of its file's name, its number and its content. So importing a file again adds nothing, a file that
has grown adds what is new, and a row that was mended is a new one; on a log that knows event ids, whatever was lost on
the way.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from headrace.cli.sending import Found, read_stream
from headrace.errors import UsageError
from headrace.log.codecs.json_encode import to_json

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
}
ROWS_PER_READ = 10_000


@dataclass(frozen=True, slots=True)
class Row(Found):
    """A row of a file, counted from 1, and how much of the file is read with it, from 0 to 1."""

    file: Path
    number: int
    part: float


def find_files(patterns: Sequence[str]) -> list[Path]:
    """Files, folders (everything in them that has a known ending) and globs, by name, each once."""
    found: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            here = sorted(file for file in path.rglob("*") if file.is_file() and _form(file) is not None)
        elif path.is_file():
            here = [path]
        else:
            here = sorted(Path(name) for name in glob.glob(pattern, recursive=True) if Path(name).is_file())
        if not here:
            raise UsageError(f"no file is called `{pattern}`", hint="a file, a folder, or a glob in quotes")
        found += here
    return list(dict.fromkeys(found))


def _form(file: Path) -> str | None:
    inner = Path(file.stem) if file.suffix.lower() in COMPRESSIONS else file
    return FORMATS.get(inner.suffix.lower())


def read_rows(file: Path, form: str, columns: list[dict[str, Any]], time: str | None) -> Iterator[Row]:
    """The rows of a file as events. `columns` are the topic's; `time` names the field that holds the event time."""
    kind = _form(file) if form == "auto" else form
    if kind not in ("parquet", "csv", "json", "ndjson"):
        raise UsageError(f"`{file}` does not say what it is", hint="--format parquet, csv, ndjson or json")
    try:
        found = _read_parquet(file) if kind == "parquet" else _read_text(file, kind, columns)
        for number, (event, part) in enumerate(found, 1):
            text = _stamped(event.text, time) if time else event.text
            yield Row(_identified(text, file.name, number, event.text), event.place, file, number, part)
    except (pa.ArrowException, EOFError) as error:
        raise UsageError(f"`{file}` cannot be read as {kind}: {error}") from error


def _read_text(file: Path, kind: str, columns: list[dict[str, Any]]) -> Iterator[tuple[Found, float]]:
    size = max(1, file.stat().st_size)
    compression = COMPRESSIONS.get(file.suffix.lower())
    with file.open("rb") as plain:
        if compression is None:
            for found in read_stream(plain, str(file), kind, columns):
                yield found, min(1.0, plain.tell() / size)
            return
        # Arrow's own stream has no lines.
        with pa.CompressedInputStream(plain, compression) as packed, io.BufferedReader(packed) as stream:
            for found in read_stream(stream, str(file), kind, columns):
                yield found, min(1.0, plain.tell() / size)


def _read_parquet(file: Path) -> Iterator[tuple[Found, float]]:
    import pyarrow.parquet as pq

    number = 0
    with pq.ParquetFile(file) as table:
        for batch in table.iter_batches(ROWS_PER_READ):
            for row in batch.to_pylist(maps_as_pydicts="lossy"):
                number += 1
                event = {name: _plain(value) for name, value in row.items() if value is not None}
                yield Found(to_json(event), f"{file}:{number}"), number / table.metadata.num_rows


def _plain(value: Any) -> Any:
    """What JSON has no word for, as the API takes it. Moments without a zone are UTC, as everywhere here."""
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _identified(text: bytes, name: str, number: int, content: bytes) -> bytes:
    """An id in front: an event's own, which comes later, wins. What is no object is left to be rejected."""
    inner = text[1:].lstrip() if text.startswith(b"{") else b""
    if not inner:
        return text
    digest = hashlib.blake2b(digest_size=12)
    digest.update(f"{name}\0{number}\0".encode())
    digest.update(content)
    mark = b'{"$id":"import-' + digest.hexdigest().encode() + b'"'
    return mark + inner if inner.startswith(b"}") else mark + b"," + inner


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
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return b'{"$time":' + json.dumps(value).encode() + b"," + text[1:]
