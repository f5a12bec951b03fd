"""One query's life: starting, running, failing, starting again, stopping."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from msgspec import structs
from pyspark.sql.streaming.query import StreamingQuery

from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.process.backoff import Backoff
from headrace.process.base import QueryError, QuerySpec, QueryState
from headrace.process.failures import describe_failure, is_permanent
from headrace.process.progress import Progress, Rate, parse_progress
from headrace.process.stalls import Stalled

PLAN_SECONDS = 30.0

Launch = Callable[[QuerySpec], StreamingQuery]
Check = Callable[[QuerySpec, Progress], None]


class RunningQuery:
    """Changed by the threads of the runner's pool, its watcher, and whoever calls `stop`; `lock` is held for moments
    only, never while Spark works."""

    def __init__(
        self, spec: QuerySpec, launch: Launch, clock: Clock, first_backoff_s: float, check: Check = lambda *_: None
    ) -> None:
        """`check` raises if the query may not go on."""
        self.spec = spec
        self.state: QueryState = "starting"
        self.restarts = 0
        self.last_error: QueryError | None = None
        self.started_ms = clock.now_ms()
        self.rate = Rate()
        self.retry_at: float | None = None
        self.stalls = 0
        """How often it was found stalled since it last got on."""
        self._launch = launch
        self._check = check
        self._clock = clock
        self._backoff = Backoff(first_backoff_s)
        self._lock = threading.Lock()
        self._busy = threading.Lock()
        self._unwanted = threading.Event()
        self._streaming: StreamingQuery | None = None
        self._progress = Progress()
        self._plan: tuple[float, str] | None = None

    def launch(self) -> None:
        """Start now. Called in the pool; one at a time."""
        with self._busy:
            if self._unwanted.is_set():
                return
            try:
                streaming = self._launch(self.spec)
            except Exception as error:
                self._failed(error)
                return
            with self._lock:
                self._streaming = streaming
                self.state = "running"
                self._plan = None
        # Stopped while it was starting: `stop` found nothing to stop yet.
        if self._unwanted.is_set():
            self._end("stopped")

    def watch(self) -> bool:
        """See whether it still runs, and takes no more than it may. True if it is time to launch it again."""
        with self._lock:
            streaming, retry_at = self._streaming, self.retry_at
        if streaming is not None and not self._unwanted.is_set() and streaming.isActive:
            try:
                # As it was last reported, twice a second: asking Spark at every look would cost more than it is worth.
                self._check(self.spec, self._progress)
            except HeadraceError as error:
                self._failed(error)
                streaming.stop()
            return False
        if streaming is not None and not self._unwanted.is_set() and not streaming.isActive:
            self._observe(streaming)
            self._failed(streaming.exception() or RuntimeError("the query ended by itself"))
        elif retry_at is not None and not self._unwanted.is_set() and self._clock.monotonic() >= retry_at:
            with self._lock:
                self.retry_at = None
                self.restarts += 1
            return True
        return False

    def give_up_batch(self, error: Stalled) -> StreamingQuery | None:
        """Let go of a run that is stalled. Whoever calls has to stop it, which may take long or for ever, and then call
        `retry`: two runs must not share a checkpoint."""
        described = describe_failure(error, self.spec, self._clock.now_ms())
        with self._lock:
            streaming, self._streaming = self._streaming, None
            if streaming is not None:
                self.state, self.last_error = "restarting", described
                self.stalls += 1
        return streaming

    def retry(self) -> None:
        """Launch it again after its back-off."""
        with self._lock:
            if not self._unwanted.is_set():
                self.retry_at = self._clock.monotonic() + self._backoff.next()

    def got_on(self) -> None:
        """It has committed something: what was wrong is past."""
        with self._lock:
            self.stalls = 0
            if self.last_error is not None and self.last_error.recovered_ms is None:
                self.last_error = structs.replace(self.last_error, recovered_ms=self._clock.now_ms())

    def change(self, change: Callable[[QuerySpec], QuerySpec]) -> None:
        """What it is from now on; a launch that is under way comes first."""
        with self._busy:
            self.spec = change(self.spec)

    def stop(self) -> None:
        """Whatever was being written is either in the log with its batch's identity, or will be computed again."""
        self._unwanted.set()
        # A launch that is under way ends by itself.
        with self._busy:
            self._end("stopped")

    def progress(self) -> Progress:
        """Of the last finished batch, of this run or an earlier one."""
        with self._lock:
            streaming = self._streaming
        if streaming is not None:
            self._observe(streaming)
        return self._progress

    def spark_plan(self) -> str | None:
        """The plan of a recent batch. Printing it costs some milliseconds, so not at every look."""
        with self._lock:
            streaming, plan = self._streaming, self._plan
        now = self._clock.monotonic()
        if streaming is not None and self._progress.batch >= 0 and (plan is None or plan[0] < now - PLAN_SECONDS):
            with contextlib.suppress(Exception):
                self._plan = (now, str(streaming._jsq.explainInternal(False)).strip())
        return self._plan[1] if self._plan else None

    def remember(self, progress: Progress) -> None:
        """What is known from before this process."""
        if self._progress.batch < 0:
            self._progress = progress

    def _observe(self, streaming: StreamingQuery) -> None:
        reported = streaming._jsq.lastProgress()
        if reported is None:
            return
        progress = parse_progress(reported.json())
        if progress.batch > self._progress.batch:
            # It got further than last time: what made it fail is behind it.
            self._backoff.reset()
            self.got_on()
        if progress.ends:
            self._progress = progress

    def _failed(self, error: BaseException) -> None:
        described = describe_failure(error, self.spec, self._clock.now_ms())
        with self._lock:
            self._streaming = None
            self.last_error = described
            if self._unwanted.is_set():
                return
            if is_permanent(error):
                self.state = "failed"
                return
            self.state = "restarting"
            self.retry_at = self._clock.monotonic() + self._backoff.next()

    def _end(self, state: QueryState) -> None:
        with self._lock:
            streaming, self._streaming = self._streaming, None
            self.retry_at = None
            if self.state != "failed":
                self.state = state
        if streaming is not None:
            self._observe(streaming)
            streaming.stop()
