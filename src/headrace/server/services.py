"""Everything the routes need, made once in `main` (or in a test) and passed in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

from headrace.access.secrets import project_secret
from headrace.clock import Clock
from headrace.collect.base import Collector
from headrace.collect.gates import Gates
from headrace.collect.http.bodies import BodyBudget, BodyLimits
from headrace.collect.redrive import Redriver
from headrace.collect.status import Board
from headrace.collect.tickets.tickets import Tickets
from headrace.collect.visits import Visits
from headrace.config import Project
from headrace.coordinate.attached import AttachedFunctions
from headrace.coordinate.care import ViewCare
from headrace.coordinate.care_jobs import CareJobs
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.differences import Differences
from headrace.coordinate.firehose.manager import Deliveries
from headrace.coordinate.job_runner import JobRunner
from headrace.coordinate.project import Problem
from headrace.coordinate.publishing import Publisher
from headrace.coordinate.statements import StatementExecutor
from headrace.coordinate.status import EngineStatus
from headrace.deliver.alerts.alerts import Alerts
from headrace.deliver.base import Delivery
from headrace.errors import Overloaded
from headrace.log.base import Log
from headrace.log.queues import Queues, Requests
from headrace.log.registry.registry import Registry
from headrace.server.audit import Audit
from headrace.server.auth import Auth
from headrace.server.bell import Bell, Stopping
from headrace.server.connections import Connections
from headrace.server.consumers import Members
from headrace.server.counts import Counts
from headrace.server.dead_letters import DeadLetterIndex
from headrace.server.history import History
from headrace.server.metrics import Metrics
from headrace.server.rates import Rates
from headrace.server.subscribers import Subscribers
from headrace.store.follow import Followers

T = TypeVar("T")

SEARCH_SECONDS = 60.0
MAX_WAITING_QUERIES = 256
MAX_WAITING_EXPLANATIONS = 32


@dataclass(kw_only=True)
class Intake:
    """What taking events in needs: all that a collector process has."""

    project: Project
    clock: Clock
    log: Log
    collector: Collector
    auth: Auth
    audit: Audit
    metrics: Metrics
    budget: BodyBudget
    workers: Executor
    """For what blocks: reading files, decoding large bodies, pull queries. Bounded."""
    gates: Gates
    """The collectors of `collectors/*.toml`."""
    tickets: Tickets | None = None
    """Where requests are worked off later; collector processes do not."""

    @cached_property
    def visits(self) -> Visits:
        """Made when somebody first visits."""
        minutes = self.project.settings.collect.session_minutes
        return Visits(project_secret(self.project, "visits"), minutes * 60)

    @property
    def body_limits(self) -> BodyLimits:
        server = self.project.settings.server
        return BodyLimits(server.max_body_bytes, server.body_seconds)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call something that blocks, without blocking the others."""
        return await asyncio.get_running_loop().run_in_executor(self.workers, function, *arguments)


@dataclass(kw_only=True)
class Services(Intake):
    registry: Registry
    catalog: Catalog
    statements: StatementExecutor
    deployments: Deployments
    publisher: Publisher
    """Keeps public topics at the version that serves."""
    differences: Differences
    """Versions of views, compared when somebody asks."""
    engine: EngineStatus
    followers: Followers
    delivery: Delivery
    care: ViewCare
    """Repairs views and checks that they are right."""
    care_jobs: CareJobs
    """The same as jobs, for what takes long."""
    jobs: JobRunner
    alerts: Alerts
    attached: AttachedFunctions
    """Functions on topics."""
    deliveries: Deliveries
    """Firehose's delivery streams."""
    rates: Rates
    board: Board
    """What other processes say of the collectors they run."""
    counts: Counts
    dead_letters: DeadLetterIndex
    redriver: Redriver
    answers: BodyBudget
    """The same for large answers on their way out."""
    queues: Queues
    requests: Requests
    members: Members
    """Consumers of groups that are reached over HTTP."""
    query_workers: Executor
    """For pull queries alone, so that slow ones keep nobody from sending events."""
    stream_workers: Executor
    """For answers that are streamed: fewer than the store has readers, so that short queries always find one."""
    trust_workers: Executor
    """For what computes rows again, which may take long: explaining, checking and repairing keep no query waiting."""
    started: float
    """Monotonic."""
    problems: list[Problem] = field(default_factory=list)
    """What the project's pipelines and functions got wrong when they were last applied, for `/readyz`."""
    applying: list[str] = field(default_factory=list)
    """What of the project's own pipelines is not applied yet, for `/readyz`."""
    stopping: Stopping = field(default_factory=Stopping)
    """Set when the server is about to stop: feeds end."""
    waiting_queries: int = 0
    streams: int = 0
    """Answers that are being streamed."""
    waiting_explanations: int = 0
    history: History = field(init=False)
    subscribers: Subscribers = field(init=False)
    connections: Connections | None = None
    """Those on the server's port, once it listens."""
    resetting: threading.Lock = field(default_factory=threading.Lock)
    """Held by whoever tells of a collector that was reset: all are told of in one file."""
    bell: Bell = field(default_factory=Bell)
    """Rung by queue when a message was settled."""

    def __post_init__(self) -> None:
        self.history = History(self.clock)
        self.subscribers = Subscribers(self.project.settings.server, self.metrics, lambda: self.auth.key_count)

    async def run_query(
        self, what: str, function: Callable[..., T], *arguments: object, seconds: float | None = None
    ) -> T:
        """Run a pull query in a thread; `what` names it in the log. `Overloaded` when too many wait already: an answer
        that comes too late is none. `DeadlineExceeded` if it does not end."""
        most = self.project.settings.server.query_seconds if seconds is None else seconds
        return await self._run_query(partial(self.delivery.watchdog.call, what, most, function, *arguments))

    async def run_search(self, what: str, function: Callable[..., T], *arguments: object) -> T:
        """Run a search through a topic in a thread, as long as `SEARCH_SECONDS`."""
        return await self.run(self.delivery.watchdog.call, what, SEARCH_SECONDS, function, *arguments)

    async def _run_query(self, function: Callable[[], T]) -> T:
        if self.waiting_queries >= MAX_WAITING_QUERIES:
            raise Overloaded(f"{MAX_WAITING_QUERIES} queries are waiting already", retry_after=1.0)
        self.waiting_queries += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.query_workers, function)
        finally:
            self.waiting_queries -= 1

    async def run_explanation(self, function: Callable[..., T], *arguments: object) -> T:
        """The same for what computes rows again."""
        if self.waiting_explanations >= MAX_WAITING_EXPLANATIONS:
            raise Overloaded(f"{MAX_WAITING_EXPLANATIONS} are waiting to have rows computed again", retry_after=5.0)
        self.waiting_explanations += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.trust_workers, function, *arguments)
        finally:
            self.waiting_explanations -= 1
