"""Contract 7: which batch of a query a log has last, and whether another is the same or the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from headrace.errors import BatchConflict
from headrace.log.base import BatchIdentity


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    identity: BatchIdentity
    arrival: int
    """The next arrival number right after the commit."""


def is_repeat(last: CommittedBatch | None, identity: BatchIdentity) -> bool:
    """Contract 7: False for the batch that comes next, True for the very same again, otherwise `BatchConflict`."""
    known = last.identity if last is not None else None
    if known is not None and _same_batch(known, identity):
        return True
    if known is None:
        if identity.batch == 0:
            return False
        raise _conflict(identity, "the log has no batch of this query yet, so its checkpoint belongs to another log")
    if identity.checkpoint != known.checkpoint:
        raise _conflict(
            identity, f"batch {known.batch} was committed by another checkpoint: it was deleted or replaced"
        )
    if identity.batch == known.batch + 1:
        return False
    if identity.batch == known.batch:
        raise _conflict(identity, f"batch {known.batch} was committed with other offsets: the checkpoint was changed")
    raise _conflict(
        identity, f"the log's last batch is {known.batch}: the checkpoint was rolled back or skipped batches"
    )


def _same_batch(known: BatchIdentity, identity: BatchIdentity) -> bool:
    """What is said about the offsets beside their digest may be more than an older version said."""
    return replace(known, offsets="") == replace(identity, offsets="") and _digest(known) == _digest(identity)


def _digest(identity: BatchIdentity) -> object:
    try:
        body = msgspec.json.decode(identity.offsets)
    except msgspec.DecodeError:
        return identity.offsets
    return body.get("digest", identity.offsets) if isinstance(body, dict) else identity.offsets


def _conflict(identity: BatchIdentity, detail: str) -> BatchConflict:
    return BatchConflict(
        f"batch {identity.batch} of query `{identity.query}` (v{identity.version}) does not follow what the log has",
        detail=detail,
        hint="restore the checkpoint, or make a new version of the query, which begins again from the log",
        query=identity.query,
        version=identity.version,
        batch=identity.batch,
    )
