"""Opening a log: what the journal says is true, and the files are made to agree with it."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from headrace.errors import LogError
from headrace.log.local.archiving import delete_archive
from headrace.log.local.files import make_folder, replace_file, sync_folder, write_all
from headrace.log.local.index import Index
from headrace.log.local.journal import Frame, Journal, frames_of
from headrace.log.local.segment import (
    HEADER_SIZE,
    NO_TIME,
    MappedSegment,
    SegmentWriter,
    encode_segment_header,
    index_path,
    list_segments,
    segment_path,
)
from headrace.log.local.stable import published_group
from headrace.log.local.state import LogState, PartitionState, fold
from headrace.log.local.topics import make_partitions, read_definition, topic_folder, write_definition

logger = logging.getLogger(__name__)

FORMAT, FIRST_FORMAT = "headrace-log 2\n", "headrace-log 1\n"


def prepare_folder(folder: Path) -> None:
    """Make the log's folder, or check that it is one we can read."""
    make_folder(folder / "topics")
    file = folder / "format"
    try:
        found = file.read_text()
    except FileNotFoundError:
        file.write_text(FORMAT)
        return
    if found not in (FORMAT, FIRST_FORMAT, ""):
        raise LogError(
            f"`{folder}` is not a log of this version",
            detail=f"its format is `{found.strip()}`",
            hint="update Headrace",
        )
    if found != FORMAT:
        # Before anything is written that a release of the first format would read wrongly.
        replace_file(file, FORMAT.encode())


def open_journal(folder: Path, trusted: int | None = None) -> tuple[Journal, LogState, list[Frame]]:
    """The journal, what it says, and what it holds of segments."""
    path = folder / "journal"
    if not path.exists():
        return *_first_journal(folder, path), []
    journal, records = Journal.open(path, trusted)
    try:
        state = fold(records)
        published = published_group(folder / "stable")
        if published > state.group:
            raise LogError(
                f"the log's journal ends at group {state.group}, but group {published} was already committed",
                detail=f"file `{path}`: its last records are damaged or missing",
                hint=f"restore it from a backup; to accept the loss, delete `{folder / 'stable'}`",
            )
        journal.cut()
        if not journal.salt:
            journal.close()
            journal = Journal.create(path, state.to_payload())
    except BaseException:
        journal.close()
        raise
    return journal, state, list(frames_of(records))


def _first_journal(folder: Path, path: Path) -> tuple[Journal, LogState]:
    existing = sorted(entry.name for entry in (folder / "topics").iterdir())
    if existing:
        raise LogError(
            "the log's journal is missing, but there are topics",
            detail=f"no file `{path}`; topics: " + ", ".join(existing[:5]) + (" …" if len(existing) > 5 else ""),
            hint="restore the journal from a backup, or move the log's folder away to begin with an empty one",
        )
    state = LogState()
    return Journal.create(path, state.to_payload()), state


def reconcile_topics(folder: Path, state: LogState) -> None:
    """Topic folders and definitions as the journal has them; what it does not know is set aside."""
    for deleted in (folder / "deleted").glob("*"):
        delete_archive(deleted, folder)
    shutil.rmtree(folder / "deleted", ignore_errors=True)
    known = {topic.topic.name: topic.topic for topic in state.topics.values()}
    for entry in sorted((folder / "topics").iterdir()):
        definition = read_definition(entry)
        topic = known.get(entry.name)
        if topic is not None and (definition is None or definition.id == topic.id):
            continue
        if definition is not None and definition.id < state.next_topic_id and definition.id not in state.topics:
            logger.info("finishing the deletion of topic `%s`", entry.name)
            delete_archive(entry, folder)
            shutil.rmtree(entry, ignore_errors=True)
        else:
            set_aside(folder, entry)
    for topic in known.values():
        make_partitions(topic_folder(folder, topic.name), topic.spec.partitions)
        if read_definition(topic_folder(folder, topic.name)) != topic:
            write_definition(folder, topic)


