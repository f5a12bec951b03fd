"""Work of the engine that ends: questions, plans that are asked for, and batch layers of Lambda views. One thread and
one group of Spark jobs each, the rows appended to a topic.

What reads a bounded range needs no checkpoint. A question that fails says why, without a second try, and one whose
asker has gone is cancelled. A batch layer that was cut short, by an engine or a server that was killed, is computed
again: nobody asks for it a second time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import HeadraceError, LogError, NotRunning
from headrace.log.base import Append, Log, TopicSpec
from headrace.log.schema import arrow_type
from headrace.process.ask.frame import ask_frame
from headrace.process.base import JobSpec, LayerSpec, PlanSpec, QueryError, QueryState, QueryStatus
from headrace.process.batch import write_layer
from headrace.process.explaining import spark_plan
from headrace.process.failures import short_failure
from headrace.process.session import query_session
from headrace.sql.source import Source

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace

logger = logging.getLogger("headrace.engine")

Spec: TypeAlias = JobSpec | PlanSpec | LayerSpec
AT_ONCE = 2
"""Further ones wait: questions must not starve the queries that run on."""
ROWS_PER_APPEND = 50_000
TRIES = 3
"""Of a batch layer. What the log was away for does not count."""
AGAIN_S = 0.5


@dataclass(slots=True)
class _Job:
    spec: Spec
    started_ms: int
    group: str
    """Of its jobs in Spark; another each time it is started, whoever else uses the session: a group that was cancelled
    stays so."""
    state: QueryState = "starting"
    rows: int = 0
    done: bool = False
    cancelled: bool = False
    error: QueryError | None = None
    plan: str | None = None
    restarts: int = 0


class Jobs:
    """All questions being answered. A finished one is `stopped` with batch 0, until it is forgotten."""

    def __init__(self, spark: SparkSession, where: Path | KafkaPlace, log: Log, clock: Clock) -> None:
        self._spark, self._where, self._log, self._clock = query_session(spark), where, log, clock
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()
        self._turn = threading.Semaphore(AT_ONCE)
        self._layer_turn = threading.Semaphore(1)

    def start(self, spec: Spec) -> None:
        with self._lock:
            job = self._jobs[spec.id] = _Job(spec, self._clock.now_ms(), f"{spec.id} {uuid4().hex}")
        work = inheritable_thread_target(self._spark)(self._run)
        threading.Thread(target=work, args=(job,), name=f"headrace-{spec.id}", daemon=True).start()

    def known(self) -> list[str]:
        with self._lock:
            return list(self._jobs)

    def forget(self, query_id: str) -> None:
        with self._lock:
            job = self._jobs.pop(query_id, None)
        if job is not None and not job.done:
            job.cancelled = True
            # Those it has not come to yet, too: who gives up while Spark plans would leave it working for nobody.
            self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(job.group)

    def close(self) -> None:
        for query_id in self.known():
            self.forget(query_id)

    def statuses(self) -> list[QueryStatus]:
        """`rows` are tasks of Spark that are done, `lag` those that are known to be left."""
        with self._lock:
            jobs = list(self._jobs.values())
        return [self._status(job) for job in jobs]

    def _status(self, job: _Job) -> QueryStatus:
        done, left = (0, 0) if job.done else self._tasks(job.group)
        return QueryStatus(
            id=job.spec.id,
            state=job.state,
            batch=0 if job.done and job.error is None else -1,
            rows=done,
            lag=left,
            changed_rows=job.rows,
            last_error=job.error,
            spark_plan=job.plan,
            restarts=job.restarts,
            started_ms=job.started_ms,
            updated_ms=self._clock.now_ms(),
        )

    def _tasks(self, group: str) -> tuple[int, int]:
        tracker = self._spark.sparkContext.statusTracker()
        done = left = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                found = tracker.getStageInfo(stage)
                if found is not None:
                    done += found.numCompletedTasks
                    left += found.numTasks - found.numCompletedTasks
        return done, left

    def _run(self, job: _Job) -> None:
        spec = job.spec
        try:
            with self._layer_turn if isinstance(spec, LayerSpec) else self._turn:
                if job.cancelled:
                    return
                job.state = "running"
                self._spark.sparkContext.setJobGroup(job.group, spec.id, interruptOnCancel=True)
                self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", spec.id)
                match spec:
                    case JobSpec():
                        self._answer(job, spec)
                    case PlanSpec():
                        job.plan = spark_plan(self._spark, self._where, self._topic, spec.plan, spec.late_topic)
                    case LayerSpec():
                        self._compute_until_done(job, spec)
            job.state = "stopped"
        except Exception as error:
            job.error, job.state = self._error(error), "failed"
        finally:
            job.done = True

    def _error(self, error: Exception) -> QueryError:
        message = error.message if isinstance(error, HeadraceError) else f"Spark says: {short_failure(error)}"
        return QueryError(message, self._clock.now_ms())

    def _answer(self, job: _Job, spec: JobSpec) -> None:
        answer = ask_frame(self._spark, self._where, self._log, spec.query).limit(spec.limit).toArrow()
        for batch in _batches(answer, spec.sink):
            self._log.append([Append(spec.sink.topic, batch, 0)]).result()
            job.rows += batch.num_rows

    def _compute_until_done(self, job: _Job, spec: LayerSpec) -> None:
        tries = 0
        while True:
            try:
                self._compute(spec)
                job.error = None
                return
            except Exception as error:
                if job.cancelled:
                    return
                job.error, job.state = self._error(error), "restarting"
                logger.warning("%s is computed again: %s", spec.id, job.error.message)
                tries += 0 if self._was_away(job) else 1
                if tries >= TRIES:
                    raise
                job.restarts, job.state = job.restarts + 1, "running"

    def _was_away(self, job: _Job) -> bool:
        """Whether the log was, and is back now; a server that was killed comes again."""
        away = False
        while not job.cancelled:
            try:
                self._log.last_identity(job.spec.id, 1)
                return away
            except (NotRunning, LogError, OSError):
                away = True
                threading.Event().wait(AGAIN_S)
        return away

    def _compute(self, spec: LayerSpec) -> None:
        """Once: what was killed after it had committed is not computed again."""
        if self._log.last_identity(spec.id, 1) is None:
            write_layer(self._spark, self._where, self._topic, spec)

    def _topic(self, name: str) -> TopicSpec:
        return self._log.topic(name).spec


def _batches(answer: pa.Table, sink: Source) -> Iterator[pa.RecordBatch]:
    """In the order of the answer, with the topic's columns."""
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in sink.value])
    named = answer.rename_columns(schema.names).cast(schema)
    yield from named.to_batches(max_chunksize=ROWS_PER_APPEND)
