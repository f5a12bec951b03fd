"""The log as its files say, for whoever only looks: `verify` and `stats`. With a running owner and without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from headrace.errors import LogError, NotFound, NotRunning
from headrace.log.base import Topic
from headrace.log.local.client import LocalClient
from headrace.log.local.frame import decode_header
from headrace.log.local.journal import Frame, check_records, decode_records, frames_of
from headrace.log.local.segment import segment_path
from headrace.log.local.stable import published_group
from headrace.log.local.state import LogState, fold
from headrace.log.local.topics import topic_folder
from headrace.log.local.walk import PartitionFiles
from headrace.log.missing import no_topic

Repair = Literal["quarantine", "rebuild index", "none"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be."""

    kind: Literal["journal", "segment", "frame", "order", "index", "file", "unrestored", "ids", "marks"]
    message: str
    file: str
    topic: str = ""
    partition: int = -1
    position: int = 0
    first_offset: int = 0
    next_offset: int = 0
    repair: Repair = "none"


@dataclass(frozen=True, slots=True)
class Extent:
    """What of a partition can be read, and where."""

    topic: Topic
    number: int
    start: int
    end: int
    files: PartitionFiles


@dataclass(frozen=True, slots=True)
class Moment:
    """The log at one moment: an owner may write on meanwhile, past these ends."""

    running: bool
    next_arrival: int
    extents: tuple[Extent, ...]
    findings: tuple[Finding, ...]

    def of(self, topic: str | None) -> list[Extent]:
        """All, or those of one topic; `NotFound` if there is no such."""
        if topic is None:
            return list(self.extents)
        found = [extent for extent in self.extents if extent.topic.name == topic]
        if not found:
            raise no_topic(topic, {extent.topic.name for extent in self.extents})
        return found


def read_moment(folder: Path) -> Moment:
    """What the owner has published, or, if there is none, what the journal says. `NotFound` if there is no log."""
    if not (folder / "format").exists():
        raise NotFound(f"there is no log in `{folder}`", hint="start the project once:  headrace up")
    try:
        client = LocalClient(folder)
    except NotRunning:
        return _from_journal(folder)
    try:
        snapshot = client.snapshot()
        extents = [
            Extent(topic, number, ends.start, ends.end, client.partition_files(topic, number))
            for topic in client.topics()
            for number, ends in enumerate(snapshot.ends.get(topic.name, ()))
        ]
    finally:
        client.close()
    # Its tail may be just being written, so only what a former moment must have left is looked at.
    _, _, findings = _read_journal(folder, running=True)
    return Moment(True, snapshot.arrival, tuple(extents), tuple(findings))


def _from_journal(folder: Path) -> Moment:
    state, frames, findings = _read_journal(folder, running=False)
    extents = []
    for known in state.topics.values():
        home = topic_folder(folder, known.topic.name)
        for number, partition in enumerate(known.partitions):
            files = PartitionFiles(home / str(number))
            extent = Extent(known.topic, number, partition.start, partition.end, files)
            mine = [frame for frame in frames if frame[:3] == (known.topic.id, number, partition.segment)]
            if missing := _missing(extent, mine):
                findings.append(missing)
                extent = replace(extent, end=missing.first_offset)
            extents.append(extent)
    findings += _strangers(folder, {known.topic.name for known in state.topics.values()})
    extents.sort(key=lambda extent: (extent.topic.name, extent.number))
    return Moment(False, state.next_arrival, tuple(extents), tuple(findings))


def _missing(extent: Extent, frames: Sequence[Frame]) -> Finding | None:
    """The first of the journal's frames that the power took from the active segment."""
    for _, _, base, position, data in frames:
        path, header = segment_path(extent.files.folder, base), decode_header(data)
        try:
            with path.open("rb") as file:
                file.seek(position)
                there = file.read(len(data))
        except FileNotFoundError:
            there = b""
        if there != data and header is not None:
            return Finding(
                kind="unrestored",
                message="the power went before the segment was synced; the journal has what is missing",
                file=str(path),
                topic=extent.topic.name,
                partition=extent.number,
                position=position,
                first_offset=header.base_offset,
                next_offset=extent.end,
            )
    return None


def _read_journal(folder: Path, *, running: bool) -> tuple[LogState, list[Frame], list[Finding]]:
    path = folder / "journal"
    # Before the journal: whatever was published by then must be in it.
    published = published_group(folder / "stable")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return LogState(), [], [Finding(kind="journal", message="the journal is missing", file=str(path))]
    records, length = [], 0
    for kind, payload, after in decode_records(data):
        records.append((kind, payload))
        length = after
    findings = []
    state = LogState()
    try:
        check_records(path, data, records, length)
        state = fold(records)
    except LogError as error:
        findings.append(Finding(kind="journal", message=error.message, file=str(path), position=length))
    if not findings and published > state.group:
        message = f"it ends at group {state.group}, but group {published} was published"
        findings.append(Finding(kind="journal", message=message, file=str(path), position=length))
    return state, list(frames_of(records)), findings


def _strangers(folder: Path, known: set[str]) -> list[Finding]:
    """Topic folders the journal does not know; opening the log sets them aside."""
    there = sorted(entry for entry in (folder / "topics").iterdir() if entry.name not in known)
    return [Finding(kind="file", message="no topic of the journal's", file=str(entry)) for entry in there]
