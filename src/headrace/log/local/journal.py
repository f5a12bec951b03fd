"""The commit journal: the one file whose sync makes anything true."""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec

from headrace.errors import LogError
from headrace.log.local.files import replace_file, write_all

MAGIC = b"HRJ1"
SNAPSHOT, GROUP, TOPIC, START, PRODUCER, FULL_GROUP = 1, 2, 3, 4, 5, 6
MOST_BYTES = 16 * 1024 * 1024
"""A longer journal is replaced by a snapshot."""
GROUP_FIELDS = 6
"""Fields of a group. A full one has its frames as a further one."""

Frame = tuple[int, int, int, int, bytes]
"""Bytes that belong into a segment: topic id, partition, the segment's base, position in it, bytes."""

_HEADER = struct.Struct("<4sIII")
_REST = struct.Struct("<II")


def new_salt() -> int:
    """Return what the checksums of a new journal's records begin with."""
    return secrets.randbelow((1 << 32) - 1) + 1


def encode_record(kind: int, payload: Any, salt: int = 0) -> bytes:
    body = msgspec.msgpack.encode(payload)
    rest = _REST.pack(len(body), kind) + body
    record = MAGIC + struct.pack("<I", google_crc32c.extend(salt, rest)) + rest
    return record.ljust((len(record) + 7) & ~7, b"\0")


def decode_records(data: bytes) -> Iterator[tuple[int, Any, int]]:
    """(kind, payload, position after it) for the valid beginning of a journal."""
    position = salt = 0
    while record := _decode_at(data, position, salt):
        yield record
        salt = salt_of(record) if position == 0 else salt
        position = record[2]


def salt_of(record: tuple[Any, ...]) -> int:
    """What the checksums of all records after this one, the first, begin with. Records hold bytes that anybody may have
    sent; without it, some of those could pass for a record of their own."""
    kind, payload = record[:2]
    return int(payload.get("salt", 0)) if kind == SNAPSHOT and isinstance(payload, dict) else 0


def _decode_at(data: bytes, position: int, salt: int) -> tuple[int, Any, int] | None:
    if len(data) - position < _HEADER.size:
        return None
    magic, crc, length, kind = _HEADER.unpack_from(data, position)
    start = position + _HEADER.size
    after = (start + length + 7) & ~7
    if magic != MAGIC or after > len(data) or google_crc32c.extend(salt, data[position + 8 : start + length]) != crc:
        return None
    return kind, msgspec.msgpack.decode(data[start : start + length]), after


def find_record(data: bytes, position: int, salt: int) -> int | None:
    """The position of the next valid record after `position`: a torn tail has none, damage in the middle has."""
    found = data.find(MAGIC, position)
    while found >= 0:
        if found % 8 == 0 and _decode_at(data, found, salt):
            return found
        found = data.find(MAGIC, found + 1)
    return None


def frames_of(records: Sequence[tuple[int, Any]]) -> Iterator[Frame]:
    """What the records hold of segments, in the order in which it was committed."""
    for kind, payload in records:
        if kind == FULL_GROUP:
            yield from map(tuple, payload[GROUP_FIELDS])
        elif kind == SNAPSHOT:
            yield from map(tuple, payload.get("frames", ()))


class Journal:
    """The open journal. `length` is what has been synced; after a failure everything past it is cut, never trusted."""

    def __init__(self, path: Path, descriptor: int, length: int, salt: int, has_frames: bool) -> None:
        self.path = path
        self.length = length
        self.salt = salt
        """0 if it was begun by a release that had none."""
        self.has_frames = has_frames
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path, state: dict[str, Any], frames: Sequence[Frame] = ()) -> Journal:
        """A new file that begins with a snapshot, in place of the old one if there is one. `frames` are those that the
        old one holds and the segments may not."""
        salt = new_salt()
        record = encode_record(SNAPSHOT, state | {"salt": salt, "frames": frames})
        replace_file(path, record)
        return cls(path, os.open(path, os.O_RDWR), len(record), salt, bool(frames))

    @classmethod
    def open(cls, path: Path, trusted: int | None = None) -> tuple[Journal, list[tuple[int, Any]]]:
        """Read the valid beginning. `trusted` is the length known to be synced, if it is known. `cut` comes next, once
        the records have been found to make sense."""
        descriptor = os.open(path, os.O_RDWR)
        try:
            data = path.read_bytes()[:trusted]
            records, length = [], 0
            for kind, payload, after in decode_records(data):
                records.append((kind, payload))
                length = after
            check_records(path, data, records, length)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, length, salt_of(records[0]), any(frames_of(records))), records

    def cut(self) -> None:
        """Remove a torn tail."""
        if os.fstat(self._descriptor).st_size > self.length:
            os.ftruncate(self._descriptor, self.length)
            os.fsync(self._descriptor)

    def append(self, kind: int, payload: Any) -> None:
        """Write one record and sync it. This is the commit."""
        record = encode_record(kind, payload, self.salt)
        write_all(self._descriptor, [record], self.length)
        os.fdatasync(self._descriptor)
        self.length += len(record)
        self.has_frames |= kind == FULL_GROUP

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def check_records(path: Path, data: bytes, records: list[tuple[int, Any]], length: int) -> None:
    """`LogError` if what was read, `length` bytes, is not a journal with at most a torn tail."""
    hint = "restore the file from a backup; the segments in `topics/` are untouched"
    if not records or records[0][0] != SNAPSHOT:
        raise LogError("the log's journal does not begin with a snapshot", detail=f"file `{path}`", hint=hint)
    if (found := find_record(data, length, salt_of(records[0]))) is not None:
        raise LogError(
            "the log's journal is damaged in the middle",
            detail=f"file `{path}`: nothing valid at position {length}, but again at {found}",
            hint=hint,
            file=str(path),
            position=length,
        )
