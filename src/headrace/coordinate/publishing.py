"""The publisher: keeps the public topic of a name one continuous changelog, whichever version serves.

A name that has had another version than its first has an internal topic for each. The publisher, a thread of the
server, copies what the serving version writes to the public topic. When another version begins to serve, it appends the
rows that differ between both, tombstones for those that are gone, and goes on with the new version's changes. Rows and
position are one commit, by a batch identity like a query's (contract 7): after a kill it goes on without gap or repeat.

Of a stream there are no rows that could differ: its records up to one place of its inputs are the old version's, those
after it the new one's.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.how_far import cut_of, ends_of, next_offsets, offsets_at
from headrace.coordinate.public_topics import fork_public, half_forked, superseded_writers
from headrace.coordinate.published import Published, commit_published, read_published
from headrace.coordinate.statements import StatementExecutor
from headrace.coordinate.status import EngineStatus
from headrace.coordinate.topics import find_topic
from headrace.errors import Conflict, HeadraceError, OffsetOutOfRange
from headrace.log.base import ARRIVAL, Log, Topic
from headrace.log.schema import frame_schema
from headrace.store.arrivals import read_stretch
from headrace.store.base import Position
from headrace.store.cuts import Cut
from headrace.store.follow import Followers
from headrace.store.positions import bounded
from headrace.types import display_name
from headrace.views.public import public_topic
from headrace.views.switch_rows import changed_rows, fit_columns, row_files, written_columns
from headrace.views.versions import NONE, Version

logger = logging.getLogger("headrace.publish")

ROWS = 20_000
LOOK_S = 0.5
LEAST_S, AGAIN_S = 0.02, 5.0


@dataclass(slots=True)
class Publisher:
    """One thread, from `start` to `close`."""

    log: Log
    catalog: Catalog
    executor: StatementExecutor
    deployments: Deployments
    followers: Followers
    engine: EngineStatus
    scratch: Path
    troubles: dict[str, str] = field(default_factory=dict)
    """By name: why nothing is published at the moment."""
    _seen: dict[str, int] = field(default_factory=dict)
    """By name: how many events the catalog had when it was first found to need a publisher."""
    _held: dict[str, Cut] = field(default_factory=dict)
    """By query: where the publisher holds it."""
    _checked: tuple[int, float] = (-1, 0.0)
    """How many events the catalog had when it was last looked for topics to fork, and when that was."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headrace-publisher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except (HeadraceError, OSError) as error:
                logger.warning("nothing is published at the moment: %s", error)
                self._stop.wait(AGAIN_S)
            except Exception:
                # Nobody would start the thread again.
                logger.exception("nothing is published at the moment")
                self._stop.wait(AGAIN_S)

    def _step(self) -> None:
        """Publish what is there, or wait for more."""
        arrival = self.log.snapshot().arrival
        self.fork_left()
        worked = [self._tried(name) for name in self.names()]
        if not any(worked):
            self.log.wait(arrival, LOOK_S)
            self._stop.wait(LEAST_S)

    def names(self) -> list[str]:
        """Return the names whose serving version has a topic of its own beside the public one."""
        return [name for name in self.catalog.state.serving if self._serving(name) is not None]

    def _serving(self, name: str) -> Version | None:
        state = self.catalog.state
        version = state.versions.get(name, {}).get(state.serving.get(name, NONE))
        if version is None or version.source.query is None or public_topic(version.source) == version.source.topic:
            return None
        return version

    def fork_left(self) -> None:
        """Fork public topics that a superseded version still writes: of a project that was deployed before there was a
        publisher, or whose server was killed between a fork and the catalog's event."""
        events, now = self.catalog.state.events, time.monotonic()
        if events == self._checked[0] and now - self._checked[1] < AGAIN_S:
            return
        with self.executor.lock:
            names = {*superseded_writers(self.catalog), *half_forked(self.log, self.catalog)}
            if forked := fork_public(self.log, self.catalog, sorted(names)):
                self.catalog.append(forked)
        self._checked = events, now

    def needed(self, topic: str) -> dict[int, int]:
        """By partition: what of a version's topic has yet to be published. Retention waits for it."""
        for name in self.names():
            version = self._serving(name)
            public = None if version is None else find_topic(self.log, public_topic(version.source))
            state = None if public is None else read_published(self.log, self.catalog, name, public)
            made = self.catalog.state.versions.get(name, {}).get(state.version) if state is not None else None
            if state is not None and made is not None and made.source.topic == topic:
                return dict(state.offsets)
        return {}

    def problems(self) -> list[str]:
        """Say which public topics do not follow the version that serves, and why. Lambda views are left out: that their
        topic has only parts of rows is no fault."""
        found = []
        for name, reason in sorted(self.troubles.items()):
            version = self._serving(name)
            if version is not None and version.layers is None:
                topic = public_topic(version.source)
                found.append(f"topic `{topic}` does not get version {version.number}, which serves: {reason}")
        return found

    def _tried(self, name: str) -> bool:
        try:
            worked = self.advance(name)
        except (HeadraceError, OSError) as error:
            reason = error.message if isinstance(error, HeadraceError) else str(error)
            if self.troubles.get(name) != reason:
                logger.warning("changes of `%s` cannot be published: %s", display_name(name), reason)
            self.troubles[name] = reason
            return False
        self.troubles.pop(name, None)
        return worked

    def advance(self, name: str) -> bool:
        """Publish what is there of a name, up to some rows. True if anything was."""
        version = self._serving(name)
        if version is None or not self._is_free(name):
            return False
        topic = self._public(version)
        state = read_published(self.log, self.catalog, name, topic)
        state = state or Published(version.number, _starts(self.log, version.source.topic))
        if state.version == version.number:
            return self._copy(version, topic, state)
        old = self.catalog.state.versions.get(name, {}).get(state.version)
        if old is None:
            # Nobody knows any more what readers have.
            logger.warning(
                "version %d of `%s` was forgotten before its last rows were published: rows that are gone since are "
                "not deleted in topic `%s`",
                state.version,
                display_name(name),
                topic.name,
            )
            return self._commit(topic, [], Published(version.number, _starts(self.log, version.source.topic)))
        if version.source.kind == "table":
            return self._cross_tables(old, version, topic, state)
        return self._cross_streams(old, version, topic, state)

    def _is_free(self, name: str) -> bool:
        """Whether no query reads the public topic as a version's any more: one that the engine began before the fork
        goes on with it until the engine has seen that."""
        needed = self._seen.setdefault(name, self.catalog.state.events)
        reconciled = self.engine.reconciled()
        return reconciled is None or reconciled >= needed

    def _public(self, version: Version) -> Topic:
        """The public topic, with the columns that the version has. `Conflict` if it cannot carry them."""
        source, name = version.source, public_topic(version.source)
        made = self.log.topic(source.topic)
        if version.layers is not None:
            raise Conflict("its layers are merged when it is read, so its topic has no rows to publish")
        if (writer := self.catalog.maker(name)) is not None:
            raise Conflict(f"version {writer.number} still writes topic `{name}`")
        topic = find_topic(self.log, name)
        if topic is None:
            return self.log.create_topic(replace(made.spec, name=name))
        if (topic.spec.key, topic.spec.windowed) != (made.spec.key, made.spec.windowed):
            raise Conflict(f"topic `{name}` has another key than version {version.number}")
        known = {column.name: column for column in topic.spec.value}
        for column in made.spec.value:
            if known.setdefault(column.name, column) != column:
                raise Conflict(
                    f"column `{display_name(column.name)}` is {known[column.name].type} in topic `{name}`, and "
                    f"{column.type} in version {version.number}"
                )
        if len(known) > len(topic.spec.value):
            return self.log.alter_topic(replace(topic.spec, value=tuple(known.values())))
        return topic

    def _copy(self, version: Version, topic: Topic, state: Published) -> bool:
        batches, offsets = self._records(version, topic, state.offsets, None)
        if offsets == state.offsets:
            return False
        return self._commit(topic, batches, Published(version.number, offsets))

    def _records(
        self, version: Version, topic: Topic, after: Mapping[int, int], until: Mapping[int, int] | None
    ) -> tuple[list[pa.RecordBatch], dict[int, int]]:
        """A stretch of a version's records as the public topic has them, and where it ends."""
        source = self.log.topic(version.source.topic)
        names = written_columns(frame_schema(source.spec, source.schemas[-1]))
        snapshot = self.log.snapshot()
        if until is not None:
            snapshot = bounded(snapshot, source.name, until)
        try:
            stretch = read_stretch(self.log, source.name, Position(0, after), snapshot, [*names, ARRIVAL], ROWS)
        except OffsetOutOfRange:
            starts = _starts(self.log, source.name)
            logger.warning("records of `%s` were removed before they were published", source.name)
            later = {number: max(offset, starts.get(number, 0)) for number, offset in after.items()}
            stretch = read_stretch(self.log, source.name, Position(0, later), snapshot, [*names, ARRIVAL], ROWS)
        schema = frame_schema(topic.spec, topic.schemas[-1])
        batches = [fit_columns(records.batch, schema) for records in stretch.records]
        return batches, dict(stretch.position.offsets)

    def _all_records(
        self, version: Version, topic: Topic, after: Mapping[int, int], until: Mapping[int, int]
    ) -> Iterator[pa.RecordBatch]:
        while any(after.get(number, 0) < offset for number, offset in until.items()):
            batches, after = self._records(version, topic, after, until)
            yield from batches

    def _cross_tables(self, old: Version, new: Version, topic: Topic, state: Published) -> bool:
        views = [self.followers.version(one.name, one.number) for one in (old, new)]
        self.scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="publish-", dir=self.scratch) as folder:
            before, after = (row_files(view, Path(folder) / str(view.version), views, self._check) for view in views)
            if any(before.position.offsets.get(number, 0) < offset for number, offset in state.offsets.items()):
                return False  # its rows are behind what is published; they follow
            schema = frame_schema(topic.spec, topic.schemas[-1])
            last = self._all_records(old, topic, state.offsets, before.position.offsets)
            rows = chain(last, changed_rows(before, after, schema))
            return self._commit(topic, rows, Published(new.number, dict(after.position.offsets)))

    def _cross_streams(self, old: Version, new: Version, topic: Topic, state: Published) -> bool:
        """Go over at one place of the inputs, exactly: the old version is held there."""
        queries = [self.catalog.query(one.source.query or "") for one in (old, new)]
        before, after = queries
        ends = dict(enumerate(ends_of(self.log, new.source.topic)))
        if before is not None and after is not None and before.wanted == "running":
            cut = cut_of(self.log, after)
            ends = dict(enumerate(ends_of(self.log, new.source.topic)))
            common = set(before.reads.values()) & set(after.reads.values())
            wanted = {read: offsets_at(self.log, read, cut) for read in common}
            if cut_of(self.log, after) != cut:
                return True
            if self.deployments.is_bound(before.id) and before.until != self._held.get(before.id):
                return False  # a comparison of versions holds it, elsewhere
            self._held[before.id] = cut
            self.deployments.bound({before.id: cut})
            read = {name: tuple(next_offsets(self.log, before, name).values()) for name in common}
            if any(have > want for name in common for have, want in zip(read[name], wanted[name], strict=True)):
                return False  # the new version is behind it, and follows
            if read != wanted:
                return False  # it is held, and comes there
        until = dict(enumerate(ends_of(self.log, old.source.topic)))
        done = self._commit(topic, self._all_records(old, topic, state.offsets, until), Published(new.number, ends))
        if before is not None and self._held.pop(before.id, None) is not None:
            self.deployments.bound({before.id: None})
        return done

    def _check(self) -> None:
        if self._stop.is_set():
            raise HeadraceError("the server is stopping")

    def _each(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._check()
            yield batch

    def _commit(self, topic: Topic, batches: Iterable[pa.RecordBatch], state: Published) -> bool:
        commit_published(self.log, topic, self._each(batches), state)
        return True


def _starts(log: Log, topic: str) -> dict[int, int]:
    return {number: ends.start for number, ends in enumerate(log.snapshot().ends.get(topic, ()))}
