"""A bound on what stays open: of ten thousand partitions most are idle at any time."""

from __future__ import annotations

from collections import OrderedDict

from headrace.log.local.partition import Partition

MOST_OPEN = 1000
"""Partitions whose active segment stays open. A single group may need more for a moment."""


class OpenFiles:
    """The partitions that were written to last. For the commit thread."""

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most = most
        self._used: OrderedDict[int, Partition] = OrderedDict()

    def use(self, partition: Partition) -> None:
        self._used[id(partition)] = partition
        self._used.move_to_end(id(partition))

    def too_many(self) -> bool:
        return len(self._used) > self._most

    def trim(self) -> None:
        """Close the files of those that were not written to for the longest time."""
        while self.too_many():
            _, partition = self._used.popitem(last=False)
            partition.rest()
