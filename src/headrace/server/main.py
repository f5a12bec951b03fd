"""`python -m headrace.server.main --project DIR [--port N]`: the server process.

It owns the log, so log, followers and HTTP share one process, and end in a certain order: feeds are told, no new
requests are taken, those being answered are finished, then views, then the log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from granian.server.embed import Server
from starlette.types import ASGIApp

from headrace.access.files import keep_private
from headrace.access.tls import server_files
from headrace.clock import GuardedClock
from headrace.config import Project, load_project
from headrace.coordinate.heartbeat import Heartbeat
from headrace.coordinate.links import is_there
from headrace.coordinate.local import own_address
from headrace.coordinate.ports import choose_port
from headrace.coordinate.supervisor import EXIT_HOPELESS, check_binding
from headrace.errors import ConfigError, CorruptFrame, HeadraceError, Refused
from headrace.lean import collect_seldom, switch_often, without_pandas
from headrace.logs import start_logging
from headrace.server.app import create_app
from headrace.server.assemble import apply_pipelines, open_services
from headrace.server.connections import Connections
from headrace.server.http import http_server
from headrace.server.job_process import JobProcess
from headrace.server.services import Services
from headrace.server.signals import stop_on_signals
from headrace.server.topology import overview
from headrace.server.trust import look_at_care
from headrace.server.waiting import wait_until_there

SWEEP_S = 1.0
FEEDS_END_S, REQUESTS_END_S = 5.0, 5.0

logger = logging.getLogger("headrace.server")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="headrace.server.main", description="The server process of a project.")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--port", type=int, help="instead of the project's; 0 takes any free one")
    options = parser.parse_args(arguments)
    heartbeat = Heartbeat()
    without_pandas()
    collect_seldom()
    switch_often()
    keep_private()
    start_logging()
    try:
        project = load_project(options.project)
        check_binding(project)
        settings = project.settings.server
        port = choose_port(settings.host, settings.port if options.port is None else options.port)
        return asyncio.run(run(project, port, heartbeat))
    except HeadraceError as error:
        print(error, file=sys.stderr)
        # Trying again mends no settings and no damaged log; a port or a lock may become free.
        return EXIT_HOPELESS if isinstance(error, ConfigError | Refused | CorruptFrame) else 1


async def run(project: Project, port: int, heartbeat: Heartbeat) -> int:
    """Serve until a signal says stop."""
    stop = stop_on_signals()
    if project.settings.log.backend == "kafka" and not await _kafka_is_there(project, port, stop):
        return 0
    with open_services(project, GuardedClock(project.settings.server.clock_trust_seconds)) as services:
        heartbeat.probe_loop(asyncio.get_running_loop())
        return await serve(services, port, stop)


async def _kafka_is_there(project: Project, port: int, stop: asyncio.Event) -> bool:
    def start(app: ASGIApp) -> tuple[Awaitable[None], Callable[[], None]]:
        server = http_server(app, project, port)
        return server.serve(), server.stop

    name = f"Kafka at {project.settings.log.kafka.bootstrap}"
    return await wait_until_there(name, lambda: is_there(project), start, stop)


async def serve(services: Services, port: int, stop: asyncio.Event) -> int:
    """Until `stop`, or until HTTP fails: then 1, and the supervisor starts it anew."""
    host = services.project.settings.server.host
    tls = server_files(services.project) is not None
    services.delivery.watchdog.start(asyncio.get_running_loop())
    services.connections = Connections(port, services.project.settings.server)
    services.connections.start()
    server = http_server(create_app(services), services.project, port)
    serving = asyncio.create_task(server.serve())
    rates = asyncio.create_task(services.rates.run())
    remembering = asyncio.create_task(
        services.history.run(
            lambda: services.run(overview, services),
            lambda: services.run(look_at_care, services),
        )
    )
    sweeping = asyncio.create_task(_sweep(services))
    reloading = asyncio.create_task(services.gates.run())
    reading_keys = asyncio.create_task(services.auth.run())
    counting = asyncio.create_task(services.counts.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        scheme, shown = "https" if tls else "http", f"[{host}]" if ":" in host else host
        logger.info("listening on %s://%s:%d", scheme, shown, port)
        await services.run(apply_pipelines, services)
        services.attached.start()
        await services.run(services.care_jobs.resume)
        await services.run(services.deliveries.start)
        await services.run(services.jobs.start, JobProcess(services.project, own_address(host, port, tls)))
        services.alerts.start()
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        failed = serving.done()
        await _stop(services, server, serving)
        logger.info("stopped")
        return 1 if failed else 0
    finally:
        for task in (rates, remembering, sweeping, reloading, counting, reading_keys):
            task.cancel()
        stopping.cancel()
        services.connections.close()


async def _sweep(services: Services) -> None:
    """Dead letters are written even where nobody receives any more, and members who say nothing are sent away."""
    while True:
        await asyncio.sleep(SWEEP_S)
        try:
            await services.run(services.queues.sweep)
            for member in services.members.silent():
                await services.run(services.members.leave, member)
        except HeadraceError as error:
            logger.warning("queues and groups could not be swept: %s", error)
        except Exception:
            # Nobody would begin it again.
            logger.exception("queues and groups could not be swept")


async def _stop(services: Services, server: Server, serving: asyncio.Task[None]) -> None:
    services.stopping.set()
    deadline = services.clock.monotonic() + FEEDS_END_S
    while services.metrics.following() and services.clock.monotonic() < deadline:
        await asyncio.sleep(0.02)
    server.stop()
    with contextlib.suppress(TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(REQUESTS_END_S):
            await serving


if __name__ == "__main__":
    sys.exit(main())
