"""Sorted runs of event ids: files that are written once, mapped, searched, merged and dropped.

A run holds 24 bytes an id: the two halves of its digest and where the record is, in three columns sorted by the digest.
Runs of about one size are merged into one of the next, slice by slice, so that neither many ids nor a merge needs
memory; what has expired goes with whole runs.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec
import numpy as np

from headrace.errors import LogError
from headrace.log.local.files import write_all

Place = tuple[int, int]
"""Partition and offset."""

ENTRY = 24
FEW = 64
"""So many are looked up one by one: faster than asking numpy."""
FILTER_BITS = 16
"""Of the filter in memory, for each id; up to twice as many, since it is a power of two."""
LARGEST_FILTER = 27
"""A filter has at most so many bits, as a power of two (16 MiB): that of a run beyond eight million ids lets more pass,
and memory stays bounded however many ids there are."""
SLICE = 500_000
"""About how many entries are merged at once."""
_CHUNK = 4 * 1024 * 1024
_OFFSET_BITS = 44
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class RunInfo(msgspec.Struct, frozen=True):
    """What the manifest says about a run."""

    number: int
    count: int
    first_ms: int
    last_ms: int
    """When its ids were noted."""
    ends: dict[int, int]
    """By partition: above all its offsets."""
    crc: int | None = None
    """CRC32C of the file; older versions wrote none."""


@dataclass(slots=True, eq=False)
class Run:
    """Never changes; what is made of it to find ids faster is made when first needed."""

    info: RunInfo
    high: Any
    low: Any
    places: Any
    plain_high: memoryview = field(repr=False)
    plain_low: memoryview = field(repr=False)
    plain_places: memoryview = field(repr=False)
    _filter: Any = field(default=None, repr=False)

    def prepare(self) -> None:
        """For whoever has time to."""
        if self._filter is None:
            self._filter = filter_of(self.high)

    def find(self, digest: bytes) -> Place | None:
        high, low = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")
        at = bisect_left(self.plain_high, high)
        while at < self.info.count and self.plain_high[at] == high:
            if self.plain_low[at] == low:
                return unpack(self.plain_places[at])
            at += 1
        return None

    def find_many(self, digests: Sequence[bytes], high: Any) -> Iterator[tuple[bytes, Place]]:
        """With their high halves."""
        self.prepare()
        likely = np.flatnonzero(passes(self._filter, high))
        wanted = high[likely]
        at = np.searchsorted(self.high, wanted)
        hits = likely[self.high[np.minimum(at, self.info.count - 1)] == wanted]
        # Equal halves are nearly always equal digests: looked at one by one.
        for row in hits.tolist():
            if (place := self.find(digests[row])) is not None:
                yield digests[row], place


def run_path(folder: Path, number: int) -> Path:
    return folder / f"{number:012}.run"


def pack(partition: int, offset: int) -> int:
    """A place as one number; those of a partition follow each other."""
    return partition << _OFFSET_BITS | offset


def unpack(place: int) -> Place:
    return place >> _OFFSET_BITS, place & _OFFSET_MASK


def halves(digests: Sequence[bytes]) -> Any:
    return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2)


def high_halves(digests: Sequence[bytes]) -> Any:
    return halves(digests)[:, 0].astype(np.uint64)


def columns_of(entries: Mapping[bytes, int]) -> tuple[Any, Any, Any]:
    """The three columns, sorted, of digests and packed places."""
    both = halves(list(entries)).astype(np.uint64)
    at = np.fromiter(entries.values(), np.uint64, len(entries))
    order = np.lexsort((both[:, 1], both[:, 0]))
    return both[order, 0], both[order, 1], at[order]


def filter_of(high: Any) -> tuple[Any, Any]:
    """A bit for each beginning of a digest, many more bits than there are digests: most that are not in a run are told
    so by one look, instead of a search."""
    bits = np.uint64(min(max(6, (len(high) * FILTER_BITS - 1).bit_length()), LARGEST_FILTER))
    shift = np.uint64(64) - bits
    found = np.zeros(1 << (int(bits) - 3), np.uint8)
    for first in range(0, len(high), SLICE):
        slots = high[first : first + SLICE] >> shift
        octets, masks = slots >> np.uint64(3), np.uint8(1) << (slots & np.uint64(7)).astype(np.uint8)
        # Sorted, so those of one octet are neighbours.
        starts = np.flatnonzero(np.diff(octets, prepend=octets[0] + np.uint64(1)))
        found[octets[starts]] |= np.bitwise_or.reduceat(masks, starts)
    return found, shift


def passes(known: tuple[Any, Any], high: Any) -> Any:
    """Which of them may be in the run."""
    found, shift = known
    slots = high >> shift
    return (found[slots >> np.uint64(3)] >> (slots & np.uint64(7)).astype(np.uint8)) & np.uint8(1)


def open_run(folder: Path, info: RunInfo, *, check: bool = True) -> Run:
    """`LogError` if it is not what was written; without `check`, right after it was."""
    path = run_path(folder, info.number)
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != info.count * ENTRY:
                raise LogError(f"the index of event ids `{path.name}` is not as long as it should be")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise LogError(f"the index of event ids misses `{path.name}`") from None
    if check and info.crc is not None and _checksum(mapped) != info.crc:
        raise LogError(f"the index of event ids `{path.name}` is damaged")
    count, whole = info.count, memoryview(mapped).cast("Q")
    plain = [whole[first : first + count] for first in (0, count, 2 * count)]
    high, low, places = (np.frombuffer(part, np.uint64) for part in plain)
    return Run(info, high, low, places, *plain)


def _checksum(mapped: mmap.mmap) -> int:
    """A gigabyte takes a fraction of a second: an id that is not found any more would be taken twice."""
    crc = 0
    for first in range(0, len(mapped), _CHUNK):
        crc = google_crc32c.extend(crc, mapped[first : first + _CHUNK])
    return crc


def write_run(folder: Path, number: int, columns: Sequence[Any]) -> int:
    """Synced, but for the folder. Returns the checksum."""
    descriptor = os.open(run_path(folder, number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        data = b"".join(column.tobytes() for column in columns)
        write_all(descriptor, [data], 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return int(google_crc32c.value(data))


def merge_runs(folder: Path, runs: Sequence[Run], number: int, starts: Mapping[int, int]) -> RunInfo | None:
    """All that is not gone of these runs, the newest last, in one; None if nothing is left. Of one digest in several
    the newest place counts."""
    total = sum(run.info.count for run in runs)
    slices = max(1, -(-total // SLICE))
    edges = [(1 << 64) * part // slices for part in range(1, slices)]
    bounds = [[0, *(bisect_left(run.plain_high, edge) for edge in edges), run.info.count] for run in runs]
    paths = [folder / f"{number:012}.part{column}" for column in range(3)]
    files = [path.open("wb") for path in paths]
    count = crc = 0
    ends: dict[int, int] = {}
    try:
        for part in range(slices):
            cut = [slice(bound[part], bound[part + 1]) for bound in bounds]
            merged = _merge(runs[::-1], cut[::-1], starts)
            for file, column in zip(files, merged, strict=True):
                file.write(column.tobytes())
            count += len(merged[0])
            for partition, end in ends_of(merged[2]).items():
                ends[partition] = max(ends.get(partition, 0), end)
        for file in files:
            file.close()
        if count:
            crc = _join(run_path(folder, number), paths)
    finally:
        for file, path in zip(files, paths, strict=True):
            file.close()
            path.unlink(missing_ok=True)
    if not count:
        return None
    first, last = min(run.info.first_ms for run in runs), max(run.info.last_ms for run in runs)
    return RunInfo(number, count, first, last, ends, crc)


def _merge(runs: Sequence[Run], cuts: Sequence[slice], starts: Mapping[int, int]) -> tuple[Any, Any, Any]:
    high = np.concatenate([run.high[cut] for run, cut in zip(runs, cuts, strict=True)])
    low = np.concatenate([run.low[cut] for run, cut in zip(runs, cuts, strict=True)])
    places = np.concatenate([run.places[cut] for run, cut in zip(runs, cuts, strict=True)])
    order = np.lexsort((low, high))
    high, low, places = high[order], low[order], places[order]
    kept = living(places, starts)
    kept[1:] &= (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return high[kept], low[kept], places[kept]


def living(places: Any, starts: Mapping[int, int]) -> Any:
    """Which of the records are still in the log."""
    kept = np.ones(len(places), np.bool_)
    partitions, offsets = places >> np.uint64(_OFFSET_BITS), places & np.uint64(_OFFSET_MASK)
    for partition, start in starts.items():
        if start:
            kept &= (partitions != np.uint64(partition)) | (offsets >= np.uint64(start))
    return kept


def living_share(run: Run, starts: Mapping[int, int]) -> float:
    """How much of a run is still in the log; looked at slice by slice."""
    parts = range(0, run.info.count, SLICE)
    return sum(int(living(run.places[first : first + SLICE], starts).sum()) for first in parts) / run.info.count


def ends_of(places: Any) -> dict[int, int]:
    """By partition: above all its offsets."""
    partitions = places >> np.uint64(_OFFSET_BITS)
    return {
        partition: int((places[partitions == np.uint64(partition)] & np.uint64(_OFFSET_MASK)).max()) + 1
        for partition in np.unique(partitions).tolist()
    }


def find_in(runs: Sequence[Run], digests: Sequence[bytes]) -> Iterator[tuple[bytes, Place]]:
    """Where the digests are, those of the first run first."""
    if len(digests) <= FEW:
        for run in runs:
            yield from ((digest, place) for digest in digests if (place := run.find(digest)) is not None)
        return
    high = high_halves(digests)
    for run in runs:
        yield from run.find_many(digests, high)


def _join(path: Path, parts: Sequence[Path]) -> int:
    """The columns were written side by side; they belong one after the other. Returns the checksum of it all."""
    crc = 0
    with path.open("wb") as whole:
        for part in parts:
            with part.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    whole.write(chunk)
                    crc = google_crc32c.extend(crc, chunk)
        whole.flush()
        os.fsync(whole.fileno())
    return crc
