"""The owner: one thread that commits everything, and the state it commits to.

All changes of the log go through the commit thread in groups: rows are put in order, written, synced, committed with
one journal record, published, answered. If writing or syncing fails, the group's writers get the error and the log is
opened again from its files, exactly as after a crash; a sync is never tried twice.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

from headrace.clock import Clock
from headrace.config import LogSettings
from headrace.errors import HeadraceError
from headrace.log.base import Acks, Appended, BatchIdentity, Snapshot, Topic
from headrace.log.local import journal as journals
from headrace.log.local.accept import add_request
from headrace.log.local.files import sync_folder
from headrace.log.local.group import Group, OwnedTopic
from headrace.log.local.inbox import Inbox
from headrace.log.local.journal import Journal
from headrace.log.local.marks import Marks
from headrace.log.local.open_files import OpenFiles
from headrace.log.local.partition import Partition
from headrace.log.local.producers import Stamp
from headrace.log.local.publication import Publication
from headrace.log.local.requests import (
    AppendRequest,
    CommitRequest,
    ControlRequest,
    Guard,
    Request,
    disk_full,
    fail,
    named,
)
from headrace.log.local.segment import SegmentWriter
from headrace.log.local.state import LogState
from headrace.log.local.unsynced import Unsynced, sync_writers
from headrace.log.writing.prepare import Prepared
from headrace.log.writing.transactions import Transactions

logger = logging.getLogger(__name__)

T = TypeVar("T")

_DISK_CHECK_S = 0.5
_RETRY_S = 1.0


class Committer:
    """The commit thread and what it alone may touch. `load` reads the log's files and gives topics and state."""

    def __init__(
        self,
        folder: Path,
        settings: LogSettings,
        clock: Clock,
        publication: Callable[[], Publication],
        load: Callable[[int | None], tuple[Journal, LogState, dict[str, OwnedTopic]]],
    ) -> None:
        self.folder, self.settings, self.clock = folder, settings, clock
        self.transactions = Transactions(folder, clock, settings.max_pending_bytes)
        self._load = load
        self._journal, self.state, self.topics = load(None)
        self.marks = Marks(folder, clock, self.state)
        # Only now: opening compares the journal with what the last owner published.
        self._publication = publication()
        self._failed: HeadraceError | None = None
        self._failed_at = 0.0
        self._trusted: int | None = None
        self._inbox = Inbox(settings.linger_ms, settings.max_pending_bytes)
        self._disk_checked = -1e9
        self._disk_free = 0
        self.producer_uses: dict[int, float] = {}
        """When each producer last wrote, on the monotonic clock."""
        self._workers = ThreadPoolExecutor(4, thread_name_prefix="log-disk")
        self._files = OpenFiles()
        self.unsynced = Unsynced(self._workers)
        self.on_crowded: Callable[[], None] = lambda: None
        """Called when ids wait to be written; must not take long."""
        self._publication.show_all(self.state, self.topics.values())
        self._thread = threading.Thread(target=self._run, name="log-commit", daemon=True)
        self._thread.start()

    # For any thread

    def append(
        self, parts: list[Prepared], acks: Acks, stamp: Stamp | None = None, guard: Guard | None = None
    ) -> Future[list[Appended]]:
        request = AppendRequest(parts, sum(part.bytes for part in parts), acks, stamp, guard)
        self.check_disk()
        taken = request.future
        if acks != "all":
            taken = Future()
            taken.set_result([Appended(()) for part in parts for _ in part.cuts or (0,)])
        self._inbox.put(request)
        return taken

    def commit(
        self,
        transaction: str,
        tasks: Sequence[tuple[int, int]],
        identity: BatchIdentity | None = None,
        stamp: Stamp | None = None,
        guard: Guard | None = None,
    ) -> Future[Any]:
        """`Committed` for a query's batch, `list[Appended]` for a producer's transaction."""
        request = CommitRequest(transaction, tasks, identity, stamp, guard)
        self.check_disk()
        self._inbox.put(request)
        return request.future

    def control(self, action: Callable[[], T]) -> T:
        """Run something in the commit thread, between groups."""
        request = ControlRequest(action)
        self._inbox.put(request)
        result: T = request.future.result()
        return result

    def check_disk(self) -> None:
        """`DiskFull` if there is too little room; looks at most twice a second."""
        now = time.monotonic()
        if now - self._disk_checked > _DISK_CHECK_S:
            status = os.statvfs(self.folder)
            self._disk_free, self._disk_checked = status.f_bavail * status.f_frsize, now
        if self._disk_free < self.settings.min_free_bytes:
            raise disk_full(self.folder, f"{self._disk_free // 1_000_000} MB are free")

    @property
    def snapshot(self) -> Snapshot:
        return self._publication.snapshot

    def wait(self, arrival: int, timeout: float) -> Snapshot:
        return self._publication.wait(arrival, timeout)

    def write_marks(self) -> None:
        """Make now a moment that a backup can be restored to."""
        self.control(lambda: self.marks.write(self.state))

    def publish(self, topics: Sequence[OwnedTopic], removed: Sequence[Topic] = ()) -> None:
        """Make visible what the state says of these topics. For control requests."""
        self._publication.show(self.state, topics, removed)

    def close(self) -> None:
        """Commit what was taken, then stop."""
        self._inbox.close()
        self._thread.join()
        if self._failed is None:
            self._tidy()
        self._workers.shutdown()
        self.transactions.close()
        self._journal.close()
        self._publication.close()
        for topic in self.topics.values():
            _close_topic(topic, flush=self._failed is None)

    def _tidy(self) -> None:
        """Leave files that are complete without the journal's frames. If that fails, opening does it."""
        self.marks.write(self.state, all_tiers=True)
        try:
            self.unsynced.sync_all()
            if self._journal.has_frames:
                Journal.create(self._journal.path, self.state.to_payload()).close()
        except OSError as error:
            logger.warning("the log in `%s` was closed, but not tidied up: %s", self.folder, error)

    # The commit thread

    def _run(self) -> None:
        while requests := self._inbox.take():
            try:
                if self._failed is not None:
                    self._recover()
                if isinstance(requests[0], ControlRequest):
                    self._run_control(requests[0])
                else:
                    self._run_group(requests)
                self._care_for_journal()
            except Exception as error:
                self._fail(requests, error)
            finally:
                self._inbox.done(requests)

    def _run_group(self, requests: Sequence[Request]) -> None:
        group = self.new_group()
        try:
            accepted = [request for request in requests if self._accept(group, request)]
            self.commit_group(group)
        finally:
            group.settle()
            for request in requests:
                if isinstance(request, CommitRequest):
                    self.transactions.release(request.taken)
        now = self.clock.monotonic()
        for request in accepted:
            if not isinstance(request, ControlRequest) and request.stamp is not None:
                self.producer_uses[request.stamp.producer] = now
            request.future.set_result(request.result)

    def _accept(self, group: Group, request: Request) -> bool:
        assert not isinstance(request, ControlRequest)
        try:
            add_request(group, request, self.state, self.topics, self.transactions)
        except HeadraceError as error:
            # Said before any of its rows was added, so the others are not concerned.
            fail(request, error)
            return False
        return True

    def new_group(self) -> Group:
        return Group(self.topics, self.state.next_arrival, self._workers)

    def commit_group(self, group: Group) -> None:
        """Write, sync, commit, publish. Whatever fails before the journal's sync leaves nothing behind."""
        if group.is_empty():
            return
        self._sync(group.finish())
        touched = group.touched()
        partitions = [partition for _, numbers in touched for partition in numbers]
        self._sync_new_files(partitions)
        kind = journals.FULL_GROUP if group.frames else journals.GROUP
        self.journal_append(kind, group.payload(self.state.group + 1))
        try:
            self._publication.show_group(self.state, touched)
            if group.frames:
                self.unsynced.add(group.frames, partitions)
            for partition in partitions:
                partition.committed()
                self._files.use(partition)
            self._trim_files()
            if group.remember_ids():
                self.on_crowded()
        except Exception as error:
            # It is committed, so its writers are told so; what is in memory is not to be trusted any more.
            self._reopen(error)

    def _sync_new_files(self, partitions: Sequence[Partition]) -> None:
        """Indexes that are sealed and folders that got files, side by side if there are many."""
        syncing = [self._workers.submit(_sync_files, partition) for partition in partitions if partition.new_files]
        wait(syncing)
        for done in syncing:
            done.result()

    def _sync(self, writers: Sequence[SegmentWriter]) -> None:
        if writers:
            self.unsynced.settle()
            sync_writers(writers, self._workers)

    def _trim_files(self) -> None:
        if self._files.too_many():
            self.unsynced.sync_all()
            self._files.trim()

    def journal_append(self, kind: int, payload: Any) -> None:
        """Commit one record, and make the state what it says."""
        self._journal.append(kind, payload)
        self.state.apply(kind, payload)
        self.marks.note(kind, payload)

    def _care_for_journal(self) -> None:
        """Bring what only the journal has to the segments; replace a long journal by a snapshot of what it says."""
        if self._failed is not None:
            return
        try:
            self.unsynced.go_on()
        except OSError as error:
            # Nobody is concerned: the journal has what the segments may have lost.
            logger.error("a segment could not be synced: %s", error)
            self._reopen(error)
            return
        if self._journal.length > journals.MOST_BYTES and self._journal.length > 2 * self.unsynced.bytes:
            self._begin_journal()

    def _begin_journal(self) -> None:
        try:
            replaced = Journal.create(self._journal.path, self.state.to_payload(), self.unsynced.frames())
        except OSError as error:
            # Old or new, whichever the name now means holds everything that was committed; the open file may not be it.
            self._reopen(error, trusted=None)
            return
        self._journal.close()
        self._journal = replaced

    # Failing

    def _run_control(self, request: ControlRequest) -> None:
        try:
            result = request.action()
        except HeadraceError as error:
            # Refused before anything was written.
            request.future.set_exception(error)
            return
        request.future.set_result(result)

    def _fail(self, requests: Sequence[Request], error: Exception) -> None:
        """The group's writers get the error; everything is opened again before the next group."""
        reason = named(self.folder, error)
        if not isinstance(error, HeadraceError) or self._failed is None:
            logger.error(
                "a write to the log failed: %s", reason, exc_info=not isinstance(error, (OSError, HeadraceError))
            )
        for request in requests:
            if not request.future.done():
                fail(request, reason)
        if self._failed is None:
            self._reopen(reason)

    def _reopen(self, error: Exception, trusted: int | None = -1) -> None:
        """Open everything again now; if that does not work either, before the next group."""
        self._failed, self._failed_at = named(self.folder, error), -1e9
        self._trusted = self._journal.length if trusted == -1 else trusted
        try:
            self._recover()
        except Exception as again:
            logger.error("the log cannot be opened again yet: %s", again)

    def _recover(self) -> None:
        """Close everything and open it again as after a crash, trusting only what was synced."""
        assert self._failed is not None
        now = time.monotonic()
        if now - self._failed_at < _RETRY_S:
            raise self._failed
        self._failed_at = now
        self._journal.close()
        self.unsynced.give_up()
        self.unsynced = Unsynced(self._workers)
        for topic in self.topics.values():
            _close_topic(topic, flush=False)
        try:
            self._journal, self.state, self.topics = self._load(self._trusted)
        except Exception as error:
            self._failed = named(self.folder, error)
            raise self._failed from error
        self._failed = None
        self.marks.forget_files()
        self._publication.show_all(self.state, self.topics.values())
        logger.warning("the log was opened again; %d groups are committed", self.state.group)


def _sync_files(partition: Partition) -> None:
    partition.sync_indexes()
    sync_folder(partition.folder)


def _close_topic(topic: OwnedTopic, *, flush: bool) -> None:
    for partition in topic.partitions:
        partition.close()
    if topic.ids is not None:
        topic.ids.close(flush=flush)
