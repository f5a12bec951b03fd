"""The local log in the process that owns it."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import Clock
from headrace.config import LogSettings
from headrace.errors import Conflict, NotFound, UsageError
from headrace.log.base import (
    Acks,
    Append,
    Appended,
    BatchIdentity,
    Committed,
    Group,
    PartitionEnds,
    Route,
    SchemaVersion,
    Snapshot,
    Topic,
    TopicPartition,
    TopicSpec,
)
from headrace.log.epochs import Epochs
from headrace.log.local import journal as journals
from headrace.log.local.archiving import delete_archive
from headrace.log.local.desk import OwnerDesk
from headrace.log.local.epoch_file import begin_epoch
from headrace.log.local.files import make_folder, raise_file_limit
from headrace.log.local.forking import fork_definition, link_partitions
from headrace.log.local.gather import Run
from headrace.log.local.group import OwnedTopic
from headrace.log.local.groups import Coordinator
from headrace.log.local.ids import delete_index
from headrace.log.local.load import Loader
from headrace.log.local.lock import Holder, OwnerLock
from headrace.log.local.maintenance import Maintenance
from headrace.log.local.marks import Marker
from headrace.log.local.owner import Committer
from headrace.log.local.publication import Publication
from headrace.log.local.quarantine import quarantine
from headrace.log.local.reader import ReadingLog, check_start
from headrace.log.local.recovery import prepare_folder
from headrace.log.local.restore import check_interrupted
from headrace.log.local.server import OwnerServer
from headrace.log.local.stable import StablePublisher
from headrace.log.local.topics import make_partitions, topic_folder, write_definition
from headrace.log.missing import no_topic
from headrace.log.registry.schemas import RegistrySchemas
from headrace.log.schema import check_alteration, normalize_spec, topic_to_json
from headrace.log.writing.prepare import Preparer, id_digest
from headrace.log.writing.reshape import first_ranges, merge, split
from headrace.log.writing.routes import route_rows


class LocalLog(ReadingLog):
    """Owns the log in `folder` until `close`; `Conflict` if another process does. With `serve`, other processes can
    write through its socket."""

    capabilities = ReadingLog.capabilities | {"fork"}

    def __init__(self, folder: Path, settings: LogSettings, clock: Clock, serve: bool = True) -> None:
        super().__init__(folder)
        raise_file_limit()
        check_interrupted(folder)
        make_folder(folder)
        self.settings, self.clock = settings, clock
        self._lock = OwnerLock(folder)
        self._closed = False
        self._quarantining = threading.Lock()
        self._server: OwnerServer | None = None
        self._calls: dict[str, Callable[[Any], Any]] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(self._lock.release)
            prepare_folder(folder)
            started_ms = clock.now_ms()
            self._loader = Loader(folder, settings, clock, RegistrySchemas.of_log(self))
            self._committer = Committer(
                folder,
                settings,
                clock,
                lambda: Publication(StablePublisher(folder / "stable", started_ms)),
                self._loader.load,
            )
            undo.callback(self._committer.close)
            self._epochs = begin_epoch(folder, self._committer.state.next_arrival)
            self.coordinator: Coordinator = Coordinator(self, self._committer)
            self.desk: OwnerDesk = OwnerDesk(self._committer, self.preparer, self.coordinator.rows)
            self._maintenance = Maintenance(self, self._committer)
            undo.callback(self._maintenance.close)
            self._marker = Marker(self._committer.marks.is_due, self._committer.write_marks)
            undo.callback(self._marker.close)
            if serve:
                self._server = OwnerServer(self, started_ms)
            socket = str(self._server.path) if self._server else ""
            self._lock.announce(Holder(os.getpid(), socket, started_ms))
            undo.pop_all()

    # Topics

    def create_topic(self, spec: TopicSpec) -> Topic:
        spec = normalize_spec(spec)
        return self._committer.control(lambda: self._create(spec))

    def _create(self, spec: TopicSpec) -> Topic:
        committer = self._committer
        if existing := committer.topics.get(spec.name):
            topic = existing.state.topic
            # The same definition again, although partitions were split since.
            if replace(topic.spec, partitions=topic.first_partitions) == spec or topic.spec == spec:
                return topic
            raise Conflict(f"topic `{spec.name}` exists already and is different", hint="alter it, or use another name")
        committer.check_disk()
        first = (SchemaVersion(1, spec.key, spec.value),)
        topic = Topic(committer.state.next_topic_id, spec, first, first_ranges(spec))
        committer.journal_append(journals.TOPIC, {"op": "created", "topic": topic_to_json(topic)})
        make_partitions(topic_folder(self.folder, spec.name), spec.partitions)
        write_definition(self.folder, topic)
        owned = self._loader.own(committer.state.topics[topic.id])
        committer.topics = committer.topics | {spec.name: owned}
        committer.publish([owned])
        return topic

    def alter_topic(self, spec: TopicSpec) -> Topic:
        spec = normalize_spec(spec)
        return self._committer.control(lambda: self._alter(spec))

    def _alter(self, spec: TopicSpec) -> Topic:
        owned = self._owned(spec.name)
        old = owned.state.topic
        if spec.partitions == old.first_partitions:
            spec = replace(spec, partitions=old.spec.partitions)
        check_alteration(old, spec)
        schemas = old.schemas
        if spec.value != old.spec.value:
            schemas = (*schemas, SchemaVersion(schemas[-1].version + 1, spec.key, spec.value))
        topic = replace(old, spec=spec, schemas=schemas)
        self._committer.journal_append(journals.TOPIC, {"op": "altered", "topic": topic_to_json(topic)})
        write_definition(self.folder, topic)
        owned.preparer = Preparer(topic, self.clock, owned.preparer.key_columns)
        for partition in owned.partitions:
            partition.config = spec.config
        return topic

    def split_partition(self, topic: str, partition: int, at: int | None = None) -> tuple[int, int]:
        made = self._reshaped(topic, lambda old: split(old, partition, at))
        return made.spec.partitions - 2, made.spec.partitions - 1

    def merge_partitions(self, topic: str, one: int, other: int) -> int:
        made = self._reshaped(topic, lambda old: merge(old, one, other))
        return made.spec.partitions - 1

    def _reshaped(self, name: str, change: Callable[[Topic], Topic]) -> Topic:
        self._owned(name).preparer.key_columns.prepare()
        return self._committer.control(lambda: self._reshape(name, change))

    def _reshape(self, name: str, change: Callable[[Topic], Topic]) -> Topic:
        """In the commit thread, between groups: what was committed is in the parents, what comes is the children's."""
        owned = self._owned(name)
        if owned.state.topic.internal:
            raise UsageError(f"topic `{name}` is Headrace's own")
        topic = change(owned.state.topic)
        self._committer.check_disk()
        self._committer.journal_append(journals.TOPIC, {"op": "altered", "topic": topic_to_json(topic)})
        make_partitions(topic_folder(self.folder, name), topic.spec.partitions)
        for number in range(len(owned.partitions), topic.spec.partitions):
            owned.partitions.append(self._loader.own_partition(owned.state, number))
        write_definition(self.folder, topic)
        owned.preparer = Preparer(topic, self.clock, owned.preparer.key_columns)
        self._committer.publish([owned])
        return topic

    def fork_topic(self, name: str, fork: str, writers: Sequence[tuple[str, int]] = ()) -> Topic:
        return self._maintenance.between_rounds(lambda: self._committer.control(lambda: self._fork(name, fork)))

    def _fork(self, name: str, fork: str) -> Topic:
        """In the commit thread, between groups: what is committed is in both, and nothing comes in between."""
        committer, owned = self._committer, self._owned(name)
        existing = committer.topics.get(fork)
        if existing is not None:
            if existing.state.topic.forked_from != owned.state.topic.id:
                raise Conflict(f"topic `{fork}` exists already and is another one", hint=f"delete topic `{fork}`")
            return existing.state.topic
        committer.check_disk()
        self._maintenance.seal_all(name)
        topic = fork_definition(owned.state.topic, committer.state.next_topic_id, fork)
        states = link_partitions(self.folder, owned.state, topic)
        created = {"op": "created", "topic": topic_to_json(topic), "partitions": states}
        committer.journal_append(journals.TOPIC, created | {"stream_time": owned.state.stream_time})
        made = self._loader.own(committer.state.topics[topic.id])
        committer.topics = committer.topics | {fork: made}
        committer.publish([made])
        return topic

    def delete_topic(self, name: str) -> None:
        aside = self._committer.control(lambda: self._delete(name))
        delete_archive(aside, self.folder)
        shutil.rmtree(aside, ignore_errors=True)

    def _delete(self, name: str) -> Path:
        committer, owned = self._committer, self._owned(name)
        topic = owned.state.topic
        committer.journal_append(journals.TOPIC, {"op": "deleted", "id": topic.id})
        committer.topics = {key: value for key, value in committer.topics.items() if key != name}
        committer.publish([], removed=[topic])
        committer.unsynced.drop(owned.partitions)
        for partition in owned.partitions:
            partition.close()
        if owned.ids is not None:
            owned.ids.close(flush=False)
            delete_index(self._loader.ids_path(topic))
        self._forget_topic(topic.id)
        aside = self.folder / "deleted" / f"{topic.id}"
        make_folder(aside.parent)
        os.rename(topic_folder(self.folder, name), aside)
        return aside

    def topic(self, name: str) -> Topic:
        return self._owned(name).state.topic

    def topics(self) -> list[Topic]:
        return [owned.state.topic for _, owned in sorted(self._committer.topics.items())]

    def _owned(self, name: str) -> OwnedTopic:
        topics = self._committer.topics
        owned = topics.get(name)
        if owned is None:
            raise no_topic(name, topics)
        return owned

    def _ends(self, topic: Topic, partition: int) -> PartitionEnds:
        ends = self._committer.snapshot.ends.get(topic.name)
        if ends is None:
            raise no_topic(topic.name, self._committer.topics)
        if not 0 <= partition < len(ends):
            raise NotFound(f"topic `{topic.name}` has no partition {partition}", hint=f"0 to {len(ends) - 1}")
        return ends[partition]

    # Writing

    def append(self, appends: Sequence[Append], acks: Acks = "all") -> Future[list[Appended]]:
        runs = [Run(one.topic, one.partition, one.batch, (one.batch.num_rows,)) for one in appends]
        return self.desk.append(runs, acks, None)

    def stage(
        self,
        transaction: str,
        task: int,
        attempt: int,
        routes: Sequence[Route],
        batches: Iterator[pa.RecordBatch],
    ) -> int:
        self._committer.check_disk()
        preparers = [self._owned(route.topic).preparer for route in routes]
        parts = (part for batch in batches for part in route_rows(routes, preparers, batch))
        return self._committer.transactions.stage(transaction, (task, attempt), parts)

    def commit(
        self, transaction: str, tasks: Sequence[tuple[int, int]], identity: BatchIdentity | None = None
    ) -> Committed:
        named = self._committer.transactions.put_in_order(transaction, tasks)
        committed: Committed = self._committer.commit(transaction, named, identity).result()
        return committed

    def abort(self, transaction: str) -> None:
        self._committer.transactions.forget(transaction)

    def last_identity(self, query: str, version: int) -> BatchIdentity | None:
        batch = self._committer.state.batches.get((query, version))
        return None if batch is None else batch.identity

    # Reading

    def snapshot(self) -> Snapshot:
        return self._committer.snapshot

    def wait(self, arrival: int, timeout: float) -> Snapshot:
        return self._committer.wait(arrival, timeout)

    def epochs(self) -> Epochs:
        return self._epochs

    # Producers, consumers, groups

    def preparer(self, topic: str) -> Preparer:
        return self._owned(topic).preparer

    def groups(self) -> list[str]:
        return self.coordinator.names()

    def group(self, name: str) -> Group:
        return self.coordinator.describe(name)

    def reset_group(self, name: str, offsets: Mapping[TopicPartition, int], force: bool = False) -> None:
        self.coordinator.reset(name, offsets, force)

    def delete_group(self, name: str) -> None:
        self.coordinator.delete(name)

    # Care

    def places(self, topic: str, ids: Sequence[str]) -> list[tuple[int, int] | None]:
        owned = self._owned(topic)
        if owned.ids is None:
            return [None] * len(ids)
        digests = [id_digest(one) for one in ids]
        # In the commit thread: the index is its own.
        found = self._committer.control(lambda: owned.ids.places(digests) if owned.ids else {})
        return [found.get(digest) for digest in digests]

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        found = self.topic(topic)
        ends = self._ends(found, partition)
        check_start(found, partition, max(before, ends.start), ends)
        return self._maintenance.delete_before(found, partition, before)

    def quarantine(self, topic: str, partition: int, offset: int) -> tuple[int, int]:
        found = self.topic(topic)
        ends = self._ends(found, partition)
        with self._quarantining:
            return quarantine(self.folder, self.partition_files(found, partition), found, ends, offset)

    def rebuild_index(self, topic: str, partition: int, base: int) -> None:
        """Write the index of the sealed segment that begins at `base` anew, from its frames."""
        self.partition_files(self.topic(topic), partition)
        self._maintenance.rebuild_index(self._owned(topic), partition, base)

    def hold(self, needed: Callable[[str], Mapping[int, int]]) -> None:
        """Let retention wait: `needed` says of a topic, by partition, from which offset on somebody has yet to read."""
        self._maintenance.needed = needed

    def archive_now(self, seal: bool = False) -> int:
        """Archive every sealed segment now, with `seal` also what is still being written; returns how many."""
        if not self.settings.archive.folder:
            raise UsageError("there is no archive", hint="set `folder` in [log.archive]")
        return self._maintenance.archive_now(seal)

    def owner_alive(self) -> bool:
        return True

    def maintain(self) -> None:
        """Seal, rewrite, retain now, instead of when the maintenance thread next does."""
        self._maintenance.run_once()

    def mark(self) -> None:
        """Make this moment one that a backup can be restored to, instead of the next that the marks' thread makes."""
        self._committer.write_marks()

    def commits(self) -> int:
        """Groups committed so far: what one sync has carried can be told from it."""
        return self._committer.state.group

    def register_call(self, name: str, handler: Callable[[Any], Any]) -> None:
        """Let other processes ask the process around the owner: op `call` on the socket."""
        self._calls[name] = handler

    def call(self, name: str, body: Any) -> Any:
        handler = self._calls.get(name)
        if handler is None:
            raise NotFound(f"nobody answers the call `{name}`")
        return handler(body)

    def close(self) -> None:
        """Commit what was taken, stop everything, give up the lock. Again does nothing."""
        with self._files_lock:
            closed, self._closed = self._closed, True
        if closed:
            return
        if self._server is not None:
            self._server.close()
        self._marker.close()
        self._maintenance.close()
        self._committer.close()
        self._let_go()
        self._lock.release()
