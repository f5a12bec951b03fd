"""Files that hold each record once: what was written and how far it reached are remembered in one step.

A file is written under a name that nobody looks at, and synced. Then the position after it and the name it will have
are remembered, atomically. Then it is renamed. Killed before the second step, the file is forgotten and made again;
killed after it, the rename is what is left to do."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.log.base import Topic
from headrace.log.codecs.json_codec import JsonCodec, Unreadable
from headrace.log.local.files import make_folder, replace_file, sync_file, sync_folder

TEMPORARY = ".headrace-"


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a delivery stream is, by partition; and the file that is to get its name."""

    made: int
    offsets: dict[int, int] = {}
    temporary: str | None = None
    final: str | None = None
    files: int = 0
    records: int = 0
    rejected: int = 0
    """Dead letters."""
    last_file: str | None = None
    last_file_ms: int | None = None


class Positions:
    """One delivery stream's position, in a file."""

    def __init__(self, path: Path, made: int) -> None:
        self._path, self._made = path, made

    def load(self) -> Position:
        """As it was left, with the last rename done. One of an earlier stream of that name says nothing."""
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=Position)
        except FileNotFoundError:
            return Position(made=self._made)
        if found.made != self._made:
            return Position(made=self._made)
        if found.temporary is not None and found.final is not None:
            finish(Path(found.temporary), Path(found.final))
        return found

    def save(self, position: Position) -> None:
        make_folder(self._path.parent)
        replace_file(self._path, msgspec.json.encode(position))

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


def finish(temporary: Path, final: Path) -> None:
    """The rename, if it is not done yet."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(temporary, final)
    sync_folder(final.parent)


def write_temporary(final: Path, made: int, content: bytes) -> Path:
    """The content, synced, beside where it will be."""
    make_folder(final.parent)
    temporary = final.with_name(f"{TEMPORARY}{made}-{final.name}")
    temporary.write_bytes(content)
    sync_file(temporary)
    return temporary


def sweep(bucket: Path, made: int) -> None:
    """Files of this stream that were never remembered: what is in them is written again."""
    for path in bucket.rglob(f"{TEMPORARY}{made}-*"):
        path.unlink(missing_ok=True)


def join_records(values: Sequence[bytes], delimiter: bytes, compress: bool) -> bytes:
    """Records one after the other, as Firehose writes them."""
    whole = b"".join(value + delimiter for value in values) if delimiter else b"".join(values)
    return gzip.compress(whole, compresslevel=6, mtime=0) if compress else whole


def parquet_file(values: Sequence[bytes], schema: Topic | None) -> tuple[bytes | None, dict[int, str]]:
    """JSON records as a Parquet file, and those that do not fit: number → reason."""
    table, rejected = _typed(values, schema) if schema is not None else _as_they_are(values)
    if table is None or not table.num_rows:
        return None, rejected
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="snappy")
    return sink.getvalue(), rejected


def _typed(values: Sequence[bytes], schema: Topic) -> tuple[pa.Table | None, dict[int, str]]:
    codec = JsonCodec(schema)
    decoded = codec.decode([_event(value) for value in values], values.__getitem__, 0, 1 << 60)
    if decoded.batch is None:
        return None, decoded.rejected
    named = [column.name for column in (*schema.spec.key, *schema.spec.value)]
    names = [name for name in named if name in decoded.batch.schema.names]
    return pa.Table.from_batches([decoded.batch]).select(names), decoded.rejected


def _as_they_are(values: Sequence[bytes]) -> tuple[pa.Table | None, dict[int, str]]:
    rows, rejected = [], {}
    for number, value in enumerate(values):
        event = _event(value)
        if isinstance(event, dict) and event:
            rows.append(event)
        else:
            rejected[number] = f"the record {event.reason}" if isinstance(event, Unreadable) else "is no JSON object"
    if not rows:
        return None, rejected
    try:
        return pa.Table.from_pylist(rows, schema=_common_schema(rows)), rejected
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # Records of one field disagree about its type: then it is text.
        names = list(dict.fromkeys(name for row in rows for name in row))
        texts = [{name: _text(row.get(name)) for name in names} for row in rows]
        return pa.Table.from_pylist(texts, schema=pa.schema([(name, pa.string()) for name in names])), rejected


def _common_schema(rows: Sequence[dict[str, object]]) -> pa.Schema:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.schema([(name, pa.array([row.get(name) for row in rows]).type) for name in names])


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def _event(value: bytes) -> object:
    try:
        found: object = msgspec.json.decode(value)
        return found
    except msgspec.DecodeError as error:
        return Unreadable(f"is not valid JSON: {error}")
