"""Work of the engine that ends: questions, plans that are asked for, and batch layers of Lambda views. One thread and
one group of Spark jobs each, the rows appended to a topic.

A question needs no checkpoint: one that fails says why, without a second try, and one whose asker has gone is
cancelled. A batch layer that was cut short, by somebody or by a kill, goes on where it was (`process.layer_job`).
"""

from __future__ import annotations

import logging
import shutil
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
from headrace.config import SparkSettings
from headrace.errors import HeadraceError
from headrace.log.base import Append, Log, TopicSpec
from headrace.log.schema import arrow_type
from headrace.process.ask.frame import ask_frame
from headrace.process.base import JobSpec, LayerSpec, PlanSpec, QueryError, QueryState, QueryStatus
from headrace.process.explaining import spark_plan
from headrace.process.failures import short_failure
from headrace.process.layer_job import LayerJob
from headrace.process.session import query_session
from headrace.sql.source import Source

if TYPE_CHECKING:
    from headrace.process.kafka.place import KafkaPlace

logger = logging.getLogger("headrace.engine")

Spec: TypeAlias = JobSpec | PlanSpec | LayerSpec
AT_ONCE = 2
"""Further ones wait: questions must not starve the queries that run on."""
ROWS_PER_APPEND = 50_000


@dataclass(slots=True)
class _Job:
    spec: Spec
    started_ms: int
    group: str = ""
    """Of its jobs in Spark; another each time it is started, and for each stretch of a layer, whoever else uses the
    session: a group that was cancelled stays so."""
    layer: LayerJob | None = None
    state: QueryState = "starting"
    rows: int = 0
    done: bool = False
    cancelled: bool = False
    error: QueryError | None = None
    plan: str | None = None
    restarts: int = 0
    dropped: bool = False


