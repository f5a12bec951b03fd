"""What is durable in the journal and not yet in its segment.

A small group's frames go into its journal record, so that one sync commits them however many partitions they are for;
their segments are written as well, for readers, and synced here: in the background, a round at a time. A frame that a
round has synced need not be taken over when the journal is begun anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor, Future, wait

from headrace.log.local.journal import Frame
from headrace.log.local.partition import Partition
from headrace.log.local.segment import SegmentWriter

ROUND_BYTES = 2 * 1024 * 1024
"""So much is written between two rounds: little enough that commits do not notice them."""
MOST_BYTES = 32 * 1024 * 1024
"""With this much waiting, the disk does not keep up: then everything is synced before more is committed."""


class Unsynced:
    """For the commit thread. Whoever else syncs or closes a segment calls `settle` first: of two syncs that run side by
    side only one is told of an error."""

    def __init__(self, workers: Executor) -> None:
        self._workers = workers
        self._round = 0
        self._frames: deque[tuple[int, Sequence[Frame]]] = deque()
        """With the round they were committed in."""
        self._partitions: dict[int, Partition] = {}
        """Those of this round."""
        self._bytes = self._round_bytes = 0
        self._running: Future[None] | None = None
        """The sync of the rounds before this one."""

    @property
    def bytes(self) -> int:
        return self._bytes

    def frames(self) -> list[Frame]:
        return [frame for _, frames in self._frames for frame in frames]

    def add(self, frames: Sequence[Frame], partitions: Sequence[Partition]) -> None:
        """What was just committed."""
        self._frames.append((self._round, frames))
        self._partitions.update((id(partition), partition) for partition in partitions)
        self._bytes += _size(frames)
        self._round_bytes += _size(frames)

    def go_on(self) -> None:
        """Between two groups: end a round that is done, begin one that is due. Raises what a sync said."""
        if self._running is not None and self._running.done():
            self.settle()
        if self._running is None and self._round_bytes >= ROUND_BYTES:
            self._running = self._workers.submit(_sync_in_turn, self._next_round())
        if self._bytes >= MOST_BYTES:
            self.sync_all()

    def _next_round(self) -> list[SegmentWriter]:
        writers = [writer for partition in self._partitions.values() for writer in partition.dirty_writers()]
        self._round, self._round_bytes, self._partitions = self._round + 1, 0, {}
        return writers

    def settle(self) -> None:
        """Wait for what is being synced. Raises what went wrong."""
        running, self._running = self._running, None
        if running is not None:
            running.result()
            self._synced()

    def _synced(self) -> None:
        while self._frames and self._frames[0][0] < self._round:
            self._bytes -= _size(self._frames.popleft()[1])

    def sync_all(self) -> None:
        """Now."""
        self.settle()
        sync_writers(self._next_round(), self._workers)
        self._synced()

    def drop(self, partitions: Sequence[Partition]) -> None:
        """Before their files are closed and deleted."""
        self.settle()
        for partition in partitions:
            self._partitions.pop(id(partition), None)

    def give_up(self) -> None:
        """After a failure, before all files are closed: they are opened, and the frames written, again."""
        if self._running is not None:
            wait([self._running])


def _sync_in_turn(writers: Sequence[SegmentWriter]) -> None:
    for writer in writers:
        writer.sync()


def sync_writers(writers: Sequence[SegmentWriter], workers: Executor) -> None:
    """Side by side they share the disk's own flushes. All must be done before a failure closes their files."""
    if len(writers) <= 2:
        _sync_in_turn(writers)
        return
    syncing = [workers.submit(writer.sync) for writer in writers]
    wait(syncing)
    for done in syncing:
        done.result()


def _size(frames: Sequence[Frame]) -> int:
    return sum(len(frame[4]) for frame in frames)
