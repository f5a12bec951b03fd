"""The project's collectors: how they are doing, and a test event through one of them."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.collect.base import Outcome, Sent
from headrace.collect.definitions import Definition
from headrace.collect.gaps import privacy_gaps
from headrace.collect.gate import Arrival
from headrace.collect.gates import all_statuses
from headrace.collect.kinds import KINDS
from headrace.collect.reset import RESETS_FILE
from headrace.collect.reset import reset_collector as reset_cursor
from headrace.collect.rules.fitting import misfit_of
from headrace.collect.samples import example_text, trial_events
from headrace.collect.status import CollectorStatus, waiting_for_topic
from headrace.coordinate.reports import write_report
from headrace.errors import Conflict, NotFound, UsageError
from headrace.log.base import Topic
from headrace.secrecy import shown_settings
from headrace.server.endpoint import Endpoint
from headrace.server.errors import json_response
from headrace.server.models.collect import (
    CollectorDetail,
    CollectorModel,
    Collectors,
    KindModel,
    ResetAnswer,
    ResetWanted,
    TrialAnswer,
    TrialEvent,
)
from headrace.server.models.events import Rejected
from headrace.server.parameters import body_of
from headrace.server.services import Services
from headrace.toml_files import Problem


async def list_collectors(request: Request, services: Services) -> Response:
    def run() -> Collectors:
        kinds = [KindModel(kind.name, kind.where, kind.summary, kind.page) for kind in KINDS.values()]
        found = _statuses(services).values()
        return Collectors([CollectorModel(**_fields(status, services)) for status in found], kinds)

    return json_response(await services.run(run))


async def show_collector(request: Request, services: Services) -> Response:
    name, url = request.path_params["collector"], str(request.base_url).rstrip("/")
    return json_response(await services.run(_detail, name, url, services))


def _statuses(services: Services) -> dict[str, CollectorStatus]:
    """Of the files as they are now: who has just written one, and asks, need not wait until somebody looks."""
    services.gates.look()
    return all_statuses(services.gates, services.board)


def _detail(name: str, url: str, services: Services) -> CollectorDetail:
    status = _statuses(services).get(name)
    if status is None:
        raise NotFound(f"collector `{name}` does not exist", hint="GET /v1/collectors lists those that do")
    definition = _definition(name, services)
    extra: dict[str, Any] = {"settings": {}, "example": "", "sample": None, "page": "", "warnings": []}
    if definition is not None:
        topic = _topic(definition, services)
        sample = trial_events(definition, topic).events
        extra = {
            "settings": shown_settings(definition.settings),
            "example": example_text(definition, url, topic),
            "sample": sample[0] if sample else None,
            "page": definition.kind.page,
            "warnings": privacy_gaps(definition, [gate.definition for gate in services.gates.all()]),
        }
    return CollectorDetail(**_fields(status, services), **extra)


async def try_collector(request: Request, services: Services) -> Response:
    """A test event goes the way of all events: through the rules into the topic."""
    wanted = await body_of(request, services, TrialEvent)
    name = request.path_params["collector"]
    if any(one.name == name for one in services.gates.disabled):
        raise Conflict(f"collector `{name}` is disabled", hint="`enabled = true` in its file starts it")
    gate = services.gates.named(name)
    if not gate.topic:
        raise UsageError(
            f"collector `{name}` has no topic of its own", hint=f"{gate.definition.where} says where it writes"
        )

    def take() -> tuple[Sent, Future[Outcome]]:
        sent = trial_events(gate.definition, _topic(gate.definition, services), wanted.event)
        return sent, gate.take(sent, Arrival(address="127.0.0.1", user_agent="headrace test"))

    sent, future = await services.run(take)
    outcome = await asyncio.wrap_future(future)
    partition, offset = (outcome.positions[0][0], outcome.positions[0][1]) if outcome.positions else (None, None)
    return json_response(
        TrialAnswer(
            outcome=_became(outcome),
            event=sent.events[0],
            topic=gate.topic,
            partition=partition,
            offset=offset,
            rejected=[Rejected(each.index, each.reason, each.dead_letter) for each in outcome.rejected],
        )
    )


async def reset_collector(request: Request, services: Services) -> Response:
    """Its cursor is another one, also while it runs."""
    wanted = await body_of(request, services, ResetWanted)
    name = request.path_params["collector"]

    def run() -> ResetAnswer:
        definition = _definition(name, services)
        if definition is None:
            raise NotFound(f"collector `{name}` does not exist", hint="GET /v1/collectors lists those that do")
        cursor = reset_cursor(services.log, definition, wanted.to)
        with services.resetting:
            _start_again(services.project.data / RESETS_FILE, name)
        return ResetAnswer(name, wanted.to, cursor)

    return json_response(await services.run(run))


def _start_again(file: Path, name: str) -> None:
    """The process that runs it looks at this file."""
    try:
        known = msgspec.json.decode(file.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        known = {}
    write_report(file, known | {name: uuid.uuid4().hex})


def _became(outcome: Outcome) -> Literal["accepted", "duplicate", "rejected", "shed"]:
    if outcome.accepted:
        return "accepted"
    if outcome.rejected:
        return "rejected"
    return "duplicate" if outcome.duplicates else "shed"


def _fields(status: CollectorStatus, services: Services) -> dict[str, Any]:
    definition = _definition(status.name, services)
    problem = next((one for one in services.gates.problems if one.name == status.name), None)
    said = None if problem is None else str(problem)
    if definition is not None and definition.settings.topic and status.state == "running":
        settings, topic = definition.settings, _topic(definition, services)
        if topic is None:
            status = msgspec.structs.replace(status, state="waiting", detail=waiting_for_topic(settings.topic))
        elif said is None:
            misfit = misfit_of(settings.enrich, settings.validate, settings.privacy, topic)
            said = None if misfit is None else f"{definition.where}: {misfit}"
    return msgspec.structs.asdict(status) | {
        "type": definition.kind.name if definition else "",
        "where": definition.kind.where if definition else None,
        "topic": definition.settings.topic if definition else "",
        "file": definition.where if definition else _file(problem),
        "problem": said,
        "rate": services.rates.of("collector", status.name),
    }


def _file(problem: Problem | None) -> str:
    return problem.file if problem else ""


def _definition(name: str, services: Services) -> Definition | None:
    running = (gate.definition for gate in services.gates.all())
    return next((one for one in (*running, *services.gates.disabled) if one.name == name), None)


def _topic(definition: Definition, services: Services) -> Topic | None:
    try:
        return services.log.topic(definition.settings.topic)
    except NotFound:
        return None


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/collectors",
        handler=list_collectors,
        summary="The project's collectors with their states and counts, and the types there are",
        answers={200: Collectors},
    ),
    Endpoint(
        method="GET",
        path="/v1/collectors/{collector}",
        handler=show_collector,
        summary="One collector, its settings, and what to send to it",
        answers={200: CollectorDetail},
    ),
    Endpoint(
        method="POST",
        path="/v1/collectors/{collector}/test",
        handler=try_collector,
        summary="Send a test event through a collector's rules into its topic",
        role="write",
        body=TrialEvent,
        answers={200: TrialAnswer},
    ),
    Endpoint(
        method="POST",
        path="/v1/collectors/{collector}/reset",
        handler=reset_collector,
        summary="Let a collector that pulls begin elsewhere, also while it runs",
        role="admin",
        body=ResetWanted,
        answers={200: ResetAnswer},
    ),
)
