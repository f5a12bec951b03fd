"""Whether a query's checkpoint belongs to the log: compared each time the query is started, before Spark reads it.

The log has the identity of the last batch that it committed of a query: the checkpoint's id, the batch's number and a
digest of the offsets that Spark planned it with. The checkpoint has the same three. A checkpoint that goes further than
the log is of a log that was rolled back (restored, or copied back by hand); one that is missing or goes less far was
deleted or rolled back itself. Going on from any of them would lose or repeat records, so the query fails with
`CheckpointOfAnotherLog`, and only computing it again from the log helps.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from headrace.errors import CheckpointOfAnotherLog
from headrace.log.base import BatchIdentity, Log
from headrace.log.local.files import replace_file
from headrace.process.base import QuerySpec
from headrace.process.progress import parse_places
from headrace.types import display_name


@dataclass(frozen=True, slots=True)
class Checkpoint:
    folder: Path
    id: str | None
    """None if the file that says it is missing."""
    planned: int
    """The last batch whose offsets were written; -1 if there is none."""
    committed: int
    """The last batch that was finished; -1 if there is none."""

    def offsets(self, batch: int) -> str | None:
        try:
            return (self.folder / "offsets" / str(batch)).read_bytes().decode()
        except FileNotFoundError:
            return None


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """Return what a checkpoint's folder says of itself; None if no batch was planned in it."""
    planned, committed = _last_batch(folder / "offsets"), _last_batch(folder / "commits")
    if max(planned, committed) < 0:
        return None
    try:
        id_ = json.loads((folder / "metadata").read_text())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        id_ = None
    return Checkpoint(folder, id_, planned, committed)


def _last_batch(folder: Path) -> int:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def check_checkpoint(log: Log, spec: QuerySpec) -> None:
    """Raise `CheckpointOfAnotherLog` if the query cannot go on from its checkpoint. For the local log."""
    found, last = read_checkpoint(spec.checkpoint), log.last_identity(spec.id, spec.version)
    problem = find_problem(found, last) or _planned_beyond(log, found)
    if problem is not None:
        name = display_name(spec.plan.sink.name)
        raise CheckpointOfAnotherLog(
            f"query `{spec.id}` cannot go on: {problem}",
            detail=(
                f"the checkpoint is `{spec.checkpoint}`. Going on would lose or repeat records, so nothing was read "
                "or written. What it has computed so far is still served"
            ),
            hint=f"compute it again from the log:  headrace view rebuild {name}",
            query=spec.id,
        )


def find_problem(found: Checkpoint | None, last: BatchIdentity | None) -> str | None:
    """Return why a checkpoint and the last batch that the log has of its query do not belong together; None if they
    do."""
    if found is None:
        return None if last is None else f"its checkpoint is missing, and the log has {last.batch + 1} batches of it"
    if found.id is None:
        return "its checkpoint is damaged: the file `metadata` is missing"
    if last is None:
        if found.committed < 0 and found.planned == 0:
            return None  # killed before its first batch was committed
        return f"its checkpoint has batch {max(found.planned, found.committed)}, and the log has none of it: {RESTORED}"
    if found.id != last.checkpoint:
        return "its checkpoint was replaced: the log's batches are of another one"
    if found.committed > last.batch or found.planned > last.batch + 1:
        ahead = max(found.committed, found.planned - 1)
        return f"its checkpoint is at batch {ahead}, and the log ends with batch {last.batch} of it: {RESTORED}"
    offsets = found.offsets(last.batch)
    if offsets is None:
        return f"its checkpoint is older than the log: it has no batch {last.batch}, which the log has"
    if _digest(last) not in (None, sha256(offsets.encode()).hexdigest()):
        return f"batch {last.batch} of its checkpoint is not the one that the log has: {RESTORED}"
    return None


RESTORED = "the log was restored, or copied, from an earlier moment"


def relocate_checkpoint(checkpoint: Path) -> None:
    """Let a checkpoint that was moved with its project name its own files again: Spark writes whole paths into it."""
    pattern = re.compile(rf'"(?:file:)?/[^"]*/{re.escape(checkpoint.name)}/state/')
    here = json.dumps(f"file:{checkpoint}/state/", ensure_ascii=False)[:-1]
    for file in checkpoint.glob("state/*/_metadata/v2/*"):
        text = file.read_text() if not file.name.startswith(".") else ""
        moved = pattern.sub(lambda _: here, text)
        if moved != text:
            replace_file(file, moved.encode())


def _digest(identity: BatchIdentity) -> object:
    """None if an older version did not say."""
    try:
        body = json.loads(identity.offsets)
    except ValueError:
        return None
    return body.get("digest") if isinstance(body, dict) else None


def _planned_beyond(log: Log, found: Checkpoint | None) -> str | None:
    """Whether the last batch was planned with records that the log does not have. It would be run as if they had been
    read."""
    text = found.offsets(found.planned) if found is not None else None
    if text is None:
        return None
    names = {str(topic.id): topic.name for topic in log.topics()}
    ends = log.snapshot().ends
    # Two lines of Spark's own, then one for each source.
    for line in text.splitlines()[2:]:
        for topic, offsets in parse_places(line[max(0, line.find("{")) :]).items():
            there = ends.get(names.get(topic, ""), ())
            for partition, offset in offsets.items():
                if names.get(topic) and (partition >= len(there) or offset > there[partition].end):
                    return f"its checkpoint has read topic `{names[topic]}` further than the log goes: {RESTORED}"
    return None