def set_aside(folder: Path, path: Path) -> None:
    """Move something the journal does not know to `quarantine/`."""
    make_folder(folder / "quarantine")
    name = "-".join(path.relative_to(folder).parts)
    target, number = folder / "quarantine" / name, 1
    while target.exists():
        target, number = folder / "quarantine" / f"{name}.{number}", number + 1
    logger.warning("`%s` is not in the journal; moved to `%s`", path, target)
    os.rename(path, target)
    sync_folder(target.parent)


def reconcile_segments(folder: Path, partition: Path, state: PartitionState, *, keep: bool) -> None:
    """Segments below the start go, leftovers of rewriting too. Segments past the end are set aside if they are to be
    kept; those of a group that failed a moment ago are not, or a full disk would only get fuller."""
    for name in os.listdir(partition):
        if name.endswith(".tmp"):
            (partition / name).unlink()
    bases = list_segments(partition)
    known = [base for base in bases if state.position and base <= state.segment]
    for base in bases[len(known) :]:
        if keep:
            set_aside(folder, segment_path(partition, base))
        segment_path(partition, base).unlink(missing_ok=True)
        index_path(partition, base).unlink(missing_ok=True)
    for base, following in pairwise(known):
        if following <= state.start:
            segment_path(partition, base).unlink()
            index_path(partition, base).unlink(missing_ok=True)


def restore_frames(partition: Path, state: PartitionState, frames: Sequence[Frame]) -> None:
    """Write what the journal holds of the active segment into it again, and sync it: the power may have gone before the
    segment was synced. Sealed segments were synced when they were sealed, and may have been rewritten since."""
    wanted = [(position, data) for _, _, base, position, data in frames if base == state.segment]
    if not wanted or not state.position:
        return
    descriptor = os.open(segment_path(partition, state.segment), os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        for position, data in wanted:
            write_all(descriptor, [data], position)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def reopen_segment(partition: Path, topic_id: int, number: int, state: PartitionState) -> SegmentWriter | None:
    """The active segment, cut where the journal says, with an index that is true again."""
    if state.position == 0:
        return None
    path = segment_path(partition, state.segment)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size != state.position:
            if size < state.position:
                logger.error("`%s` has lost its last %d bytes", path, state.position - size)
            os.ftruncate(descriptor, state.position)
        segment = MappedSegment(partition, state.segment)
        if segment.generation < 0:
            logger.error("the header of `%s` is damaged; written again", path)
            write_all(descriptor, [encode_segment_header(topic_id, number, state.segment, 0)], 0)
        opened_ms = os.fstat(descriptor).st_mtime_ns // 1_000_000
    finally:
        os.close(descriptor)
    index, max_time = rebuild_index(segment, state.position, state.end)
    generation = max(0, segment.generation)
    writer = SegmentWriter.reopen(partition, state.segment, generation, state.position, index, max_time)
    writer.opened_ms = opened_ms
    try:
        writer.write_index()
    except OSError as error:
        logger.warning("cannot write the index of `%s`: %s", path, error)
    return writer


def rebuild_index(segment: MappedSegment, position: int, end: int) -> tuple[Index, int]:
    """The index and the largest time, from what the index file says and the frames after its last entry. Damage is
    reported and passed over: readers meet it as `CorruptFrame`, and writing goes on."""
    index = segment.index()
    index.cut(position)
    at, offset, max_time = HEADER_SIZE, segment.base, NO_TIME
    if index:
        at, offset, max_time = index.positions[-1], index.offsets[-1], index.times_before[-1]
        header = segment.header_at(at)
        if header is None or header.base_offset != offset:
            index, at, offset, max_time = Index(), HEADER_SIZE, segment.base, NO_TIME
    while offset < end:
        header = segment.header_at(at)
        if header is None or header.base_offset < offset or not segment.is_valid(at, header):
            logger.error("damaged bytes in `%s` at position %d, offset %d", segment.path, at, offset)
            following = segment.next_valid(at, offset, end)
            if following is None:
                break
            at, header = following
        if index.wants(at):
            index.add(header, at, max_time)
        max_time = max(max_time, header.max_time)
        at, offset = at + header.size, header.next_offset
    return index, max_time
