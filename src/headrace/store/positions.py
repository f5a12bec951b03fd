"""Positions of views in a log: whether one is of this log, where it is in a copy, and where it must go on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from headrace.log.base import Log, PartitionEnds, Snapshot
from headrace.log.copy.moves import Moves
from headrace.store.arrivals import has_arrivals, position_of
from headrace.store.base import Position

logger = logging.getLogger("headrace.store")


def belongs(log: Log, snapshot: Snapshot, topic: str, position: Position) -> bool:
    """Can a view at this position have been filled from this topic of this log? Not if the log ends before it, nor if
    the topic was made anew: arrival numbers are never used again, so the new topic's offsets are behind. Where there
    are none, a position that has one is of another log."""
    ends = snapshot.ends[topic]
    if any(number >= len(ends) for number in position.offsets):
        return False
    if not has_arrivals(log):
        inside = all(offset <= ends[number].end for number, offset in position.offsets.items())
        return inside and position == position_of(position.offsets)
    return position.arrival <= snapshot.arrival and all(
        offset <= ends[number].end and offset <= log.offset_at_arrival(topic, number, position.arrival)
        for number, offset in position.offsets.items()
        if offset > ends[number].start
    )


def is_same_log(log: Log, epoch: str | None, position: Position) -> bool:
    """Whether a position was taken in this log, by the epoch it was taken in. One without an epoch is believed: an
    older Headrace kept none."""
    epochs = log.epochs()
    return epochs is None or epoch is None or epochs.include(epoch, position.arrival)


def moved_position(log: Log, topic: str, position: Position) -> Position | None:
    """Where a position of the log that this one was copied from is now; None if that cannot be said."""
    moves = Moves(log)
    if not moves.knows(topic) or not moves.includes(topic, position.offsets):
        return None
    offsets = moves.offsets(topic, position.offsets)
    if not has_arrivals(log):
        return position_of(offsets)
    # One number says what a view has; a view that had not applied all that was copied has none.
    now = log.snapshot()
    at_end = all(offsets.get(number, 0) == end.end for number, end in enumerate(now.ends[topic]))
    return Position(now.arrival, offsets) if at_end else None


def from_start(position: Position, snapshot: Snapshot, topic: str) -> Position:
    """What retention removed before it was applied cannot be applied any more; the rest can."""
    starts = {number: ends.start for number, ends in enumerate(snapshot.ends[topic])}
    if all(position.offsets.get(number, start) >= start for number, start in starts.items()):
        return position
    offsets = {number: max(start, position.offsets.get(number, start)) for number, start in starts.items()}
    logger.warning("topic `%s` no longer holds all that its view has yet to apply; it goes on from %s", topic, offsets)
    return Position(position.arrival, offsets)


def bounded(snapshot: Snapshot, topic: str, until: Mapping[int, int]) -> Snapshot:
    """The log as if the topic ended there."""
    ends = tuple(
        PartitionEnds(end.start, min(end.end, until.get(number, end.end)))
        for number, end in enumerate(snapshot.ends[topic])
    )
    return replace(snapshot, ends={**snapshot.ends, topic: ends})
