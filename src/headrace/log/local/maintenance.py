"""Housekeeping in the background: sealing old segments, rewriting small frames, compaction, retention. Writers never
wait for it longer than for one small group."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import HeadraceError, UsageError
from headrace.log.base import Topic
from headrace.log.local import journal as journals
from headrace.log.local.archiver import Archiver
from headrace.log.local.archiving import forget_archived
from headrace.log.local.compaction import Limits, compact_partition
from headrace.log.local.files import sync_folder
from headrace.log.local.group import OwnedTopic
from headrace.log.local.owner import Committer
from headrace.log.local.partition import Partition
from headrace.log.local.recovery import rebuild_index
from headrace.log.local.replacement import replace_index
from headrace.log.local.retention import expired_start, id_window, limits
from headrace.log.local.rewrite import rewrite_segment
from headrace.log.local.segment import index_path, segment_path
from headrace.log.local.walk import PartitionFiles
from headrace.log.missing import no_topic

if TYPE_CHECKING:
    from headrace.log.local.log import LocalLog

logger = logging.getLogger(__name__)

EVERY_S = 5.0

T = TypeVar("T")


class Maintenance:
    def __init__(self, log: LocalLog, committer: Committer) -> None:
        self._log, self._committer = log, committer
        self._stopping = threading.Event()
        self._woken = threading.Event()
        committer.on_crowded = self._woken.set
        self._running = threading.Lock()
        self._looked_at: set[tuple[int, int, int]] = set()
        self._deleted_below: dict[tuple[int, int], int] = {}
        self._rewritten_to: dict[tuple[int, int], int] = {}
        self.needed: Callable[[str], Mapping[int, int]] = lambda topic: {}
        """Of a topic, by partition: the offset from which on somebody has yet to read."""
        self._holding: set[tuple[str, int]] = set()
        self._archiver = Archiver(log.folder, log.settings.archive, log.clock)
        self._thread = threading.Thread(target=self._run, name="log-maintenance", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._woken.wait(EVERY_S):
                    self._woken.clear()
                    self._flush_ids()
                else:
                    self.run_once()
            except (HeadraceError, OSError) as error:
                if not self._stopping.is_set():
                    logger.warning("housekeeping failed, it will be tried again: %s", error)

    def run_once(self) -> None:
        with self._running:
            for name in self._committer.transactions.forget_old():
                logger.warning("transaction `%s` was given up: it took too long", name)
            self._log.desk.forget_old()
            for topic in list(self._committer.topics.values()):
                if self._stopping.is_set():
                    return
                self._care_for(topic)

    def _flush_ids(self) -> None:
        for topic in list(self._committer.topics.values()):
            if topic.ids is not None:
                topic.ids.flush_if_due()

    def _care_for(self, topic: OwnedTopic) -> None:
        if any(partition.is_old() for partition in topic.partitions):
            self._committer.control(lambda: self._seal(topic.name, Partition.is_old))
        moved = [self._retain(topic, number) for number in range(len(topic.partitions))]
        if topic.ids is not None:
            topic.ids.window_ms = id_window(topic.state.topic, self._log.settings)
            topic.ids.flush_if_due()
            if any(moved):
                topic.ids.purge(self._stopping.is_set)
        for number in range(len(topic.partitions)):
            self._rewrite(topic, number)
            if topic.state.topic.spec.config.compacted:
                self._compact(topic, number)

    def _seal(self, name: str, wanted: Callable[[Partition], bool]) -> None:
        """In the commit thread: begin new segments where the active one is old, so that retention can have it."""
        topic = self._committer.topics.get(name)
        if topic is None:
            return
        group = self._committer.new_group()
        for partition in topic.partitions:
            if partition.has_frames() and wanted(partition):
                partition.roll()
                group.touch(name, partition.number)
        self._committer.commit_group(group)

    def seal_all(self, name: str) -> None:
        """In the commit thread: begin new segments in all partitions of a topic whose active one has records."""
        self._seal(name, lambda partition: True)

    def between_rounds(self, action: Callable[[], T]) -> T:
        """Do something while no segment is replaced or deleted."""
        with self._running:
            return action()

    def _retain(self, topic: OwnedTopic, number: int) -> bool:
        """Move the partition's start past what has expired, then delete it. Whether anything was."""
        files = self._log.partition_files(topic.state.topic, number)
        state = topic.state.partitions[number]
        expired = expired_start(topic.state, files, state.segment, self._log.settings, self._log.clock)
        if self._archiver.takes(topic.state.topic):
            # What has expired here goes to the archive, and only from there for good.
            self._archiver.archive(files, topic.state.topic, number, state.segment, expired)
            expired = self._archiver.expired(files)
        if expired is not None and expired > state.start:
            expired = self._held(topic, number, files, expired)
        if expired is not None and expired > state.start:
            start = expired
            self._committer.control(lambda: self._move_start(topic.name, topic.state.topic.id, number, start))
        return self._delete_below_start(topic, number, files)

    def _held(self, topic: OwnedTopic, number: int, files: PartitionFiles, expired: int) -> int | None:
        """Not past what somebody has yet to read, said once. Whole segments, as without."""
        needed = self.needed(topic.name).get(number, expired)
        if needed >= expired:
            self._holding.discard((topic.name, number))
            return expired
        if (topic.name, number) not in self._holding:
            self._holding.add((topic.name, number))
            place = f"`{topic.name}`, partition {number}"
            logger.warning("retention of %s waits: somebody has yet to read from offset %d on", place, needed)
        return max((base for base in files.bases(again=True) if base <= needed), default=None)

    def _delete_below_start(self, topic: OwnedTopic, number: int, files: PartitionFiles) -> bool:
        """If the start has moved since the last time; opening the log does it too."""
        state, key = topic.state.partitions[number], (topic.state.topic.id, number)
        if self._deleted_below.get(key, 0) == state.start:
            return False
        self._deleted_below[key] = state.start
        return self._drop_segments(topic.state.topic, files, number, state.start, state.segment)

    def _drop_segments(self, topic: Topic, files: PartitionFiles, number: int, start: int, active: int) -> bool:
        """Archived files and sealed segments that end at or before `start`. Whether there were any."""
        gone = forget_archived(files.folder, start)
        for base, following in pairwise(files.bases(again=True)):
            if following <= start and base < active:
                segment_path(files.folder, base).unlink(missing_ok=True)
                index_path(files.folder, base).unlink(missing_ok=True)
                files.forget(base)
                self._looked_at.discard((topic.id, number, base))
                gone += 1
        return gone > 0

    def delete_before(self, topic: Topic, number: int, before: int) -> int:
        """Move a partition's start on; returns where it is then."""
        with self._running:
            start, active = self._committer.control(lambda: self._delete_before(topic, number, before))
            self._drop_segments(topic, self._log.partition_files(topic, number), number, start, active)
        return start

    def _delete_before(self, topic: Topic, number: int, before: int) -> tuple[int, int]:
        owned = self._committer.topics.get(topic.name)
        if owned is None or owned.state.topic.id != topic.id:
            raise no_topic(topic.name, self._committer.topics)
        state = owned.state.partitions[number]
        if before > state.start:
            self._move_start(topic.name, topic.id, number, min(before, state.end))
        return state.start, state.segment

    def archive_now(self, seal: bool) -> int:
        """Archive all sealed segments, however young; with `seal`, also what is in the active ones. How many went."""
        archived = 0
        with self._running:
            for topic in list(self._committer.topics.values()):
                if not self._archiver.takes(topic.state.topic):
                    continue
                if seal:
                    self._committer.control(lambda name=topic.name: self._seal(name, lambda partition: True))  # type: ignore[misc]
                for number in range(len(topic.partitions)):
                    files = self._log.partition_files(topic.state.topic, number)
                    active = topic.state.partitions[number].segment
                    archived += self._archiver.archive(files, topic.state.topic, number, active, active)
        return archived

    def _move_start(self, name: str, topic_id: int, number: int, start: int) -> None:
        topic = self._committer.topics.get(name)
        if topic is None or topic.state.topic.id != topic_id:
            return
        self._committer.journal_append(journals.START, [topic_id, number, start])
        self._committer.publish([topic])
        if topic.ids is not None:
            topic.ids.started(number, start)

    def _rewrite(self, topic: OwnedTopic, number: int) -> None:
        files = self._log.partition_files(topic.state.topic, number)
        active, place = topic.state.partitions[number].segment, (topic.state.topic.id, number)
        if self._rewritten_to.get(place, 0) == active:
            return  # nothing was sealed since; of many partitions most are idle
        bases = [base for base in files.bases() if base <= active]
        for base, following in pairwise(bases):
            key = (topic.state.topic.id, number, base)
            if key in self._looked_at or self._stopping.is_set():
                continue
            rewrite_segment(files, topic.state.topic, number, base, following, self._log.settings.frame_rows)
            self._looked_at.add(key)
        if not self._stopping.is_set():
            self._rewritten_to[place] = active

    def _compact(self, topic: OwnedTopic, number: int) -> None:
        settings, now = self._log.settings, self._log.clock.now_ms()
        definition, state = topic.state.topic, topic.state.partitions[number]
        files = self._log.partition_files(definition, number)
        retention_ms, _ = limits(topic.state, settings)
        segment_bytes = definition.spec.config.segment_bytes or settings.segment_bytes
        # Older records of its keys may be in a partition this one follows, or, from a time before, in the archive.
        alone = not definition.parents(number) and not files.archive.manifest().files
        bounds = Limits(settings.frame_rows, segment_bytes, retention_ms, now, self._stopping.is_set, alone)
        compact_partition(files, definition, number, state.start, state.segment, bounds)

    def rebuild_index(self, topic: OwnedTopic, number: int, base: int) -> None:
        """Write the index of a sealed segment anew. `UsageError` if there is no such segment."""
        with self._running:
            files = self._log.partition_files(topic.state.topic, number)
            state = topic.state.partitions[number]
            following = next((other for other in files.bases(again=True) if other > base), -1)
            if base not in files.bases() or not base < following <= state.segment:
                raise UsageError(f"no sealed segment of topic `{topic.name}`, partition {number} begins at {base}")
            segment = files.segment(base)
            index_path(files.folder, base).unlink(missing_ok=True)
            index, _ = rebuild_index(segment, segment.size, following)
            replace_index(files.folder, base, max(0, segment.generation), index)
            sync_folder(files.folder)
            files.forget(base)

    def close(self) -> None:
        self._stopping.set()
        self._woken.set()
        self._thread.join()
