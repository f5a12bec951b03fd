"""What a backup has of each partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec

from headrace.log.base import Topic
from headrace.log.local.archive import MANIFEST, ArchivedFile, Manifest
from headrace.log.local.backup_store import BackupStore, Point, Stored
from headrace.log.local.frame import decode_header
from headrace.log.local.journal import Frame
from headrace.log.local.moments import read_point
from headrace.log.local.segment import HEADER_SIZE, segment_path
from headrace.log.local.state import LogState, PartitionState
from headrace.structs import ready


@dataclass(slots=True)
class Contents:
    """A backup's files, by the partition that they are of."""

    store: BackupStore
    point: Point
    state: LogState = field(init=False)
    frames: dict[tuple[int, int], list[Frame]] = field(default_factory=dict)
    files: dict[tuple[str, str], dict[str, Stored]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state, frames = read_point(self.store, self.point)
        for frame in frames:
            self.frames.setdefault((frame[0], frame[1]), []).append(frame)
        for one in self.point.files:
            parts = one.path.split("/")
            if len(parts) == 4 and parts[0] == "topics":
                self.files.setdefault((parts[1], parts[2]), {})[parts[3]] = one

    def of(self, topic: Topic, number: int) -> Held | None:
        """Return what it has of a partition; None if the topic was not there."""
        known = self.state.topics.get(topic.id)
        if known is None or number >= len(known.partitions):
            return None
        files = self.files.get((known.topic.name, str(number)), {})
        compacted = known.topic.spec.config.compacted or topic.spec.config.compacted
        return Held(self, known.partitions[number], files, self.frames.get((topic.id, number), []), compacted)


@dataclass(frozen=True, slots=True)
class Held:
    """What a backup has of one partition."""

    contents: Contents
    state: PartitionState
    files: dict[str, Stored]
    frames: list[Frame]
    compacted: bool

    def segments(self) -> Iterator[tuple[int, int, Stored]]:
        """Return the first offset of each segment, that after it, and its file."""
        bases = sorted(int(name[:20]) for name in self.files if name.endswith(".seg"))
        for base, after in pairwise([*bases, self.state.end]):
            if base < after:
                yield base, after, self.files[segment_path(Path(), base).name]

    def manifest(self) -> list[ArchivedFile]:
        """Return the archived files that are not in segments, too."""
        if (one := self.files.get(MANIFEST)) is None:
            return []
        manifest = msgspec.json.decode(b"".join(self.contents.store.read(one)), type=ready(Manifest))
        first = next((base for base, _, _ in self.segments()), self.state.end)
        return [file for file in manifest.files if file.base < first]

    def gaps(self, first: int, after: int) -> int:
        """Return how many offsets compaction has emptied, in the frames that have any in a range."""
        found = 0
        for base, end, one in self.segments():
            if end > first and base < after:
                data, position = self.contents.store.path(one.sha256).read_bytes(), HEADER_SIZE
                while (header := decode_header(data, position)) is not None:
                    if header.next_offset > first and header.base_offset < after:
                        found += header.next_offset - header.base_offset - header.rows
                    position += header.size
        return min(found, after - first)
