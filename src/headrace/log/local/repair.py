"""Setting aside what `verify` found damaged, and writing indexes anew. Nothing is deleted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.errors import HeadraceError, UsageError
from headrace.log.local.client import LocalClient
from headrace.log.local.inspect import Finding
from headrace.log.local.log import LocalLog

BY_OPENING = {
    "index": "the index of a segment that is being written is made anew when the log is opened",
    "unrestored": "it is written again when the log is opened",
    "file": "it is moved to quarantine when the log is opened",
    "ids": "the index of event ids is made again from the log when that is opened",
}
"""What is mended without anybody asking, but not while the log is open."""


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a finding."""

    finding: Finding
    done: bool
    message: str


def repair_log(log: LocalLog | LocalClient, findings: Sequence[Finding]) -> list[Repaired]:
    """Quarantine damaged offsets and rebuild indexes; say of the rest that nothing was done."""
    return [_repair(log, finding) for finding in findings]


def _repair(log: LocalLog | LocalClient, finding: Finding) -> Repaired:
    try:
        if finding.repair == "quarantine":
            lost = _quarantine(log, finding)
            message = f"{lost:,} offsets set aside; their bytes are in the log's quarantine folder"
        elif finding.repair == "rebuild index":
            log.rebuild_index(finding.topic, finding.partition, finding.first_offset)
            message = "the index was written anew"
        elif finding.kind in BY_OPENING and isinstance(log, LocalLog):
            message = "done when the log was opened"
        else:
            return Repaired(finding=finding, done=False, message=_why_not(finding))
    except HeadraceError as error:
        return Repaired(finding=finding, done=False, message=error.message)
    return Repaired(finding=finding, done=True, message=message)


def _quarantine(log: LocalLog | LocalClient, finding: Finding) -> int:
    """All damage within the finding's offsets: there may be several frames of it. How many offsets are set aside."""
    offset, aside = finding.first_offset, 0
    while offset < finding.next_offset:
        try:
            first, after = log.quarantine(finding.topic, finding.partition, offset)
        except UsageError:
            if not aside:
                raise
            break
        aside, offset = aside + after - first, after
    return aside


def _why_not(finding: Finding) -> str:
    reasons = BY_OPENING | {
        "journal": "the journal is the one file that cannot be made again: restore it from a backup",
        "segment": "only readers other than Headrace's server need the header; its frames can be read",
        "marks": "no record is missing; up to the next file of marks no moment can be restored to",
        "order": "the bytes are as they were written: please report this",
    }
    return reasons.get(finding.kind, "nothing can be done about it")
