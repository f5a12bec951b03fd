"""Forks of topics: the same records at the same offsets, without a copy of them.

Kafka can neither link nor rename a topic, and gives out offsets itself. So a fork is a topic of its own for what is
written from then on, and a note in its definition: before `fork_at`, by partition, its records are those of the
original. An offset in a fork counts both, its own record number n has the offset `fork_at` + n. Whatever had a position
in the original has the same one in the fork. docs/decisions/0200.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from headrace.log.base import BatchIdentity, PartitionEnds, Topic


def is_unfinished(topic: Topic) -> bool:
    """Return whether a topic is a fork of which nobody knows yet where it begins."""
    return bool(topic.fork_of) and not topic.fork_at


def splice_ends(at: int, original: PartitionEnds | None, own: PartitionEnds) -> PartitionEnds:
    """Return the ends of a partition of a fork; the original may be gone.

    >>> splice_ends(7, PartitionEnds(2, 30), PartitionEnds(0, 4))
    PartitionEnds(start=2, end=11)
    >>> splice_ends(7, PartitionEnds(9, 30), PartitionEnds(1, 4))
    PartitionEnds(start=8, end=11)
    """
    if original is None:
        return PartitionEnds(at + own.start, at + own.end)
    # The last records before the fork are not readable yet if somebody's transaction is open there.
    end = at + own.end if original.end >= at else original.end
    return PartitionEnds(original.start if original.start < at else at + own.start, end)


def rename_inputs(identity: BatchIdentity | None, forks: Mapping[str, str]) -> BatchIdentity | None:
    """Return the identity with forks in place of the topics they were made of. Queries read versions: one that had read
    the original before its version left it is as far in the fork."""
    if identity is None or not any(json.dumps(name) in identity.offsets for name in forks):
        return identity
    body = json.loads(identity.offsets)
    read = {forks.get(topic, topic): places for topic, places in body.get("topics", {}).items()}
    return replace(identity, offsets=json.dumps(body | {"topics": read}))
