"""Segment files: the writer of the active one, and the mapped view readers have of any."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa

from headrace.errors import CorruptFrame
from headrace.log.local.files import sync_file, write_all
from headrace.log.local.frame import ALIGNMENT, FrameHeader, decode_header, frame_is_valid
from headrace.log.local.frame import MAGIC as FRAME_MAGIC
from headrace.log.local.index import HEADER_SIZE as INDEX_HEADER_SIZE
from headrace.log.local.index import Index, decode_index, encode_entries, encode_index_header

MAGIC = b"HRSEG001"
HEADER_SIZE = 64
NO_TIME = -1

_HEADER = struct.Struct("<8sIIQI")
_CRC = struct.Struct("<I")


def segment_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020}.seg"


def index_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020}.idx"


def list_segments(folder: Path) -> list[int]:
    """Base offsets of the segments in a partition's folder, in order."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(name[:20]) for name in names if len(name) == 24 and name.endswith(".seg") and name[:20].isdigit())


def encode_segment_header(topic_id: int, partition: int, base: int, generation: int) -> bytes:
    start = _HEADER.pack(MAGIC, topic_id, partition, base, generation)
    return (start + _CRC.pack(google_crc32c.value(start))).ljust(HEADER_SIZE, b"\0")


def decode_generation(data: Any, base: int) -> int | None:
    """The generation of the segment that starts at `base`, or None if this is not its header."""
    if len(data) < HEADER_SIZE:
        return None
    start = bytes(data[: _HEADER.size])
    magic, _, _, stored_base, generation = _HEADER.unpack(start)
    if magic != MAGIC or stored_base != base or _CRC.unpack_from(data, _HEADER.size)[0] != google_crc32c.value(start):
        return None
    return int(generation)


class MappedSegment:
    """A segment as it was when mapped. Bytes that were there stay readable, also after it was rewritten or deleted."""

    def __init__(self, folder: Path, base: int) -> None:
        self.path = segment_path(folder, base)
        self.base = base
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            self.identity = (status.st_ino, status.st_size)
            self.raw: Any = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ) if status.st_size else b""
        finally:
            os.close(descriptor)
        self.data = pa.py_buffer(self.raw)
        generation = decode_generation(self.raw, base)
        # A damaged header hurts nobody but the index, which then does not match and is not used.
        self.generation = -1 if generation is None else generation

    @property
    def size(self) -> int:
        return int(self.identity[1])

    def is_current(self) -> bool:
        """Whether a new mapping would show the same. `FileNotFoundError` if the file is gone."""
        status = os.stat(self.path)
        return (status.st_ino, status.st_size) == self.identity

    def is_replaced(self) -> bool:
        """Whether the name means another file by now, or none."""
        try:
            return os.stat(self.path).st_ino != self.identity[0]
        except FileNotFoundError:
            return True

    def index(self) -> Index:
        if self.generation < 0:
            return Index()
        try:
            return decode_index(index_path(self.path.parent, self.base).read_bytes(), self.generation, self.base)
        except FileNotFoundError:
            return Index()

    def header_at(self, position: int) -> FrameHeader | None:
        header = decode_header(self.raw, position)
        return header if header and position + header.size <= self.size else None

    def is_valid(self, position: int, header: FrameHeader) -> bool:
        return frame_is_valid(self.data, position, header)

    def next_valid(self, position: int, above: int, below: int) -> tuple[int, FrameHeader] | None:
        """The first intact frame after `position` whose base offset is in (above, below): where reading can go on."""
        end = self._readable()
        found = self.raw.find(FRAME_MAGIC, position + 1, end)
        while found >= 0:
            header = self.header_at(found) if found % ALIGNMENT == 0 else None
            if header and above < header.base_offset < below and self.is_valid(found, header):
                return found, header
            found = self.raw.find(FRAME_MAGIC, found + 1, end)
        return None

    def _readable(self) -> int:
        """How far the bytes go now: the owner may have cut a group that failed, and what is past the end of a mapped
        file must not be touched."""
        try:
            return min(self.size, os.stat(self.path).st_size)
        except FileNotFoundError:
            return self.size

    def frames(self, offset: int, end: int) -> Iterator[tuple[int, FrameHeader]]:
        """All frames from the start of the segment, checked; for walks that must not skip anything."""
        position = HEADER_SIZE
        while offset < end:
            header = self.header_at(position)
            if header is None or header.base_offset < offset or not self.is_valid(position, header):
                raise corrupt(self.path, position, offset, end)
            yield position, header
            position += header.size
            offset = header.next_offset


