"""A project's parts put together: log, catalog, views and what serves them. Closed in the opposite order."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

from headrace.access.files import make_private_folder
from headrace.access.owner import make_owner_key
from headrace.clock import Clock
from headrace.collect.base import Outcome
from headrace.collect.decode import EventCollector, then
from headrace.collect.gates import Gates, received
from headrace.collect.http.bodies import BodyBudget
from headrace.collect.redrive import Redriver
from headrace.collect.spool.spool import open_spool
from headrace.collect.status import COLLECTORS_REPORT_FILE, COLLECTORS_STATUS, Board
from headrace.collect.tickets.records import Wanted
from headrace.collect.tickets.tickets import Tickets
from headrace.config import Project
from headrace.coordinate.again import Reruns
from headrace.coordinate.attached import AttachedFunctions
from headrace.coordinate.care import ViewCare
from headrace.coordinate.care_jobs import CareJobs
from headrace.coordinate.catalog import Catalog, create_internal_topics
from headrace.coordinate.catalog_file import FILE, CatalogFile
from headrace.coordinate.deployer import Deployer, Surroundings
from headrace.coordinate.deployments import Deployments
from headrace.coordinate.differences import Differences
from headrace.coordinate.firehose.manager import Deliveries
from headrace.coordinate.job_runner import JobRunner
from headrace.coordinate.layers import merging_of
from headrace.coordinate.moments import Moments
from headrace.coordinate.needed import needed_offsets
from headrace.coordinate.project import apply_project
from headrace.coordinate.publishing import Publisher
from headrace.coordinate.reports import REPORT_FILE, ReportReader
from headrace.coordinate.statements import StatementExecutor
from headrace.coordinate.status import ENGINE_STATUS, EngineStatus
from headrace.coordinate.watching import Watching
from headrace.deliver.alerts.alerts import Alerts
from headrace.deliver.base import Delivery
from headrace.functions.compiled import Limits
from headrace.functions.host import FunctionHost
from headrace.functions.letters import tell_failure
from headrace.log.base import Log
from headrace.log.dead_letters import bury_spent
from headrace.log.local.open import LocalLog
from headrace.log.open import open_log
from headrace.log.queues import Queues, Requests
from headrace.log.registry.registry import Registry
from headrace.log.registry.schemas import RegistrySchemas
from headrace.server.audit import Audit
from headrace.server.auth import Auth
from headrace.server.care_jobs import work_of
from headrace.server.consumers import Members
from headrace.server.counts import COUNTS_FILE, Counts
from headrace.server.dead_letters import DeadLetterIndex
from headrace.server.metrics import Metrics
from headrace.server.rates import Rates, counted
from headrace.server.records import MAX_PAGE_BYTES
from headrace.server.services import Services
from headrace.sql.source import Source
from headrace.store.follow import Followers
from headrace.store.revisions import Revisions
from headrace.store.sqlite import SqliteStore
from headrace.watchdog import Watchdog

WORKERS = 8
EXPLAINERS = 2
PIPELINES = "the pipelines"

logger = logging.getLogger("headrace.server")


def open_own_log(project: Project, clock: Clock) -> Log:
    """The local log as its owner; one elsewhere belongs to nobody."""
    settings = project.settings.log
    return LocalLog(project.log_folder, settings, clock) if settings.backend == "local" else open_log(project, clock)


@contextmanager
def open_services(project: Project, clock: Clock) -> Iterator[Services]:
    """Everything the routes need, with this process as the local log's owner."""
    settings = project.settings
    with ExitStack() as closing:
        make_private_folder(project.data)
        auth = Auth(project, make_owner_key(project), clock)
        closing.callback(auth.close)
        log = open_own_log(project, clock)
        closing.callback(log.close)
        create_internal_topics(log)
        registry = Registry(log)
        log.schemas = RegistrySchemas(registry)
        limits = Limits(settings.functions.seconds, settings.functions.memory_mb * 1024 * 1024)
        host = FunctionHost(limits, lambda failure: tell_failure(log, failure))
        closing.callback(host.close)
        file = CatalogFile(project.data / FILE, keeps=True)
        catalog, engine = Catalog(log, host, file), EngineStatus(clock)
        statements = StatementExecutor(log, catalog, clock, settings, engine, host.describe)
        statements.recover()
        board = Board(clock)
        if isinstance(log, LocalLog):
            log.register_call(ENGINE_STATUS, engine.receive)
            log.register_call(COLLECTORS_STATUS, board.receive)
            log.hold(partial(needed_offsets, log, catalog))
        else:
            closing.callback(ReportReader(project.data / REPORT_FILE, engine.receive).close)
            closing.callback(ReportReader(project.data / COLLECTORS_REPORT_FILE, board.receive).close)
        store = SqliteStore(project.views_folder, settings.store.readers)
        closing.callback(store.close)
        followers = Followers(log, store, clock)
        closing.callback(followers.close)
        scratch = project.data / "scratch"
        moments = Moments(log, catalog, Revisions(log))
        watchdog = closing.enter_context(Watchdog())
        delivery = Delivery(
            log,
            followers,
            lambda source: serves(catalog, source),
            catalog.history,
            scratch,
            clock,
            moments,
            watchdog,
            settings.server.query_seconds,
        )
        closing.callback(delivery.close)
        requests = Requests(log)
        closing.callback(requests.close)
        members = Members(log, clock)
        closing.callback(members.close)
        workers = ThreadPoolExecutor(WORKERS, "headrace-worker")
        closing.callback(workers.shutdown)
        query_workers = ThreadPoolExecutor(settings.store.readers, "headrace-query")
        closing.callback(query_workers.shutdown)
        stream_workers = ThreadPoolExecutor(max(1, settings.store.readers // 2), "headrace-stream")
        closing.callback(stream_workers.shutdown)
        trust_workers = ThreadPoolExecutor(EXPLAINERS, "headrace-trust")
        closing.callback(trust_workers.shutdown)

        topics: dict[str, str] = {}

        def follow_views() -> None:
            follow_catalog(catalog, followers)
            now = {source.name: source.topic for source in catalog.state.sources.values()}
            moved = [topic for name, topic in topics.items() if now.get(name) != topic]
            topics.clear()
            topics.update(now)
            delivery.tails.wake(moved)

        follow_views()
        catalog.on_change(follow_views)
        care = ViewCare(log, catalog, followers.version, clock, settings.views)
        closing.callback(care.close)
        care_workers = ThreadPoolExecutor(EXPLAINERS, "headrace-care-job")
        closing.callback(care_workers.shutdown)
        care_jobs = CareJobs(project.data, clock, care_workers.submit, partial(work_of, care, catalog))
        closing.callback(care_jobs.close)
        attached = AttachedFunctions(log, clock, lambda: catalog.state.function_files, limits)
        closing.callback(attached.close)
        catalog.on_change(attached.wake)
        buckets = project.data / settings.kinesis.buckets
        deliveries = Deliveries(log, clock, project.data, buckets, attached.find, limits)
        closing.callback(deliveries.close)
        if isinstance(log, LocalLog):
            log.hold(partial(needed_offsets, log, catalog, beside=deliveries.needed))
        reruns = Reruns(log, clock, attached.find, deliveries, limits)
        jobs = JobRunner(project, log, clock)
        closing.callback(jobs.close)
        deployments = Deployments(statements, log, catalog, clock)
        statements.rebuild = deployments.replace
        keep_ms = int(settings.views.keep_hours * 3_600_000)
        around = Surroundings(log, catalog, engine, followers, clock, scratch, keep_ms)
        deployer = Deployer(deployments, around)
        closing.callback(deployer.close)
        differences = Differences(around, deployments, trust_workers.submit)
        closing.callback(differences.close)
        deployer.swept["differences"] = differences.sweep
        deployer.swept["transient queries"] = statements.drop_left
        deployer.start()
        publisher = Publisher(log, catalog, statements, deployments, followers, engine, scratch)
        closing.callback(publisher.close)
        if isinstance(log, LocalLog):
            log.hold(
                partial(needed_offsets, log, catalog, beside=lambda topic: needed_beside(topic, deliveries, publisher))
            )
        publisher.start()
        # The local log is this process: there is nothing between it and us that could be away.
        spool = None if isinstance(log, LocalLog) else open_spool(project, log)
        collector = EventCollector(log if spool is None else spool, clock, settings.collect)
        gates = Gates(project, collector, clock)
        if spool is not None:
            closing.callback(spool.close)
            spool.on_change = gates.wait_for
        counts = Counts(project.data / COUNTS_FILE, gates, board)
        closing.callback(counts.write)
        metrics = Metrics()
        tickets = open_tickets(project, log, clock, gates, metrics)
        closing.callback(tickets.close)
        letters = DeadLetterIndex(log)
        watching = Watching(log, catalog, clock, engine, care, jobs, letters.counts)
        alerts = Alerts(project, log, clock, collector, callback_secret(project), watching.measures())
        closing.callback(alerts.close)
        yield Services(
            project=project,
            clock=clock,
            log=log,
            registry=registry,
            catalog=catalog,
            statements=statements,
            deployments=deployments,
            publisher=publisher,
            differences=differences,
            engine=engine,
            followers=followers,
            delivery=delivery,
            care=care,
            care_jobs=care_jobs,
            jobs=jobs,
            alerts=alerts,
            attached=attached,
            deliveries=deliveries,
            collector=collector,
            gates=gates,
            tickets=tickets,
            auth=auth,
            audit=Audit(log, workers.submit, clock),
            metrics=metrics,
            rates=Rates(log, clock, lambda: counts_of(gates, board, attached, deliveries)),
            board=board,
            counts=counts,
            dead_letters=letters,
            redriver=Redriver(log, clock, settings.collect, gates.again, reruns.begin),
            budget=BodyBudget(max(settings.log.max_pending_bytes, settings.server.max_body_bytes)),
            answers=BodyBudget(max(settings.log.max_pending_bytes, 4 * MAX_PAGE_BYTES)),
            queues=Queues(log, clock, bury_spent),
            requests=requests,
            members=members,
            workers=workers,
            query_workers=query_workers,
            stream_workers=stream_workers,
            trust_workers=trust_workers,
            started=clock.monotonic(),
            applying=[PIPELINES],
        )


def needed_beside(topic: str, deliveries: Deliveries, publisher: Publisher) -> dict[int, int]:
    """By partition: what delivery streams and the publisher have yet to read of a topic."""
    found = dict(deliveries.needed(topic))
    for number, offset in publisher.needed(topic).items():
        found[number] = min(offset, found.get(number, offset))
    return found


def counts_of(gates: Gates, board: Board, attached: AttachedFunctions, deliveries: Deliveries) -> dict[str, int]:
    """How far everything is that has a rate."""
    found = {counted("collector", name): count for name, count in received(gates, board).items()}
    found |= {counted("function", one.name): one.records for one in attached.statuses()}
    return found | {counted("delivery", one.name): one.records for one in deliveries.statuses()}


def open_tickets(project: Project, log: Log, clock: Clock, gates: Gates, metrics: Metrics) -> Tickets:
    """What a ticket's events go through is what they would have gone through at once."""
    settings = project.settings

    def work(wanted: Wanted, body: bytes) -> Future[Outcome]:
        events = wanted.read(body, settings.server.max_body_bytes)

        def count(outcome: Outcome) -> Outcome:
            metrics.collected(events.topic, outcome)
            return outcome

        return then(gates.collect(events, wanted.arrived), count)

    return Tickets(log, work, clock, settings.collect, callback_secret(project))


def callback_secret(project: Project) -> bytes | None:
    """What is posted to others is signed with it."""
    return os.environ.get(project.settings.collect.callback_secret_env, "").encode() or None


def follow_catalog(catalog: Catalog, followers: Followers) -> None:
    """Serve what the catalog says, and fill what it has beside."""
    catalog = catalog.still()
    layers, unready = merging_of(catalog)
    beside = [
        (version.number, version.source)
        for version in catalog.beside()
        if version.source.kind == "table" and (version.name, version.number) not in unready
    ]
    views = catalog.views()
    unreadable = {view.name for view in views if (view.name, view.version) in unready}
    followers.sync(views, lambda name: None if name in unreadable else catalog.source(name), beside, layers)


def serves(catalog: Catalog, source: Source) -> bool:
    """Not if another version does. What was dropped is told from its topic."""
    now = catalog.source(source.name)
    return now is None or now.topic == source.topic


def apply_pipelines(services: Services) -> None:
    """Bring the project's pipelines into the catalog. What a file gets wrong is said, and keeps nothing else from
    running."""
    try:
        for applied in apply_project(services.statements, services.project):
            for result in applied.created:
                logger.info("%s: %s", applied.file, result.message)
            for problem in applied.problems:
                logger.warning("%s", problem)
                services.problems.append(problem)
    finally:
        services.applying.remove(PIPELINES)
