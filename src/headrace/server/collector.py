"""`python -m headrace.server.collector --project DIR --port N`: a process that takes events in, and nothing else.

Several share one port; the kernel spreads connections over them. They decode, and hand batches to the log's owner,
which is then busy with writing only. An event is acknowledged when the owner has acknowledged it, so a collector
that is killed loses nothing that anybody was told is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.access.files import keep_private
from headrace.access.owner import make_owner_key
from headrace.clock import Clock, GuardedClock
from headrace.collect.decode import EventCollector
from headrace.collect.gates import Gates, report_statuses
from headrace.collect.http.bodies import BodyBudget
from headrace.collect.spool.spool import open_spool
from headrace.config import Project, load_project
from headrace.coordinate.heartbeat import Heartbeat
from headrace.coordinate.supervisor import EXIT_HOPELESS, check_binding
from headrace.errors import ConfigError, HeadraceError, NotFound, NotRunning, Refused
from headrace.lean import collect_seldom, switch_often, without_pandas
from headrace.log.local.gathering_client import GatheringClient
from headrace.log.registry.registry import Registry
from headrace.log.registry.schemas import RegistrySchemas
from headrace.logs import start_logging
from headrace.server import events, health, kinesis, visits
from headrace.server.audit import Audit
from headrace.server.auth import Auth
from headrace.server.connections import Connections
from headrace.server.endpoint import routes_of
from headrace.server.errors import error_response, http_exception, unexpected
from headrace.server.http import http_server
from headrace.server.metrics import Metrics
from headrace.server.protocols import endpoints as protocols
from headrace.server.services import Intake, Services
from headrace.server.signals import stop_on_signals

WORKERS = 4
OWNER_S = 60.0
"""How long to wait for the owner at the start."""
REQUESTS_END_S = 5.0

ENDPOINTS = (
    *events.ENDPOINTS,
    *visits.ENDPOINTS,
    *protocols.ENDPOINTS,
    *kinesis.COLLECTING,
    *(one for one in health.ENDPOINTS if one.path == "/healthz"),
)

logger = logging.getLogger("headrace.collector")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="headrace.server.collector", description="Takes events in for a project.")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
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
        return asyncio.run(run(project, options.port, heartbeat))
    except HeadraceError as error:
        print(error, file=sys.stderr)
        return EXIT_HOPELESS if isinstance(error, ConfigError | Refused) else 1


async def run(project: Project, port: int, heartbeat: Heartbeat) -> int:
    """Serve until a signal says stop."""
    stop = stop_on_signals()
    with open_intake(project, GuardedClock(project.settings.server.clock_trust_seconds)) as intake:
        heartbeat.probe_loop(asyncio.get_running_loop())
        # Every listener of granian's is open to sharing its port.
        server = http_server(create_app(intake), project, port)
        connections = Connections(port, project.settings.server)
        connections.start()
        serving = asyncio.create_task(server.serve())
        stopping = asyncio.create_task(stop.wait())
        reloading = asyncio.create_task(intake.gates.run())
        reading_keys = asyncio.create_task(intake.auth.run())
        assert isinstance(intake.log, GatheringClient)
        process = f"collector {os.getpid()}"
        reporting = asyncio.create_task(report_statuses(intake.gates, process, "http", call=intake.log.call))
        logger.info("taking events on port %d", port)
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        failed = serving.done()
        server.stop()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(REQUESTS_END_S):
                await serving
        stopping.cancel()
        reloading.cancel()
        reading_keys.cancel()
        reporting.cancel()
        connections.close()
        return 1 if failed else 0


@contextmanager
def open_intake(project: Project, clock: Clock) -> Iterator[Intake]:
    settings = project.settings
    if settings.log.backend != "local":
        raise ConfigError("collector processes are for the local log", hint="start more servers instead")
    with ExitStack() as closing:
        auth = Auth(project, make_owner_key(project), clock)
        closing.callback(auth.close)
        log = _connect(project)
        closing.callback(log.close)
        log.schemas = RegistrySchemas(Registry(log))
        workers = ThreadPoolExecutor(WORKERS, "headrace-worker")
        closing.callback(workers.shutdown)
        spool = open_spool(project, log)
        collector = EventCollector(log if spool is None else spool, clock, settings.collect)
        gates = Gates(project, collector, clock)
        if spool is not None:
            closing.callback(spool.close)
            spool.on_change = gates.wait_for
        yield Intake(
            project=project,
            clock=clock,
            log=log,
            collector=collector,
            gates=gates,
            auth=auth,
            audit=Audit(None, workers.submit, clock),
            metrics=Metrics(),
            budget=BodyBudget(max(settings.log.max_pending_bytes, settings.server.max_body_bytes)),
            workers=workers,
        )


def _connect(project: Project) -> GatheringClient:
    deadline = time.monotonic() + OWNER_S
    while True:
        try:
            return GatheringClient(project.log_folder)
        except NotRunning:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def create_app(intake: Intake) -> Starlette:
    # These endpoints' handlers ask for an `Intake` only, which mypy has checked where they are defined.
    routes = [route for endpoint in ENDPOINTS for route in routes_of(endpoint, cast(Services, intake))]
    app = Starlette(
        routes=[
            *routes,
            Route("/{path:path}", _elsewhere, methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]),
        ],
        exception_handlers={HTTPException: http_exception, Exception: unexpected},
    )
    # Nothing that is asked here deletes anything.
    app.state.kinesis = kinesis.open_account(intake, lambda topic: None)
    return app


async def _elsewhere(request: Request) -> Response:
    return error_response(
        NotFound(f"this port takes events only, not `{request.url.path}`", hint="use the server's own port")
    )


if __name__ == "__main__":
    sys.exit(main())
