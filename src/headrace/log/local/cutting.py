"""Making a log's files as they were at a mark, from a backup that was made after it.

Segments that end before the mark are taken as they are; the one that the mark divides is written anew without what came
later. Meanwhile retention may have removed records, compaction replaced them, or a topic may have been deleted: then
the part that an older backup has is taken from there, and what neither has is named as a loss before anything is done.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from headrace.errors import Conflict
from headrace.log.base import OFFSET, Topic
from headrace.log.epochs import Epochs, decode_epochs, encode_epochs
from headrace.log.local import journal as journals
from headrace.log.local.archive import MANIFEST, ArchivedFile, Manifest
from headrace.log.local.backup_contents import Contents, Held
from headrace.log.local.backup_store import BackupStore, Stored
from headrace.log.local.compacted_frames import empty_frame, write_segment
from headrace.log.local.epoch_file import FILE as EPOCHS
from headrace.log.local.files import make_folder, replace_file, sync_folder
from headrace.log.local.frame import HAS_OFFSETS
from headrace.log.local.marks import FOLDER, decode_marks
from headrace.log.local.moments import Target, read_target
from headrace.log.local.recovery import rebuild_index, restore_frames
from headrace.log.local.replacement import Replacement, replace_index
from headrace.log.local.rewrite import schema_of
from headrace.log.local.segment import HEADER_SIZE, MappedSegment, encode_segment_header, segment_path
from headrace.log.local.state import PartitionState
from headrace.log.local.topics import topic_folder
from headrace.log.local.walk import QUARANTINED, PartitionFiles
from headrace.log.schema import OFFSET_FIELD, is_topic_name

FRAME_ROWS = 20_000

Progress = Callable[[int, int], None]
"""Bytes done, and of how many."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that the log had at the moment, and no backup has."""

    topic: str
    partition: int
    records: int
    """At most."""
    why: str


@dataclass(slots=True)
class Part:
    """One partition as it is to be."""

    topic: Topic
    number: int
    want: PartitionState
    pieces: list[tuple[Held, int, int]] = field(default_factory=list)
    """Where its offsets come from: from the first up to before the second."""
    hole: tuple[int, int] | None = None
    """Offsets between the pieces of which nothing is left."""
    losses: list[Loss] = field(default_factory=list)

    def lose(self, records: int, why: str) -> None:
        if records > 0:
            self.losses.append(Loss(self.topic.name, self.number, records, why))


