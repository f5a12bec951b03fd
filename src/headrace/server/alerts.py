"""The project's alerts: how they are, who was told, and a test of that."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from headrace.deliver.alerts.alerts import AlertStatus, DestinationStatus
from headrace.deliver.alerts.definitions import WATCHES
from headrace.deliver.alerts.state import Instance
from headrace.server.endpoint import Endpoint
from headrace.server.errors import json_response
from headrace.server.models.alerts import (
    AlertDestination,
    AlertModel,
    AlertProblem,
    AlertsAnswer,
    AlertSubject,
    AlertTrial,
    AlertTrials,
    WatchModel,
)
from headrace.server.services import Services


async def list_alerts(request: Request, services: Services) -> Response:
    def run() -> AlertsAnswer:
        found = [alert_model(status) for status in services.alerts.statuses()]
        problems = [AlertProblem(one.file, one.line, one.message, one.hint) for one in services.alerts.problems]
        return AlertsAnswer(found, problems, [WatchModel(one.name, one.of, one.summary) for one in WATCHES.values()])

    return json_response(await services.run(run))


async def show_alert(request: Request, services: Services) -> Response:
    status = await services.run(services.alerts.status, request.path_params["alert"])
    return json_response(alert_model(status))


async def try_alert(request: Request, services: Services) -> Response:
    told = await services.run(services.alerts.test, request.path_params["alert"])
    return json_response(AlertTrials([AlertTrial(place.shown, error) for place, error in told]))


def alert_model(status: AlertStatus) -> AlertModel:
    definition = status.definition
    worst = next((one for one in status.instances if one.state == status.state), None)
    return AlertModel(
        name=definition.name,
        file=definition.where,
        watch=definition.watch.name,
        about=definition.about,
        rule=definition.rule,
        description=definition.settings.description,
        state=status.state,
        since_ms=(worst.since_ms or None) if worst else None,
        subjects=[_subject(one, status) for one in status.instances],
        destinations=[_destination(one) for one in status.destinations],
        problem=status.problem,
    )


def _subject(instance: Instance, status: AlertStatus) -> AlertSubject:
    value = status.values.get(instance.subject)
    since = instance.since_ms or None
    return AlertSubject(instance.subject, instance.state, since, value, instance.detail, instance.fired)


def _destination(status: DestinationStatus) -> AlertDestination:
    last = status.last
    error = status.error or (last.error if last else None)
    return AlertDestination(
        status.place.shown, status.waiting, last.at_ms if last else None, last.attempts if last else 0, error
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/alerts",
        handler=list_alerts,
        summary="The project's alerts: which fire, since when, and who was told",
        answers={200: AlertsAnswer},
    ),
    Endpoint(
        method="GET",
        path="/v1/alerts/{alert}",
        handler=show_alert,
        summary="One alert, its subjects, and how telling each of its destinations went",
        answers={200: AlertModel},
    ),
    Endpoint(
        method="POST",
        path="/v1/alerts/{alert}/test",
        handler=try_alert,
        summary="Tell an alert's destinations, once and at once, that this is a test",
        role="admin",
        answers={200: AlertTrials},
    ),
)
