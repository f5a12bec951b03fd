"""`/metrics`: what happens is counted where it happens; what is, is looked at when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.clock import GuardedClock
from headrace.collect.base import Outcome
from headrace.collect.gates import all_statuses
from headrace.coordinate.query_status import status_of
from headrace.errors import NotFound
from headrace.log.missing import of_each

if TYPE_CHECKING:
    from headrace.server.services import Services

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """A registry of its own, so that two servers in one process, as in tests, do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._events = Counter(
            "headrace_events",
            "Events sent over HTTP, by what became of them.",
            ["topic", "outcome"],
            registry=self.registry,
        )
        self._requests = Histogram(
            "headrace_request_seconds",
            "Time until a request was answered (a stream: until it began).",
            ["method", "path", "status"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.feed_clients = Gauge(
            "headrace_feed_clients", "Clients that follow something now.", ["kind"], registry=self.registry
        )
        self.feed_events = Counter(
            "headrace_feed_events", "Events sent to feed clients.", ["kind"], registry=self.registry
        )
        self.feed_cuts = Counter(
            "headrace_feed_cuts", "Feeds that the server ended, by reason.", ["reason"], registry=self.registry
        )

        self.refused_subscribers = Counter(
            "headrace_subscribers_refused", "Subscribers refused, by limit.", ["limit"], registry=self.registry
        )
        self._following = 0

    def following(self) -> int:
        """How many streams are open."""
        return self._following

    @contextmanager
    def client(self, kind: str) -> Iterator[None]:
        """Counts a stream for as long as it is open."""
        self._following += 1
        self.feed_clients.labels(kind).inc()
        try:
            yield
        finally:
            self._following -= 1
            self.feed_clients.labels(kind).dec()

    def collected(self, topic: str, outcome: Outcome) -> None:
        for name, count in (
            ("accepted", outcome.accepted),
            ("duplicate", outcome.duplicates),
            ("rejected", len(outcome.rejected)),
            ("shed", outcome.shed),
        ):
            if count:
                self._events.labels(topic, name).inc(count)

    def requests(self, method: str, path: str) -> Callable[[int, float], None]:
        """Observes requests of one route; labels are made once per status, which is most of the cost."""
        known: dict[int, Histogram] = {}

        def observe(status: int, seconds: float) -> None:
            child = known.get(status)
            if child is None:
                child = known[status] = self._requests.labels(method, path, str(status))
            child.observe(seconds)

        return observe

    def text(self) -> bytes:
        return generate_latest(self.registry)


class State(Collector):
    """What the system is like now: read from log, engine and views at every scrape."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        yield from self._topics()
        yield from self._queries()
        yield from self._views()
        yield from self._jobs()
        yield from self._alerts()
        yield from self._tickets()
        yield from self._collectors()
        yield from self._functions()
        yield from self._clock()
        yield from self._watchdog()
        yield from self._connections()

    def _connections(self) -> Iterable[Metric]:
        connections = self._services.connections
        if connections is not None:
            yield GaugeMetricFamily("headrace_connections_open", "Open connections.", value=connections.open)
            yield GaugeMetricFamily("headrace_connections_most", "How many may be open.", value=connections.most)
            yield CounterMetricFamily(
                "headrace_connections_silent", "Connections closed that sent nothing.", value=connections.closed_silent
            )

    def _clock(self) -> Iterable[Metric]:
        clock = self._services.clock
        if isinstance(clock, GuardedClock):
            jump = clock.jump()
            offset = 0.0 if jump is None else jump.offset_ms / 1000
            yield GaugeMetricFamily(
                "headrace_clock_offset_seconds", "How far the machine's clock is ahead of the time in use.", offset
            )
            yield CounterMetricFamily("headrace_clock_jumps", "Jumps of the machine's clock.", clock.jumps)

    def _watchdog(self) -> Iterable[Metric]:
        watchdog = self._services.delivery.watchdog
        yield CounterMetricFamily(
            "headrace_queries_cancelled", "Queries that the watchdog cancelled.", value=watchdog.cancelled
        )
        yield CounterMetricFamily(
            "headrace_server_blocked", "How often the server stood still for seconds.", value=watchdog.blocked
        )

    def _functions(self) -> Iterable[Metric]:
        records = CounterMetricFamily(
            "headrace_function_records", "Records that functions on topics worked on.", labels=["function", "outcome"]
        )
        running = GaugeMetricFamily("headrace_function_running", "1 while a function runs.", labels=["function"])
        for one in self._services.attached.statuses():
            for outcome, count in (("read", one.records), ("written", one.written), ("rejected", one.rejected)):
                records.add_metric([one.name, outcome], count)
            running.add_metric([one.name], one.state == "running")
        files = CounterMetricFamily(
            "headrace_delivery_records", "Records that delivery streams wrote to files.", labels=["delivery"]
        )
        for name, count in self._services.deliveries.delivered().items():
            files.add_metric([name], count)
        yield from (records, running, files)

    def _topics(self) -> Iterable[Metric]:
        log = self._services.log
        ends = CounterMetricFamily(
            "headrace_topic_records", "Records ever appended to a topic; on Kafka offsets.", labels=["topic"]
        )
        size = GaugeMetricFamily("headrace_topic_bytes", "Bytes of a topic on disk.", labels=["topic"])
        stream_time = GaugeMetricFamily(
            "headrace_topic_stream_time_seconds", "The largest event time of a topic.", labels=["topic"]
        )
        for name, stats in of_each(log.topics(), lambda topic: (topic.name, log.stats(topic.name))):
            ends.add_metric([name], sum(partition.end for partition in stats.partitions))
            size.add_metric([name], stats.bytes)
            if stats.stream_time >= 0:
                stream_time.add_metric([name], stats.stream_time / 1000)
        letters = CounterMetricFamily(
            "headrace_dead_letters", "Events that did not fit, messages given up.", labels=["topic"]
        )
        for name, count in self._services.dead_letters.counts().items():
            letters.add_metric([name], count)
        yield from (ends, size, stream_time, letters)

    def _queries(self) -> Iterable[Metric]:
        running = GaugeMetricFamily("headrace_query_running", "1 while a query runs.", labels=["query"])
        lag = GaugeMetricFamily("headrace_query_lag_records", "Records a query has not read yet.", labels=["query"])
        rows = CounterMetricFamily("headrace_query_rows", "Rows a query has read; on Kafka offsets.", labels=["query"])
        late = CounterMetricFamily("headrace_query_late_rows", "Rows that came too late.", labels=["query"])
        restarts = CounterMetricFamily("headrace_query_restarts", "How often a query was restarted.", labels=["query"])
        state = GaugeMetricFamily("headrace_query_state_rows", "Rows in a query's state.", labels=["query"])
        stalled = GaugeMetricFamily(
            "headrace_query_stalled", "1 while input waits and a query does nothing.", labels=["query"]
        )
        services = self._services
        # Also while the engine says nothing: whoever watches the lag must see it grow.
        for query in services.catalog.queries():
            if not query.transient:
                status = status_of(query, services.engine, services.log)
                running.add_metric([query.id], status.state == "running")
                stalled.add_metric([query.id], status.state == "stalled")
                lag.add_metric([query.id], status.lag)
        for status in services.engine.all():
            rows.add_metric([status.id], status.rows)
            late.add_metric([status.id], status.late_rows)
            restarts.add_metric([status.id], status.restarts)
            state.add_metric([status.id], status.state_rows)
        yield from (running, stalled, lag, rows, late, restarts, state)

    def _views(self) -> Iterable[Metric]:
        lag = GaugeMetricFamily("headrace_view_lag_records", "Changes a view has not applied yet.", labels=["view"])
        for name in self._services.followers.names():
            with suppress(NotFound):  # dropped meanwhile
                lag.add_metric([name], self._services.followers.lag(name))
        checked = CounterMetricFamily(
            "headrace_view_checked_rows", "Rows computed again from the log and compared.", labels=["view"]
        )
        drift = GaugeMetricFamily(
            "headrace_view_drift_rows", "Rows known not to be what the log says; should be 0.", labels=["view"]
        )
        for view in self._services.catalog.views():
            known = self._services.care.checked.get((view.name, view.version))
            if known is not None:
                checked.add_metric([view.name], known.rows)
                drift.add_metric([view.name], len(known.drift))
        yield from (lag, checked, drift)

    def _tickets(self) -> Iterable[Metric]:
        tickets = self._services.tickets
        waiting = GaugeMetricFamily("headrace_tickets_waiting", "Requests with a ticket that are yet to be worked on.")
        calling = GaugeMetricFamily("headrace_callbacks_waiting", "Results that are yet to be taken by their callers.")
        if tickets is not None:
            waiting.add_metric([], tickets.waiting())
            calling.add_metric([], tickets.calling())
        yield from (waiting, calling)

    def _jobs(self) -> Iterable[Metric]:
        failed = GaugeMetricFamily(
            "headrace_job_failed", "1 if a job's last run failed or waits for one.", labels=["job"]
        )
        succeeded = GaugeMetricFamily(
            "headrace_job_last_success_seconds", "When a job last succeeded, since 1970.", labels=["job"]
        )
        for job in self._services.jobs.jobs():
            over = [run for run in self._services.jobs.history.runs(job.name) if run.finished_ms is not None]
            done = [run.finished_ms for run in over if run.state == "done" and run.finished_ms is not None]
            failed.add_metric([job.name], bool(over) and over[0].state in ("failed", "waiting"))
            if done:
                succeeded.add_metric([job.name], done[0] / 1000)
        yield from (failed, succeeded)

    def _alerts(self) -> Iterable[Metric]:
        firing = GaugeMetricFamily("headrace_alert_firing", "Subjects of an alert that fire.", labels=["alert"])
        waiting = GaugeMetricFamily(
            "headrace_alert_notices_waiting", "Notices of an alert that are yet to be taken.", labels=["alert"]
        )
        for status in self._services.alerts.statuses():
            firing.add_metric([status.definition.name], sum(one.state == "firing" for one in status.instances))
            waiting.add_metric([status.definition.name], sum(one.waiting for one in status.destinations))
        yield from (firing, waiting)

    def _collectors(self) -> Iterable[Metric]:
        events = CounterMetricFamily(
            "headrace_collector_events", "Events a collector received, by outcome.", labels=["collector", "outcome"]
        )
        size = CounterMetricFamily("headrace_collector_bytes", "Bytes a collector took.", labels=["collector"])
        errors = CounterMetricFamily("headrace_collector_errors", "Failures of a collector.", labels=["collector"])
        up = GaugeMetricFamily("headrace_collector_up", "1 if a collector runs.", labels=["collector"])
        for name, status in all_statuses(self._services.gates, self._services.board).items():
            for outcome in ("accepted", "duplicates", "rejected", "shed", "refused"):
                events.add_metric([name, outcome], getattr(status, outcome))
            size.add_metric([name], status.bytes)
            errors.add_metric([name], status.errors)
            up.add_metric([name], status.state == "running")
        yield from (events, size, errors, up)