class Cut:
    """A backup up to a mark. Nothing is written before `write`."""

    def __init__(self, store: BackupStore, target: Target) -> None:
        self.store, self.target = store, target
        self.state = read_target(store, target)
        self.after = Contents(store, target.point)
        self.before = Contents(store, target.before) if target.before is not None else None
        self.parts = [
            self._plan(state.topic, number, want)
            for state in self.state.topics.values()
            for number, want in enumerate(state.partitions)
        ]
        self.records = sum(part.want.end - part.want.start for part in self.parts)
        self.archived: list[Stored] = []
        """Files of the archive that belong to it; known after `write`."""

    @property
    def losses(self) -> list[Loss]:
        return [loss for part in self.parts for loss in part.losses]

    def _plan(self, topic: Topic, number: int, want: PartitionState) -> Part:
        part = Part(topic, number, want)
        if want.start >= want.end:
            return part
        after = self.after.of(topic, number)
        before = self.before.of(topic, number) if self.before is not None else None
        # Records that came later may have replaced some, if they were in segments that can be compacted.
        compacted = after is not None and after.compacted and after.state.segment > want.end
        if after is not None and after.state.start <= want.start and not compacted:
            part.pieces = [(after, 0, want.end)]
            return part
        have = 0
        if before is not None and before.state.end > want.start:
            have = before.state.end
            part.pieces = [(before, 0, have)]
        first = max(have, want.start)
        if after is None:
            part.lose(want.end - first, "the topic was deleted before the backup")
            held = want.end
        else:
            held = min(max(after.state.start, first), want.end)
            part.lose(held - first, "retention removed them before the backup")
            if compacted:
                gaps = min(after.gaps(held, want.end), after.state.segment - want.end)
                part.lose(gaps, "compaction replaced them before the backup")
            if held < want.end:
                part.pieces.append((after, held if have else 0, want.end))
        if have and held > have:
            part.hole = (have, held)
        elif not have:
            want.start = held
        return part

    # Writing

    def write(self, new: Path, progress: Progress) -> int:
        """Write the log's files to a folder; returns how many bytes it read. `archived` are then to be put into the
        archive."""
        total, done = sum(one.bytes for one in self.target.point.stored), 0
        for part in self.parts:
            if not is_topic_name(part.topic.name):
                raise Conflict(f"the backup names a topic that cannot be: `{part.topic.name[:100]}`")
            _Assembly(self, part, topic_folder(new, part.topic.name) / str(part.number), new / "cut").run()
            done += sum(one.bytes for held, _, _ in part.pieces for one in held.files.values())
            progress(done, max(done, total))
        self._write_marks(new / FOLDER)
        for one in self.target.point.files:
            if one.path == EPOCHS and (epochs := decode_epochs(b"".join(self.store.read(one)))) is not None:
                there = tuple(epoch for epoch in epochs.known if epoch.start <= self.state.next_arrival)
                replace_file(new / EPOCHS, encode_epochs(Epochs(there or epochs.known[:1])))
        payload = self.state.to_payload() | {"salt": journals.new_salt(), "frames": []}
        replace_file(new / "journal", journals.encode_record(journals.SNAPSHOT, payload))
        return done

    def _write_marks(self, folder: Path) -> None:
        last = self.target.mark
        assert last is not None
        for one in self.target.point.files:
            home, _, name = one.path.partition("/")
            if home != FOLDER:
                continue
            data, length = b"".join(self.store.read(one)), 0
            for mark, _, _ in decode_marks(data, name):
                same = name.rpartition("-")[0] == last.file.rpartition("-")[0]
                within = (name, mark.length) <= (last.file, last.length) if same else mark.last_ms <= last.last_ms
                if not within or mark.group > last.group:
                    break
                length = mark.length
            if length:
                make_folder(folder)
                replace_file(folder / name, data[:length])


