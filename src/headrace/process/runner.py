"""All persistent queries of a project, in one Spark session."""

from __future__ import annotations

import logging
import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JNetworkError
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.clock import Clock
from headrace.config import SparkSettings
from headrace.errors import Conflict, HeadraceError, NotFound
from headrace.log.base import Log, Snapshot
from headrace.process.base import QueryRunner, QuerySpec, QueryStatus
from headrace.process.checkpoints import check_checkpoint
from headrace.process.limits import check_limits
from headrace.process.moved import with_known_results
from headrace.process.pace import pause_ms
from headrace.process.progress import Offsets, Progress, lag, listed, parse_offsets, stream_time, topic_end
from headrace.process.running import RunningQuery
from headrace.process.session import query_session
from headrace.process.stall_watcher import LOOK_S, Position, StallWatcher
from headrace.process.streaming import bound_query, start_query
from headrace.store.cuts import Cut, offsets_at, parse_cut

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace

logger = logging.getLogger("headrace.process")

STARTERS = 4
WATCH_SECONDS = 0.2


class SparkQueryRunner(QueryRunner):
    """Queries start in a small pool; one thread watches them all. `log` says what topics are and how far they go."""

    def __init__(
        self,
        spark: SparkSession,
        where: Path | KafkaPlace,
        settings: SparkSettings,
        clock: Clock,
        log: Log,
        patience: int = 1,
    ) -> None:
        """`where`: the local log's folder, or Kafka. `patience`: how often a stalled query is restarted before `stalls`
        asks for another engine."""
        self._spark = query_session(spark)
        self._spark.conf.set("spark.sql.shuffle.partitions", settings.shuffle_partitions)
        self._where = where
        self._settings = settings
        self._clock = clock
        self._log = log
        self._queries: dict[str, RunningQuery] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.spark_lost = threading.Event()
        """Set when the JVM is gone. Nothing runs any more; only a new process helps."""
        self._java: subprocess.Popen[bytes] | None = getattr(self._spark.sparkContext._gateway, "proc", None)
        """None if somebody else has started it."""
        self._pool = ThreadPoolExecutor(STARTERS, thread_name_prefix="headrace-start")
        context: Any = spark.sparkContext
        self._work = context._jvm.dev.headrace.spark.Work.watch(context._jsc.sc())
        self.stalls = StallWatcher(self._position, lambda query: str(self._work.of(query.spec.id)), clock, patience)
        self._stall_thread = threading.Thread(target=self._watch_stalls, name="headrace-stalls", daemon=True)
        self._stall_thread.start()
        self._watcher = threading.Thread(target=self._watch, name="headrace-watch", daemon=True)
        self._watcher.start()

    def start(self, spec: QuerySpec) -> None:
        with self._lock:
            if self._closing.is_set():
                raise Conflict("the runner is closed")
            known = self._queries.get(spec.id)
            if known is not None and known.state not in ("stopped", "failed"):
                if known.spec == spec:
                    return
                raise Conflict(f"query `{spec.id}` is running", hint="stop it first")
            backoff = self._settings.restart_backoff_s
            query = RunningQuery(spec, self._launch, self._clock, backoff, self._check_limits)
            self._queries[spec.id] = query
        self._submit(query)

    def stop(self, query_id: str) -> None:
        self._query(query_id).stop()

    def bound(self, query_id: str, until: Cut | None) -> bool:
        where, query = self._where, self._query(query_id)
        if not isinstance(where, Path):
            return False
        query.change(lambda spec: self._bounded(replace(spec, until=until), where))
        return True

    def _bounded(self, spec: QuerySpec, folder: Path) -> QuerySpec:
        bound_query(self._spark, folder, spec)
        return spec

    def forget(self, query_id: str) -> None:
        query = self._query(query_id)
        query.stop()
        with self._lock:
            self._queries.pop(query_id, None)
        shutil.rmtree(query.spec.checkpoint, ignore_errors=True)

    def statuses(self) -> list[QueryStatus]:
        with self._lock:
            queries = list(self._queries.values())
        snapshot = self._log.snapshot()
        return [self._status(query, snapshot) for query in queries]

    def close(self) -> None:
        """Stop all, side by side: each may have to wait for its batch."""
        with self._lock:
            self._closing.set()
            queries = list(self._queries.values())
        if self.spark_lost.is_set():
            self._pool.shutdown(wait=False, cancel_futures=True)
            return
        list(self._pool.map(self._in_thread(RunningQuery.stop), queries))
        self._pool.shutdown(wait=True)
        self._watcher.join()
        context: Any = self._spark.sparkContext
        context._jsc.sc().removeSparkListener(self._work)

    def _query(self, query_id: str) -> RunningQuery:
        with self._lock:
            query = self._queries.get(query_id)
        if query is None:
            raise NotFound(f"query `{query_id}` does not run here", hint="SHOW QUERIES lists what does")
        return query

    def _submit(self, query: RunningQuery) -> None:
        with suppress(RuntimeError):  # the pool was closed meanwhile
            self._pool.submit(self._in_thread(query.launch))

    def _in_thread(self, work: Callable[..., None]) -> Callable[..., None]:
        """PySpark ties a Python thread to a Java one; this keeps the tie from outliving the work."""
        wrapped: Callable[..., None] = inheritable_thread_target(self._spark)(work)
        return wrapped

    def _launch(self, spec: QuerySpec) -> StreamingQuery:
        # Each time: files may go while it runs, and the log may be another one after a restart.
        # Jobs of a streaming query run in the pool of the thread that started it: one each, so that none waits for
        # another's backlog.
        if isinstance(self._where, Path):
            check_checkpoint(self._log, spec)
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", spec.id)
        known = replace(with_known_results(self._log, spec), keys=self._known_keys(spec))
        return start_query(self._spark, self._where, lambda name: self._log.topic(name).spec, self._settings, known)

    def _known_keys(self, spec: QuerySpec) -> int | None:
        """At the most as many as another version of the table has written, and without windows as many as it keeps."""
        with self._lock:
            others = [other for other in self._queries.values() if other.spec.id != spec.id]
        sink, snapshot = spec.plan.sink, self._log.snapshot()
        found = []
        for other in others:
            theirs = other.spec.plan.sink
            if (theirs.name, theirs.key, theirs.window) == (sink.name, sink.key, sink.window):
                kept = other.progress().state_rows if sink.window is None else 0
                written = topic_end(snapshot, theirs.topic)
                found.append(min(kept or written, written))
        return max(found, default=None)

    def _check_limits(self, spec: QuerySpec, progress: Progress) -> None:
        check_limits(spec, self._settings, progress)

    def _watch(self) -> None:
        while not self._closing.wait(WATCH_SECONDS):
            with self._lock:
                queries = list(self._queries.values())
            for query in queries:
                self._watch_one(query)
            if self._java is not None and self._java.poll() is not None:
                # Nobody who runs may have noticed: one that waits to be started again would for ever.
                self.spark_lost.set()

    def _watch_stalls(self) -> None:
        """In a thread of its own: it asks the log, which may not answer."""
        looked = self._clock.monotonic()
        while not self._closing.wait(LOOK_S):
            now = self._clock.monotonic()
            elapsed, looked = now - looked, now
            with self._lock:
                queries = list(self._queries.values())
            try:
                self.stalls.look(queries, elapsed)
            except Exception:
                # Nobody would begin it again.
                logger.exception("stalled queries could not be looked for")

    def _position(self, query: RunningQuery) -> Position:
        spec, progress, snapshot = query.spec, query.progress(), self._log.snapshot()
        read = self._read(spec, snapshot, progress)
        waiting = any(self._has_more(snapshot, spec, topic, offsets) for topic, offsets in read.items())
        limit = self._settings.stall_seconds
        # Between two batches of a slow query nothing happens.
        seconds = limit + 2 * pause_ms(self._settings, spec) / 1000 if limit > 0 else 0.0
        return Position(waiting, (progress.batch, str(progress.ends)), seconds)

    def _has_more(self, snapshot: Snapshot, spec: QuerySpec, topic: str, read: Offsets) -> bool:
        if lag(snapshot, topic, read) == 0:
            return False
        bounds = {} if spec.until is None else offsets_at(self._log, snapshot, topic, spec.until)
        ends = enumerate(snapshot.ends[topic])
        return any(bounds.get(number, end.end) > max(read.get(number, 0), end.start) for number, end in ends)

    def _watch_one(self, query: RunningQuery) -> None:
        try:
            if query.watch():
                self._submit(query)
        except Exception as error:
            # Whatever it is, the others still have to be watched; only without Spark there is nothing left to do.
            logger.exception("watching `%s` failed", query.spec.id)
            if isinstance(error, Py4JNetworkError | OSError):
                self.spark_lost.set()

    def _status(self, query: RunningQuery, snapshot: Snapshot) -> QueryStatus:
        spec = query.spec
        progress = query.progress()
        if progress.batch < 0:
            query.remember(self._committed(spec, snapshot))
            progress = query.progress()
        read = self._read(spec, snapshot, progress)
        first = spec.plan.inputs[0].topic
        rows = sum(_passed(offsets, spec.starts.get(topic, {})) for topic, offsets in read.items())
        return QueryStatus(
            id=spec.id,
            state="stalled" if query.stalls and query.state in ("running", "restarting") else query.state,
            batch=progress.batch,
            rows_per_second=query.rate.update(self._clock.monotonic(), rows),
            rows=rows,
            changed_rows=topic_end(snapshot, spec.plan.sink.topic),
            lag=sum(lag(snapshot, topic, offsets) for topic, offsets in read.items()),
            stream_time_ms=self._stream_time(snapshot, first, read.get(first, {})),
            late_rows=topic_end(snapshot, spec.late_topic) if spec.late_topic else 0,
            batch_ms=progress.batch_ms,
            state_rows=progress.state_rows,
            state_bytes=progress.state_bytes,
            restarts=query.restarts,
            last_error=query.last_error,
            started_ms=query.started_ms,
            updated_ms=self._clock.now_ms(),
            spark_plan=query.spark_plan(),
            read={topic: listed(offsets) for topic, offsets in read.items()},
        )

    def _read(self, spec: QuerySpec, snapshot: Snapshot, progress: Progress) -> dict[str, Offsets]:
        """How far each topic is read; one that is gone has nothing to read."""
        return {
            topic: progress.ends.get(self._called(topic), spec.starts.get(topic, {}))
            for topic in _topics(spec)
            if topic in snapshot.ends
        }

    def _called(self, topic: str) -> str:
        """What a source's offsets call a topic."""
        return str(self._log.topic(topic).id) if isinstance(self._where, Path) else self._where.log.kafka_name(topic)

    def _committed(self, spec: QuerySpec, snapshot: Snapshot) -> Progress:
        """How far the query is by what it has written, before its first batch in this process."""
        identity = self._log.last_identity(spec.id, spec.version)
        if identity is None:
            return Progress()
        topics = _topics(spec)
        cut = parse_cut(identity.offsets, topics)
        if cut is None:
            # An older version said less: of several topics how far the first was read.
            cut = {topics[0]: parse_offsets(identity.offsets)}
        there = [topic for topic in topics if topic in snapshot.ends]
        ends = {self._called(topic): offsets_at(self._log, snapshot, topic, cut) for topic in there}
        return Progress(identity.batch, ends=ends)

    def _stream_time(self, snapshot: Snapshot, topic: str, read: Offsets) -> int | None:
        if not read:
            return None
        try:
            return stream_time(self._log, snapshot, topic, read)
        except HeadraceError:
            # Retention may take a record between looking and reading; the next look will do.
            return None


def _topics(spec: QuerySpec) -> list[str]:
    """Each once: a stream may be joined with itself."""
    return list(dict.fromkeys(source.topic for source in spec.plan.inputs))


def _passed(read: Offsets, starts: Offsets) -> int:
    return sum(max(0, end - starts.get(number, 0)) for number, end in read.items())
