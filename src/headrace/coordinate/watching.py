"""What alerts can watch, measured: of every subject there is, how much. One method for each of `alerts.WATCHES`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headrace.clock import Clock
from headrace.coordinate.base import QueryDefinition, late_topic
from headrace.coordinate.care import ViewCare
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.job_runner import JobRunner
from headrace.coordinate.query_status import status_of
from headrace.coordinate.status import EngineStatus
from headrace.deliver.alerts.alerts import Measure
from headrace.deliver.alerts.state import Reading
from headrace.log.base import Log
from headrace.process.base import QueryStatus
from headrace.types import display_name
from headrace.views.check import Checked
from headrace.views.drift import Drift
from headrace.views.ledger import ledger_end

SILENCE_S = 60.0
"""An engine that is silent for less is being started, as far as anybody knows."""


class Watching:
    """Looks at what others know; keeps nothing but since when the engine is silent."""

    def __init__(
        self,
        log: Log,
        catalog: Catalog,
        clock: Clock,
        engine: EngineStatus,
        care: ViewCare,
        jobs: JobRunner,
        letters: Callable[[], Mapping[str, int]],
    ) -> None:
        self._log, self._catalog, self._clock = log, catalog, clock
        self._engine, self._care, self._jobs, self._letters = engine, care, jobs, letters
        self._heard = clock.monotonic()

    def measures(self) -> dict[str, Measure]:
        return {
            "drift": self.drift,
            "late": self.late,
            "dead_letters": self.dead_letters,
            "lag": self.lag,
            "failed": self.failed,
            "job": self.jobs,
        }

    def drift(self) -> dict[str, Reading]:
        found = {}
        for view in self._catalog.views():
            if view.query_id is not None:
                known = self._care.checked.get((view.name, view.version), Checked())
                differing = list(known.drift.values())
                found[display_name(view.name)] = Reading(len(differing), drift_text(differing))
        return found

    def late(self) -> dict[str, Reading]:
        views = [view for view in self._catalog.views() if view.query_id is not None]
        return {
            display_name(view.name): Reading(ledger_end(self._log, late_topic(view.query_id or ""))) for view in views
        }

    def dead_letters(self) -> dict[str, Reading]:
        counts = self._letters()
        topics = {topic.name for topic in self._log.topics() if not topic.internal} | set(counts)
        return {topic: Reading(counts.get(topic, 0)) for topic in topics}

    def lag(self) -> dict[str, Reading]:
        return self._of_queries(lambda query, status: Reading(status_of(query, self._engine, self._log).lag))

    def failed(self) -> dict[str, Reading]:
        now = self._clock.monotonic()
        if self._engine.state()["state"] != "gone":
            self._heard = now
        silent = now - self._heard >= SILENCE_S
        unknown = Reading(1, "the engine does not answer") if silent else Reading(None)
        return self._of_queries(lambda query, status: unknown if status is None else failure(status))

    def jobs(self) -> dict[str, Reading]:
        found = {}
        for job in self._jobs.jobs():
            over = [run for run in self._jobs.history.runs(job.name) if run.finished_ms is not None]
            last = over[0] if over else None
            failed = last is not None and last.state in ("failed", "waiting")
            found[job.name] = Reading(int(failed), last.message if failed and last is not None else "")
        return found

    def _of_queries(self, measure: Callable[[QueryDefinition, QueryStatus | None], Reading]) -> dict[str, Reading]:
        """Of those that make what is served; by what they write, whichever version does. Of several the worst."""
        statuses = {status.id: status for status in self._engine.all()}
        found: dict[str, Reading] = {}
        for query in self._wanted():
            reading = measure(query, statuses.get(query.id))
            name = display_name(query.sink)
            if name not in found or (reading.value or 0) > (found[name].value or 0):
                found[name] = reading
        return found

    def _wanted(self) -> Iterable[QueryDefinition]:
        beside = {version.source.query for version in self._catalog.beside()}
        for query in self._catalog.queries():
            if query.wanted == "running" and not query.transient and query.layer != "batch" and query.id not in beside:
                yield query


def failure(status: QueryStatus) -> Reading:
    if status.state == "starting":
        return Reading(None)
    if status.state in ("failed", "restarting", "stalled"):
        return Reading(1, status.last_error.message if status.last_error else status.state)
    return Reading(0)


def drift_text(drift: list[Drift]) -> str:
    """The newest of them, in words."""
    if not drift:
        return ""
    newest = max(drift, key=lambda one: one.time_ms)
    served = "no row" if newest.served is None else newest.served
    return f"{newest.key} is served as {served}, but the log says {newest.recomputed or 'there is none'}"
