"""The sparse index beside a segment. It saves time and holds nothing that the frames do not."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

import google_crc32c

from headrace.log.local.frame import FrameHeader

MAGIC = b"HRIDX001"
EVERY = 64 * 1024
"""An entry at least every so many bytes of segment."""

_HEADER = struct.Struct("<8sII Q Q")
_ENTRY = struct.Struct("<QQQq")
_CRC = struct.Struct("<II")
HEADER_SIZE, ENTRY_SIZE = 32, 40


@dataclass(slots=True)
class Index:
    """Parallel lists, one item per entry, so that a search is one `bisect`."""

    offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    times_before: list[int] = field(default_factory=list)
    """Largest `$time` of all rows before the entry; -1 if there are none."""

    def __len__(self) -> int:
        return len(self.offsets)

    def wants(self, position: int) -> bool:
        return not self.positions or position - self.positions[-1] >= EVERY

    def add(self, header: FrameHeader, position: int, time_before: int) -> None:
        self.offsets.append(header.base_offset)
        self.positions.append(position)
        self.arrivals.append(header.first_arrival)
        self.times_before.append(time_before)

    def cut(self, position: int) -> None:
        """Forget what lies at or past `position`."""
        keep = bisect_left(self.positions, position)
        for column in (self.offsets, self.positions, self.arrivals, self.times_before):
            del column[keep:]

    def before_offset(self, offset: int) -> int | None:
        """Number of the last entry at or before `offset`."""
        return _number(bisect_right(self.offsets, offset))

    def before_arrival(self, arrival: int) -> int | None:
        return _number(bisect_right(self.arrivals, arrival))

    def before_time(self, time_ms: int) -> int | None:
        """Number of the last entry before which every `$time` is below `time_ms`."""
        return _number(bisect_left(self.times_before, time_ms))


def _number(after: int) -> int | None:
    return after - 1 if after else None


def encode_index_header(generation: int, base_offset: int) -> bytes:
    return _HEADER.pack(MAGIC, generation, 0, base_offset, 0)


def encode_entries(index: Index, first: int = 0) -> bytes:
    """The entries from number `first` on, each with its own checksum: the file is not synced with the log."""
    out = bytearray()
    for number in range(first, len(index)):
        entry = _ENTRY.pack(
            index.offsets[number], index.positions[number], index.arrivals[number], index.times_before[number]
        )
        out += entry + _CRC.pack(google_crc32c.value(entry), 0)
    return bytes(out)


def decode_index(data: bytes, generation: int, base_offset: int) -> Index:
    """The valid beginning of an index file; empty if it belongs to another segment or generation."""
    index = Index()
    if len(data) < HEADER_SIZE or data[:HEADER_SIZE] != encode_index_header(generation, base_offset):
        return index
    for start in range(HEADER_SIZE, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
        entry = data[start : start + _ENTRY.size]
        if _CRC.unpack_from(data, start + _ENTRY.size)[0] != google_crc32c.value(entry):
            break
        offset, position, arrival, time_before = _ENTRY.unpack(entry)
        index.offsets.append(offset)
        index.positions.append(position)
        index.arrivals.append(arrival)
        index.times_before.append(time_before)
    return index
