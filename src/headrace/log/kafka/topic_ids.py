"""One topic's index of event ids, and how far it is level with Kafka.

Ids travel in the header `headrace-id`, so whatever the index does not know is read from the topic: what others wrote,
and after a crash what was written last. What this process wrote itself is noted as it is written, and not read again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

from confluent_kafka import Message

from headrace.clock import Clock
from headrace.errors import LogError
from headrace.log.base import Appended, Topic, TopicPartition
from headrace.log.kafka.encode import Outgoing
from headrace.log.kafka.fetch import Fetcher
from headrace.log.kafka.formats import ID_HEADER
from headrace.log.kafka.offsets import Offsets
from headrace.log.local.id_runs import pack
from headrace.log.local.ids import IdIndex, delete_index
from headrace.log.writing.prepare import DIGEST_SIZE

_PAUSE_S = 0.05

logger = logging.getLogger("headrace.log.kafka")


class TopicIds:
    """`IdIndex` is safe to use from several threads; this is for one at a time."""

    def __init__(
        self, topic: Topic, kafka: str, folder: Path, clock: Clock, fetcher: Fetcher, offsets: Offsets
    ) -> None:
        self.topic = topic
        self._kafka, self._folder, self._clock = kafka, folder, clock
        self._fetcher, self._offsets = fetcher, offsets
        self._known: dict[int, int] = {}
        """How much of each partition the index knows."""
        self._marked: set[int] = set()
        """Partitions whose next offset is the mark of our own transaction, and no record."""
        self.index = IdIndex(folder, clock)

    # Reading what is missing

    def open(self) -> None:
        """The files as they are; made again if they are damaged, or know more than there is."""
        try:
            self._open()
        except LogError as error:
            logger.warning("the index of event ids of topic `%s` is made again: %s", self.topic.name, error)
            self.index.close(flush=False)
            delete_index(self._folder)
            self.index = IdIndex(self._folder, self._clock)
            self._open()

    def _open(self) -> None:
        watermarks, starts, written = self.index.watermarks(), self._starts(), self._written()
        for partition, end in written.items():
            known = watermarks.get(partition, 0)
            if known > end:
                raise LogError("it is ahead of the topic")
            self._begin(partition, starts.get(partition, 0), known)

    def _begin(self, partition: int, start: int, known: int) -> None:
        self._known[partition] = max(start, known)
        self.index.catch_up(self._known[partition], partition, start, self._known[partition], lambda _: ())

    def read_on(self, settle: bool, stopped: Callable[[], bool]) -> None:
        """Know all that can be read now. `settle`: and all that is written now but cannot be read yet, because a
        transaction is open before it; that is waited for."""
        wanted = self._written() if settle else self._stable()
        for partition, end in wanted.items():
            if partition not in self._known:
                self._begin(partition, self._starts().get(partition, 0), 0)
            if settle:
                self._wait(partition, end, stopped)
            if end - self._known[partition] > (partition in self._marked):
                self._read(partition, end)

    def _wait(self, partition: int, end: int, stopped: Callable[[], bool]) -> None:
        while self._stable().get(partition, end) < end:
            if stopped():
                raise LogError("the log is closed")
            time.sleep(_PAUSE_S)

    def _read(self, partition: int, end: int) -> None:
        start = max(self._known[partition], self._starts().get(partition, 0))
        for run in self._fetcher.messages(self._kafka, partition, start, end):
            last = run[-1].offset() or 0
            found = {
                digest: pack(partition, message.offset() or 0) for message in run if (digest := digest_of(message))
            }
            self._note(found, {partition: last + 1})
        self._note({}, {partition: end})
        self._marked.discard(partition)

    def _note(self, places: dict[bytes, int], ends: dict[int, int]) -> None:
        self.index.remember(places, ends)
        self._known |= ends

    # What this process wrote

    def wrote(self, batches: Sequence[Outgoing], appended: Sequence[Appended], marked: bool) -> bool:
        """Note it, where it follows what is known; else it will be read. `marked`: by a transaction, whose mark takes
        one offset more. Whether the index is to be written soon."""
        touched: set[int] = set()
        crowded = False
        for batch, done in zip(batches, appended, strict=True):
            counts = Counter(batch.partitions)
            nexts: dict[int, int] = {}
            for partition, first, last in done.positions:
                known = self._known.get(partition, -1)
                mark = partition in self._marked and partition not in touched
                # Somebody else's records may lie before ours, or among them.
                if first in (known, known + mark) and last - first + 1 == counts[partition]:
                    nexts[partition] = first
                    touched.add(partition)
            places, ends = _places(batch, nexts)
            crowded |= self.index.remember(places, ends)
            self._known |= ends
        self._marked = self._marked | touched if marked else self._marked - touched
        return crowded

    # Forgetting

    def look_after(self, stopped: Callable[[], bool]) -> None:
        """Ids of records that are gone may be used again."""
        for partition, start in self._starts().items():
            self.index.started(partition, start)
        self.index.purge(stopped)

    def delete(self) -> None:
        self.index.close(flush=False)
        delete_index(self._folder)

    # Asking Kafka

    def _starts(self) -> dict[int, int]:
        return _by_number(self._offsets.starts(self._partitions()))

    def _stable(self) -> dict[int, int]:
        return _by_number(self._offsets.ends(self._partitions()))

    def _written(self) -> dict[int, int]:
        return _by_number(self._offsets.written(self._partitions()))

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self._kafka, number) for number in range(self.topic.spec.partitions)]


def digest_of(message: Message) -> bytes | None:
    """Of the record's event id, whoever wrote it."""
    for name, value in message.headers() or ():
        if name == ID_HEADER and value is not None:
            return blake2b(value if isinstance(value, bytes) else value.encode(), digest_size=DIGEST_SIZE).digest()
    return None


def _places(batch: Outgoing, nexts: dict[int, int]) -> tuple[dict[bytes, int], dict[int, int]]:
    """Where the ids of a batch are, given the first offset in each partition; and where the partitions end then."""
    places: dict[bytes, int] = {}
    ends = dict(nexts)
    for row, partition in enumerate(batch.partitions):
        if partition in ends:
            digest = batch.digests[row] if batch.digests else None
            if digest is not None:
                places[digest] = pack(partition, ends[partition])
            ends[partition] += 1
    return places, ends


def _by_number(found: dict[TopicPartition, int]) -> dict[int, int]:
    return {at.partition: offset for at, offset in found.items()}