def corrupt(path: Path, position: int, first_offset: int, next_offset: int, home: Path | None = None) -> CorruptFrame:
    """`home` is the partition's folder, if the file is not in it."""
    home = home or path.parent
    topic, partition = home.parent.name, home.name
    return CorruptFrame(
        f"damaged bytes in topic `{topic}`, partition {partition}, offsets {first_offset} to {next_offset - 1}",
        detail=f"file `{path}`, position {position}",
        hint="quarantine the offset to read on; the damaged bytes are kept in the log's quarantine folder",
        topic=topic,
        partition=int(partition),
        file=str(path),
        position=position,
        first_offset=first_offset,
        next_offset=next_offset,
    )


class SegmentWriter:
    """The active segment of a partition. Used by the commit thread only."""

    def __init__(self, folder: Path, base: int, descriptor: int, generation: int, position: int) -> None:
        self.folder, self.base = folder, base
        self.position = position
        self.max_time = NO_TIME
        self.opened_ms = 0
        self._generation = generation
        self._descriptor = descriptor
        self._index = Index()
        self._indexed = 0
        self._buffers: list[Any] = []
        self.written = self._synced = position

    @classmethod
    def create(cls, folder: Path, topic_id: int, partition: int, base: int) -> SegmentWriter:
        descriptor = os.open(segment_path(folder, base), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        writer = cls(folder, base, descriptor, 0, HEADER_SIZE)
        writer._buffers.append(encode_segment_header(topic_id, partition, base, 0))
        writer.written = writer._synced = 0
        index_path(folder, base).unlink(missing_ok=True)
        return writer

    @classmethod
    def reopen(
        cls, folder: Path, base: int, generation: int, position: int, index: Index, max_time: int
    ) -> SegmentWriter:
        descriptor = os.open(segment_path(folder, base), os.O_RDWR)
        writer = cls(folder, base, descriptor, generation, position)
        writer.max_time = max_time
        writer._index = index
        return writer

    def add(self, header: FrameHeader, frame: list[Any]) -> None:
        """Take a frame; it is written later."""
        if self._index.wants(self.position):
            self._index.add(header, self.position, self.max_time)
        self._buffers += frame
        self.position += header.size
        self.max_time = max(self.max_time, header.max_time)

    def take_buffers(self) -> list[Any]:
        """What was added and not yet written; for `write`, which another thread may do meanwhile."""
        taken, self._buffers = self._buffers, []
        return taken

    def write(self, buffers: list[Any]) -> None:
        self.written = write_all(self._opened(), buffers, self.written)

    def _opened(self) -> int:
        if self._descriptor < 0:
            self._descriptor = os.open(segment_path(self.folder, self.base), os.O_RDWR)
        return self._descriptor

    def rest(self) -> None:
        """Close the file until the next write. Only for a writer that is not dirty: an error of the disk that nobody
        has seen must not be lost with the descriptor."""
        assert not self.dirty
        self.close()

    @property
    def dirty(self) -> bool:
        """Whether it holds anything that was not synced."""
        return self._synced < self.position

    def sync(self) -> None:
        """Also from another thread, while more is written: that is not synced then."""
        written = self.written
        os.fdatasync(self._opened())
        self._synced = written

    def write_index(self) -> None:
        """Write the entries that are not in the file yet."""
        if self._indexed == len(self._index) and self._indexed:
            return
        entries = encode_entries(self._index, self._indexed)
        flags = os.O_WRONLY | os.O_CREAT | (0 if self._indexed else os.O_TRUNC)
        descriptor = os.open(index_path(self.folder, self.base), flags, 0o644)
        try:
            if not self._indexed:
                write_all(descriptor, [encode_index_header(self._generation, self.base)], 0)
            write_all(descriptor, [entries], INDEX_HEADER_SIZE + self._indexed * 40)
        finally:
            os.close(descriptor)
        self._indexed = len(self._index)

    def sync_index(self) -> None:
        """Before the commit that seals this segment: from then on nobody writes its index again."""
        self.write_index()
        sync_file(index_path(self.folder, self.base))

    def seal(self, now_ms: int) -> None:
        """Close for good; the file's time is when its last record came, which is what retention goes by."""
        os.utime(segment_path(self.folder, self.base), ns=(now_ms * 1_000_000, now_ms * 1_000_000))
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
