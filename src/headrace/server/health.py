"""Is it alive, is it ready, how is it doing."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from headrace.clock import Clock, GuardedClock
from headrace.server.endpoint import TEXT, Endpoint
from headrace.server.errors import json_response
from headrace.server.models.overview import Health, Ready
from headrace.server.services import Intake, Services


async def healthz(request: Request, services: Intake) -> Response:
    return json_response(Health("ok"))


async def readyz(request: Request, services: Services) -> Response:
    # Kafka may take its time to answer, or not to.
    alive = services.project.settings.log.backend == "local" or await services.run(services.log.owner_alive)
    kafka = services.project.settings.log.kafka.bootstrap
    waiting = ([] if alive else [f"Kafka at {kafka}"]) + waiting_for(services)
    failed = failed_statements(services)
    changed = [str(problem) for problem in services.problems if problem.kind == "changed"]
    damage = await services.run(damage_texts, services)
    problems = [*failed, *changed, *map(str, services.gates.problems), *clock_problems(services.clock), *damage]
    problems += services.publisher.problems()
    return json_response(Ready(waiting, problems, failed), 503 if waiting or failed else 200)


def damage_texts(services: Services) -> list[str]:
    """Say which records cannot be read, and what to do."""
    return [
        f"{damage.message}: they cannot be read; `headrace log repair` sets them aside, so that everything else goes on"
        for damage in services.log.known_damage()
    ]


def failed_statements(services: Services) -> list[str]:
    """What the project's files say and the catalog does not have. Whatever has been created since, by a statement or a
    deployment, is not listed any more."""
    return [
        str(problem)
        for problem in services.problems
        if problem.kind == "error" and not (problem.name and services.catalog.source(problem.name))
    ]


def clock_problems(clock: Clock) -> list[str]:
    """Return what is wrong with the machine's clock, if anything."""
    jump = clock.jump() if isinstance(clock, GuardedClock) else None
    if jump is None:
        return []
    return [
        f"the machine's clock jumped {jump}: event times go on without the jump — set the clock right; one that stays "
        "is followed after `[server] clock_trust_seconds`"
    ]


def waiting_for(services: Services) -> list[str]:
    """What keeps the system from being ready, in words."""
    if services.stopping.is_set():
        return ["nothing: it is stopping"]
    waiting = list(services.applying)
    engine = services.engine.state()["state"]
    if engine != "running":
        return [*waiting, "the engine" if engine == "gone" else f"the engine ({engine})"]
    for query in services.catalog.queries():
        status = services.engine.status(query.id)
        if query.transient or query.wanted != "running" or (status and status.state == "running"):
            continue
        waiting.append(f"query `{query.id}` ({status.state if status else 'not started'})")
    return waiting


async def metrics(request: Request, services: Intake) -> Response:
    text = await services.run(services.metrics.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/healthz",
        handler=healthz,
        summary="Does the process live?",
        role=None,
        answers={200: Health},
    ),
    Endpoint(
        method="GET",
        path="/readyz",
        handler=readyz,
        summary="Is the log open, is every statement of the files created, and do all wanted queries run?",
        answers={200: Ready, 503: Ready},
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        handler=metrics,
        summary="Prometheus metrics",
        answers={200: (TEXT,)},
    ),
)
