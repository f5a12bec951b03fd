"""Archiving: a sealed segment becomes a Parquet file, which is read back and compared before anything goes.

The order makes every moment right: the file is complete and synced, then the manifest names it, then the local segment
goes, the oldest first. A crash in between leaves a record in both places, and readers take the local one.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import LogError
from headrace.log.base import ARRIVAL, OFFSET, PARTITION, STREAM_TIME, TIME, Topic
from headrace.log.local.archive import MANIFEST, ArchivedFile, ArchivedFrame, Manifest, archived_path, read_manifest
from headrace.log.local.files import make_folder, replace_file, sync_file, sync_folder
from headrace.log.local.reader import Projection
from headrace.log.local.rewrite import gently
from headrace.log.local.walk import PartitionFiles
from headrace.log.schema import OFFSET_FIELD, frame_schema

GROUP_ROWS, GROUP_BYTES = 100_000, 32 * 1024 * 1024
"""Of a row group, which is what a reader holds in memory."""
_FACTS = b"headrace"


def archive_segment(
    files: PartitionFiles, topic: Topic, number: int, base: int, following: int, came_ms: int, root: Path
) -> ArchivedFile:
    """Write the records [base, following) as one Parquet file, compare, and name it in the manifest. `CorruptFrame` if
    the segment is damaged: it stays where it is."""
    day = datetime.datetime.fromtimestamp(came_ms / 1000, datetime.UTC).date()
    folder = root / f"topic={topic.name}" / f"day={day}"
    make_folder(folder)
    path = folder / f"part-{topic.id}-{number}-{base:020}.parquet"
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        frames = _write(temporary, files, topic, number, base, following)
        _compare(temporary, files, topic, number, base, following)
        sync_file(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(folder)
    log_folder = files.folder.parent.parent.parent.resolve()
    named = os.path.relpath(path, log_folder) if path.is_relative_to(log_folder.parent) else str(path)
    version = topic.schemas[-1].version
    archived = ArchivedFile(named, base, following, version, path.stat().st_size, came_ms, frames)
    write_manifest(files.folder, Manifest([*read_manifest(files.folder).files, archived]))
    return archived


def write_manifest(partition: Path, manifest: Manifest) -> None:
    replace_file(partition / MANIFEST, msgspec.json.encode(manifest))


def archive_schema(topic: Topic) -> pa.Schema:
    """Where a record is, then the columns of the log."""
    place = [pa.field(PARTITION, pa.int32(), nullable=False), OFFSET_FIELD]
    return pa.schema([*place, *frame_schema(topic.spec)])


def _batches(files: PartitionFiles, topic: Topic, number: int, base: int, following: int) -> Iterator[pa.RecordBatch]:
    """The segment's records, in batches that become row groups."""
    projection = Projection(topic, number, archive_schema(topic).names, lambda: topic)
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for place in gently(files.frames(base, following)):
        records = projection.records(place, max(base, place.header.base_offset), following)
        batch = records.batch
        if waiting and (rows + batch.num_rows > GROUP_ROWS or size + batch.nbytes > GROUP_BYTES):
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
        if batch.num_rows:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def _write(
    path: Path, files: PartitionFiles, topic: Topic, number: int, base: int, following: int
) -> list[ArchivedFrame]:
    schema = archive_schema(topic)
    frames: list[ArchivedFrame] = []
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        for batch in _batches(files, topic, number, base, following):
            writer.write_batch(batch, row_group_size=batch.num_rows)
            frames.append(_frame(batch))
        frames = _without_gaps(frames, base, following)
        facts = {"topic": topic.name, "id": topic.id, "partition": number, "base": base, "next": following}
        facts["frames"] = frames
        writer.add_key_value_metadata({_FACTS: msgspec.json.encode(facts)})
    return frames


def _frame(batch: pa.RecordBatch) -> ArchivedFrame:
    offsets, arrivals, times = (batch.column(name).to_numpy() for name in (OFFSET, ARRIVAL, TIME))
    lag = int((batch.column(STREAM_TIME).to_numpy() - times).max())
    ends = int(offsets[0]), int(offsets[-1]) + 1
    numbers = int(arrivals[0]), int(arrivals[-1])
    return ArchivedFrame(*ends, batch.num_rows, *numbers, int(times.min()), int(times.max()), lag)


def _without_gaps(frames: list[ArchivedFrame], base: int, following: int) -> list[ArchivedFrame]:
    """Frames follow each other; offsets that are gone (set aside) belong to the one before them."""
    if not frames:
        return []
    bases = [base, *[frame.base for frame in frames[1:]]]
    nexts = [*bases[1:], following]
    return [
        msgspec.structs.replace(frame, base=first, next=after)
        for frame, first, after in zip(frames, bases, nexts, strict=True)
    ]


def _compare(path: Path, files: PartitionFiles, topic: Topic, number: int, base: int, following: int) -> None:
    """Read back what was written: only what is proven to be there may go elsewhere."""
    with pq.ParquetFile(path, page_checksum_verification=True) as parquet:
        groups = 0
        for batch in _batches(files, topic, number, base, following):
            found = parquet.read_row_group(groups)
            if not _same(pa.Table.from_batches([batch]), found):
                raise LogError(
                    f"`{path}` does not hold what was written", hint="the segment was kept; is the disk well?"
                )
            groups += 1
        if groups != parquet.num_row_groups:
            raise LogError(f"`{path}` does not hold what was written", hint="the segment was kept; is the disk well?")


def _same(one: pa.Table, other: pa.Table) -> bool:
    if one.num_rows != other.num_rows or one.column_names != other.column_names:
        return False
    return all(_equal(one.column(name), other.column(name)) for name in one.column_names)


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    # Arrow says of a NaN that it is not equal to itself; written out it is.
    return bool(one.equals(other)) or repr(one.to_pylist()) == repr(other.to_pylist())


def forget_archived(partition: Path, start: int) -> int:
    """Delete archived files whose records are all below the partition's start. How many there were."""
    manifest = read_manifest(partition)
    gone = [file for file in manifest.files if file.next <= start]
    if gone:
        _delete(partition, gone)
        write_manifest(partition, Manifest([file for file in manifest.files if file.next > start]))
    return len(gone)


def delete_archive(topic_home: Path, log_folder: Path) -> None:
    """Delete all archived files of a topic that is being deleted; its folder may have been moved aside already."""
    for partition in topic_home.iterdir() if topic_home.is_dir() else ():
        with suppress(OSError, msgspec.DecodeError):
            for file in read_manifest(partition).files:
                (log_folder / file.file).unlink(missing_ok=True)


def _delete(partition: Path, files: list[ArchivedFile]) -> None:
    # Files first: if that is cut short, the manifest still says which were to go.
    for file in files:
        path = archived_path(partition, file)
        path.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()


def expired_files(manifest: Manifest, retention_ms: int, now_ms: int) -> int | None:
    """The start that the archive's own retention leads to; None if nothing has expired."""
    start = None
    for file in manifest.files if retention_ms else ():
        if now_ms - file.came_ms < retention_ms:
            break
        start = file.next
    return start
