"""What ksqlDB's clients ask about the server itself."""

from __future__ import annotations

from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import NotFound
from headrace.server.errors import json_response
from headrace.server.ksql.statements import command_status
from headrace.server.services import Services

SPOKEN = "7.9.0"
"""Clients compare this with what they know; it is the version of ksqlDB whose API this is."""


async def info(request: Request, services: Services) -> Response:
    about = {
        "version": f"{SPOKEN}-headrace-{version('headrace')}",
        "kafkaClusterId": "headrace",
        "ksqlServiceId": "default_",
        "serverStatus": "RUNNING",
    }
    return json_response({"KsqlServerInfo": about})


async def healthcheck(request: Request, services: Services) -> Response:
    parts = {
        "metastore": True,
        "kafka": services.log.owner_alive(),
        "commandRunner": not services.applying,
        "engine": services.engine.state()["state"] == "running",
    }
    healthy = all(parts.values())
    body = {"isHealthy": healthy, "details": {name: {"isHealthy": good} for name, good in parts.items()}}
    return json_response(body)


async def cluster_status(request: Request, services: Services) -> Response:
    now = services.clock.now_ms()
    nothing: dict[str, list[str]] = {"activeStores": [], "activePartitions": []}
    queries = {query.id: nothing for query in services.catalog.queries()}
    host = {
        "hostAlive": True,
        "lastStatusUpdateMs": now,
        "activeStandbyPerQuery": queries,
        "hostStoreLags": {"stateStoreLags": {}, "updateTimeMs": now},
    }
    return json_response({"clusterStatus": {request.headers.get("host", "localhost"): host}})


async def all_statuses(request: Request, services: Services) -> Response:
    names = [f"{source.kind}/{source.name}/create" for source in services.catalog.sources()]
    return json_response({"commandStatuses": dict.fromkeys(names, "SUCCESS")})


async def one_status(request: Request, services: Services) -> Response:
    command = request.path_params["command"]
    found = command_status(services, command)
    if found is None:
        raise NotFound(f"no command `{command}`", hint="GET /status lists all")
    return json_response(found)


async def is_valid_property(request: Request, services: Services) -> Response:
    """Those that `streamsProperties` takes: Spark has no use for Kafka Streams' own."""
    name = request.path_params["property"].lower().removeprefix("ksql.").removeprefix("streams.")
    return json_response(name == "auto.offset.reset")
