"""Setting damage aside, so that readers can pass over it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headrace.errors import CorruptFrame, UsageError
from headrace.log.base import PartitionEnds, Topic
from headrace.log.local.archive import ArchivedPlace
from headrace.log.local.files import make_folder, replace_file
from headrace.log.local.rewrite import schema_of
from headrace.log.local.walk import QUARANTINED, PartitionFiles, SegmentVanished


def quarantine(folder: Path, files: PartitionFiles, topic: Topic, ends: PartitionEnds, offset: int) -> tuple[int, int]:
    """Set aside the damage that `offset` is in: keep its bytes with a note, and list its offsets for readers. Returns
    [from, to). `UsageError` if nothing is damaged there."""
    damage = _find(files, topic, ends, offset)
    first, after = damage.data["first_offset"], damage.data["next_offset"]
    ranges = [*files.quarantined(), (first, after)]
    name = f"{topic.id}-{files.folder.name}-{first}-{after}"
    make_folder(folder / "quarantine")
    replace_file(folder / "quarantine" / f"{name}.bytes", _bytes(files, damage))
    note = {"topic": topic.name, "first_offset": first, "next_offset": after, **damage.data}
    replace_file(folder / "quarantine" / f"{name}.json", msgspec.json.encode(note))
    replace_file(files.folder / QUARANTINED, msgspec.json.encode(sorted(ranges)))
    return first, after


def _find(files: PartitionFiles, topic: Topic, ends: PartitionEnds, offset: int) -> CorruptFrame:
    if ends.start <= offset < ends.end:
        try:
            for place in files.frames(offset, ends.end):
                if isinstance(place, ArchivedPlace):
                    place.batch(schema_of(topic, place.header.schema_version))
                if place.header.next_offset > offset:
                    break
        except CorruptFrame as error:
            if error.data["first_offset"] <= offset < error.data["next_offset"]:
                return error
    raise UsageError(f"nothing is damaged at offset {offset}", hint="reading says where the damage is")


def _bytes(files: PartitionFiles, damage: CorruptFrame) -> bytes:
    """From the damage to the next intact frame, or to the end of the file; none if the file is missing."""
    first, after, position = (damage.data[name] for name in ("first_offset", "next_offset", "position"))
    if damage.data["file"].endswith(".parquet"):
        return b""  # an archived file stays where it is
    base = int(Path(damage.data["file"]).name[:20])
    try:
        segment = files.segment(base)
    except SegmentVanished:
        return b""
    found = segment.next_valid(position, first, after + 1)
    return bytes(segment.raw[position : found[0] if found else segment.size])