class _Assembly:
    """Writes the files of one partition."""

    def __init__(self, cut: Cut, part: Part, home: Path, scratch: Path) -> None:
        self._cut, self._part, self._home, self._scratch = cut, part, home, scratch
        self._store, self._topic, self._number = cut.store, part.topic, part.number
        self._kept: list[ArchivedFile] = []

    def run(self) -> None:
        part, want = self._part, self._part.want
        make_folder(self._home)
        for held, first, after in part.pieces:
            self._write_piece(held, first, after)
        if part.hole is not None:
            arrival = self._cut.before.point.arrival if self._cut.before is not None else 0
            with Replacement(self._home, self._topic.id, self._number, part.hole[0], 1) as written:
                written.add(*empty_frame(self._topic, *part.hole, (arrival, arrival)))
                written.finish(self._modified(0))
        self._write_asides()
        if self._kept:
            replace_file(self._home / MANIFEST, msgspec.json.encode(Manifest(self._kept)))
        found = part.pieces[0][0].state if len(part.pieces) == 1 else PartitionState()
        if found.position and found.end == want.end:
            want.segment, want.position = found.segment, found.position
            if found.segment == found.end:
                self._begin_segment(found.end)
        elif want.end:
            want.segment, want.position = want.end, HEADER_SIZE
            self._begin_segment(want.end)
        else:
            want.segment = want.position = 0
        sync_folder(self._home)

    def _begin_segment(self, base: int) -> None:
        """Write an empty segment for what comes next."""
        replace_file(segment_path(self._home, base), encode_segment_header(self._topic.id, self._number, base, 0))

    def _modified(self, modified_ns: int) -> int:
        """When the last record of a segment came, which is what retention goes by."""
        return min(modified_ns or 1 << 62, self._cut.target.time_ms * 1_000_000)

    def _write_piece(self, held: Held, first: int, after: int) -> None:
        begin = max(first, self._part.want.start)
        archived = {one.path: one for one in held.contents.point.archived}
        latest = self._topic.schemas[-1].version
        for file in held.manifest():
            if file.next <= begin or file.base >= after:
                continue
            # Its columns are of the newest schema of then, which may have been altered since the moment.
            file = msgspec.structs.replace(file, version=min(file.version, latest))
            if not first and file.next <= after:
                self._kept.append(file)
                self._cut.archived.append(archived[file.file])
            else:
                self._cut_archived(held, file, archived[file.file], max(file.base, first), min(file.next, after))
        for base, end, one in held.segments():
            if end <= begin or base >= after:
                continue
            if base >= first and end <= after:
                self._copy_segment(held, base, end, one)
            else:
                self._cut_segment(held, base, one, max(base, first), min(end, after))

    def _copy_segment(self, held: Held, base: int, end: int, one: Stored) -> None:
        target = segment_path(self._home, base)
        self._store.extract(one, target)
        if base == held.state.segment:
            restore_frames(self._home, held.state, held.frames)
        index = held.files.get(target.with_suffix(".idx").name)
        if index is not None:
            self._store.extract(index, target.with_suffix(".idx"))
            return
        segment = MappedSegment(self._home, base)
        replace_index(self._home, base, max(0, segment.generation), rebuild_index(segment, segment.size, end)[0])

    def _cut_segment(self, held: Held, base: int, one: Stored, first: int, after: int) -> None:
        folder = self._scratch_folder(held)
        self._store.extract(one, segment_path(folder, base))
        if base == held.state.segment:
            restore_frames(folder, held.state, held.frames)
        self._write_segment(PartitionFiles(folder), first, after, self._modified(one.modified_ns))

    def _cut_archived(self, held: Held, file: ArchivedFile, one: Stored, first: int, after: int) -> None:
        folder = self._scratch_folder(held)
        self._store.extract(one, self._scratch / "part.parquet")
        local = msgspec.structs.replace(file, file="part.parquet")
        (folder / MANIFEST).write_bytes(msgspec.json.encode(Manifest([local])))
        self._write_segment(PartitionFiles(folder), first, after, self._modified(file.came_ms * 1_000_000))

    def _scratch_folder(self, held: Held) -> Path:
        shutil.rmtree(self._scratch, ignore_errors=True)
        folder = topic_folder(self._scratch, self._topic.name) / str(self._number)
        make_folder(folder)
        if (aside := held.files.get(QUARANTINED)) is not None:
            self._store.extract(aside, folder / QUARANTINED)
        return folder

    def _write_segment(self, files: PartitionFiles, first: int, after: int, modified_ns: int) -> None:
        """Write the records of a range as one segment."""
        kept, arrivals = [np.zeros(0, np.int64)], (0, 0)
        for place in files.frames(first, after):
            header = place.header
            arrivals = arrivals if any(arrivals) else (header.first_arrival, header.first_arrival)
            offsets = np.arange(header.base_offset, header.next_offset)
            if header.flags & HAS_OFFSETS:
                schema = schema_of(self._topic, header.schema_version).insert(0, OFFSET_FIELD)
                offsets = place.batch(schema, [OFFSET]).column(0).to_numpy()
            kept.append(offsets[(offsets >= first) & (offsets < after)])
        whole = np.concatenate(kept)
        with Replacement(self._home, self._topic.id, self._number, first, 1) as written:
            if len(whole):
                for header, body in write_segment(files, self._topic, first, after, whole, FRAME_ROWS):
                    written.add(header, body)
            else:
                written.add(*empty_frame(self._topic, first, after, arrivals))
            written.finish(modified_ns)
        shutil.rmtree(self._scratch)

    def _write_asides(self) -> None:
        """Offsets that were set aside stay so, where the segments are still those."""
        asides: list[tuple[int, int]] = []
        for held, first, after in self._part.pieces:
            if (one := held.files.get(QUARANTINED)) is not None:
                found = msgspec.json.decode(b"".join(self._store.read(one)), type=list[tuple[int, int]])
                asides += [(max(low, first), min(high, after)) for low, high in found if low < after and high > first]
        if asides:
            replace_file(self._home / QUARANTINED, msgspec.json.encode(asides))
