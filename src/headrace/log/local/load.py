"""Everything the owner holds open, made from the log's files."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.clock import Clock
from headrace.config import LogSettings
from headrace.errors import CorruptFrame, LogError
from headrace.log.base import ID, Topic
from headrace.log.codecs.base import Schemas
from headrace.log.codecs.keys import KeyColumns
from headrace.log.local.group import OwnedTopic
from headrace.log.local.ids import IdIndex, delete_index, ids_folder
from headrace.log.local.journal import Frame, Journal
from headrace.log.local.partition import Partition
from headrace.log.local.reader import Projection
from headrace.log.local.recovery import (
    open_journal,
    reconcile_segments,
    reconcile_topics,
    reopen_segment,
    restore_frames,
)
from headrace.log.local.state import LogState, TopicState
from headrace.log.local.topics import topic_folder
from headrace.log.local.walk import PartitionFiles
from headrace.log.writing.prepare import Preparer, id_digest

logger = logging.getLogger(__name__)


class Loader:
    """Opens the log as its owner, the first time and after a failure."""

    def __init__(self, folder: Path, settings: LogSettings, clock: Clock, schemas: Schemas) -> None:
        self._folder, self._settings, self._clock, self._schemas = folder, settings, clock, schemas

    def load(self, trusted: int | None) -> tuple[Journal, LogState, dict[str, OwnedTopic]]:
        journal, state, frames = open_journal(self._folder, trusted)
        topics: dict[str, OwnedTopic] = {}
        try:
            reconcile_topics(self._folder, state)
            self._restore(state, frames)
            for topic in state.topics.values():
                topics[topic.topic.name] = self.own(topic, keep=trusted is None)
        except BaseException:
            journal.close()
            for owned in topics.values():
                for partition in owned.partitions:
                    partition.close()
                if owned.ids is not None:
                    owned.ids.close(flush=False)
            raise
        return journal, state, topics

    def _restore(self, state: LogState, frames: Sequence[Frame]) -> None:
        by_partition: dict[tuple[int, int], list[Frame]] = {}
        for frame in frames:
            by_partition.setdefault((frame[0], frame[1]), []).append(frame)
        with ThreadPoolExecutor(4) as workers:
            restoring = [
                workers.submit(restore_frames, self._home(topic.topic, number), topic.partitions[number], its_frames)
                for (topic_id, number), its_frames in by_partition.items()
                if (topic := state.topics.get(topic_id)) is not None
            ]
            for done in restoring:
                done.result()

    def _home(self, topic: Topic, number: int) -> Path:
        return topic_folder(self._folder, topic.name) / str(number)

    def own(self, state: TopicState, *, keep: bool = True) -> OwnedTopic:
        topic = state.topic
        partitions = [self.own_partition(state, number, keep=keep) for number in range(len(state.partitions))]
        ids = self._open_ids(state) if topic.spec.role == "events" else None
        preparer = Preparer(topic, self._clock, KeyColumns(topic.spec, self._schemas))
        return OwnedTopic(state, preparer, partitions, ids)

    def own_partition(self, state: TopicState, number: int, *, keep: bool = True) -> Partition:
        topic, partition = state.topic, state.partitions[number]
        home = self._home(topic, number)
        reconcile_segments(self._folder, home, partition, keep=keep)
        return Partition(
            home,
            topic.id,
            number,
            partition,
            lambda: reopen_segment(home, topic.id, number, partition),
            self._settings,
            self._clock,
            topic.spec.config,
        )

    def ids_path(self, topic: Topic) -> Path:
        return ids_folder(self._folder, topic)

    def _open_ids(self, state: TopicState) -> IdIndex:
        """The index of event ids, level with the log; made again if it is damaged or of another past."""
        path = self.ids_path(state.topic)
        if path.with_name(f"{path.name}.sqlite").exists():
            delete_index(path)  # of an older version; made again from the log
        try:
            return self._catch_up(IdIndex(path, self._clock), state)
        except LogError as error:
            logger.warning("the index of event ids of topic `%s` is made again: %s", state.topic.name, error)
            delete_index(path)
            return self._catch_up(IdIndex(path, self._clock), state)

    def _catch_up(self, ids: IdIndex, state: TopicState) -> IdIndex:
        try:
            watermarks = ids.watermarks() if state.has_records() else {}
            for number, partition in enumerate(state.partitions):
                files = PartitionFiles(self._home(state.topic, number))
                ids.catch_up(
                    watermarks.get(number, 0),
                    number,
                    partition.start,
                    partition.end,
                    lambda start, number=number, files=files, end=partition.end: _read_ids(  # type: ignore[misc]
                        state.topic, number, files, start, end
                    ),
                )
        except BaseException:
            ids.close(flush=False)
            raise
        return ids


def _read_ids(topic: Topic, number: int, files: PartitionFiles, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    if start >= end:
        return
    projection = Projection(topic, number, [ID], lambda: topic)
    while start < end:
        try:
            for place in files.frames(start, end):
                records = projection.records(place, max(start, place.header.base_offset), end)
                ids = records.batch.column(0)
                if ids.null_count < len(ids):
                    for offset, event_id in zip(records.each_offset(), ids.to_pylist(), strict=True):
                        if event_id is not None:
                            yield offset, id_digest(event_id)
            return
        except CorruptFrame as error:
            # Its ids cannot be known; readers will say so, writing goes on.
            start = error.data["next_offset"]
