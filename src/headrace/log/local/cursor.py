"""Where a consumer is in one partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.log.base import Log, Records, TopicPartition


@dataclass(slots=True)
class Cursor:
    """Reads on from `position`; what it has read and not given is a view of the mapped file, one frame at most."""

    log: Log
    at: TopicPartition
    topic_id: int
    columns: Sequence[str] | None
    position: int
    committed: int | None = None
    """What is known to be committed."""
    given: bool = False
    """Whether `take` has given anything since."""
    paused: bool = False
    parents: tuple[int, ...] = ()
    """Partitions that are to be read to their end before this one."""
    _reading: Iterator[Records] | None = None
    _limit: int = 0
    _rest: Records | None = None

    def seek(self, offset: int) -> None:
        self.position, self.given = offset, False
        self.drop()

    def drop(self) -> None:
        self._reading = self._rest = None

    def take(self, end: int, most: int) -> list[Records]:
        """Up to `most` records below `end`."""
        taken: list[Records] = []
        try:
            while most > 0 and self.position < end and (records := self._next(end)) is not None:
                records, self._rest = _cut(records, most)
                taken.append(records)
                most -= records.batch.num_rows
                self.position, self.given = records.next_offset, True
        except BaseException:
            self.drop()
            if not taken:
                raise
            # What was read before is given first; whatever is wrong will be there next time.
        return taken

    def _next(self, end: int) -> Records | None:
        if self._rest is not None:
            return self._rest
        if self._reading is None:
            self._limit = end
            self._reading = self.log.read(self.at.topic, self.at.partition, self.position, end, self.columns)
        found = next(self._reading, None)
        if found is None:
            # Compaction may have left nothing up to here.
            self._reading, self.position = None, max(self.position, self._limit)
        return found


def _cut(records: Records, most: int) -> tuple[Records, Records | None]:
    rows = records.batch.num_rows
    if rows <= most:
        return records, None
    offsets = records.offsets
    after = records.first_offset + most if offsets is None else offsets[most]
    first = replace(records, batch=records.batch.slice(0, most), offsets=None if offsets is None else offsets[:most])
    rest = replace(
        records,
        first_offset=after,
        batch=records.batch.slice(most),
        offsets=None if offsets is None else offsets[most:],
    )
    return first, rest