class Jobs:
    """All questions being answered. A finished one is `stopped` with batch 0, until it is forgotten."""

    def __init__(
        self,
        spark: SparkSession,
        where: Path | KafkaPlace,
        log: Log,
        clock: Clock,
        settings: SparkSettings | None = None,
    ) -> None:
        self._spark, self._where, self._log, self._clock = query_session(spark), where, log, clock
        # Of a batch layer's first stretch; the others have as many as its speed admits.
        self._first_rows = (settings or SparkSettings()).max_rows_per_batch
        self._jobs: dict[str, _Job] = {}
        self._working: list[_Job] = []
        """Those whose thread has not ended: one that was paused may still be writing what nobody wants any more."""
        self._lock = threading.Lock()
        self._turn = threading.Semaphore(AT_ONCE)
        self._layer_turn = threading.Semaphore(1)

    def start(self, spec: Spec) -> None:
        job = self._job(spec)
        with self._lock:
            self._working.append(job)
        work = inheritable_thread_target(self._spark)(self._run)
        threading.Thread(target=work, args=(job,), name=f"headrace-{spec.id}", daemon=True).start()

    def pause(self, spec: LayerSpec) -> None:
        """Stop it if it runs; what it has kept stays, and is told."""
        self._cancel(self._jobs.get(spec.id))
        job = self._job(spec)
        job.state, job.done, job.cancelled = "stopped", True, True

    def throttle(self, query_id: str, rows_per_second: int) -> None:
        """From the next stretch on."""
        with self._lock:
            job = self._jobs.get(query_id)
        if job is not None and job.layer is not None:
            job.layer.pace.set(rows_per_second)

    def known(self) -> list[str]:
        with self._lock:
            return list(self._jobs)

    def forget(self, query_id: str) -> None:
        """With all it has kept, once nobody writes there any more."""
        with self._lock:
            job = self._jobs.pop(query_id, None)
            working = [one for one in self._working if one.spec.id == query_id]
            for one in working:
                one.dropped = True
        self._cancel(job)
        if job is not None and not working:
            _remove(job)

    def close(self) -> None:
        with self._lock:
            jobs = list(self._jobs.values())
            self._jobs.clear()
        for job in jobs:
            self._cancel(job)

    def _job(self, spec: Spec) -> _Job:
        job = _Job(spec, self._clock.now_ms())
        if isinstance(spec, LayerSpec):
            job.layer = LayerJob(self._spark, self._where, self._log, self._clock, spec, self._first_rows)
        with self._lock:
            self._jobs[spec.id] = job
        return job

    def _cancel(self, job: _Job | None) -> None:
        if job is None or job.done:
            return
        job.cancelled = True
        if job.layer is not None:
            job.layer.pace.stop()
        if job.group:
            # Those it has not come to yet, too: who gives up while Spark plans would leave it working for nobody.
            self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(job.group)

    def statuses(self) -> list[QueryStatus]:
        """`rows` are tasks of Spark that are done, `lag` those that are known to be left; of a layer they are
        records."""
        with self._lock:
            jobs = list(self._jobs.values())
        return [self._status(job) for job in jobs]

    def _status(self, job: _Job) -> QueryStatus:
        done, left = (0, 0) if job.done else self._tasks(job.group)
        rate = 0.0
        if job.layer is not None:
            if job.cancelled:
                job.layer.look()
            progress, share = job.layer.progress, done / max(1, done + left)
            done = progress.done + int(progress.stretch * share)
            left = progress.total - done
            rate = 0.0 if job.done else job.layer.rate.update(self._clock.monotonic(), done)
        return QueryStatus(
            id=job.spec.id,
            state=job.state,
            batch=0 if job.done and not job.cancelled and job.error is None else -1,
            rows_per_second=rate,
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
                # First the group: whoever cancels it says so before looking for one.
                self._begin_group(job)
                if job.cancelled:
                    return
                job.state = "running"
                match spec:
                    case JobSpec():
                        self._answer(job, spec)
                    case PlanSpec():
                        job.plan = spark_plan(self._spark, self._where, self._topic, spec.plan, spec.late_topic)
                    case LayerSpec():
                        self._compute(job)
            job.state = "stopped"
        except Exception as error:
            job.error, job.state = self._error(error), "failed"
        finally:
            with self._lock:
                self._working.remove(job)
                job.done, dropped = True, job.dropped
            if dropped:
                _remove(job)

    def _begin_group(self, job: _Job) -> None:
        job.group = f"{job.spec.id} {uuid4().hex}"
        self._spark.sparkContext.setJobGroup(job.group, job.spec.id, interruptOnCancel=True)
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", job.spec.id)

    def _error(self, error: Exception) -> QueryError:
        message = error.message if isinstance(error, HeadraceError) else f"Spark says: {short_failure(error)}"
        return QueryError(message, self._clock.now_ms())

    def _answer(self, job: _Job, spec: JobSpec) -> None:
        answer = ask_frame(self._spark, self._where, self._log, spec.query).limit(spec.limit).toArrow()
        for batch in _batches(answer, spec.sink):
            self._log.append([Append(spec.sink.topic, batch, 0)]).result()
            job.rows += batch.num_rows

    def _compute(self, job: _Job) -> None:
        assert job.layer is not None

        def begins() -> None:
            self._begin_group(job)
            job.state, job.error = "running", None

        def failed(error: Exception) -> None:
            job.error, job.state, job.restarts = self._error(error), "restarting", job.restarts + 1
            logger.warning("%s is tried again: %s", job.spec.id, job.error.message)

        job.layer.run(begins, failed)

    def _topic(self, name: str) -> TopicSpec:
        return self._log.topic(name).spec


def _batches(answer: pa.Table, sink: Source) -> Iterator[pa.RecordBatch]:
    """In the order of the answer, with the topic's columns."""
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in sink.value])
    named = answer.rename_columns(schema.names).cast(schema)
    yield from named.to_batches(max_chunksize=ROWS_PER_APPEND)


def _remove(job: _Job) -> None:
    """What a layer's job has kept. Nobody needs it once it is there, or was dropped."""
    if isinstance(job.spec, LayerSpec) and job.spec.folder is not None:
        shutil.rmtree(job.spec.folder, ignore_errors=True)
