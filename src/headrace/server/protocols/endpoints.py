"""The paths that clients of these protocols know, and one for each collector by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from headrace.collect.trackers import segment
from headrace.errors import UsageError
from headrace.server.endpoint import Endpoint, Handler
from headrace.server.protocols.asking import Protocol, preflight, serve
from headrace.server.protocols.others import CLOUDEVENTS, DEBEZIUM, OTLP, PROMETHEUS, WEBHOOK, WEBLOG
from headrace.server.protocols.trackers import GOOGLE, POSTHOG, SEGMENT, SNOWPLOW
from headrace.server.services import Intake

PROTOCOLS = {
    protocol.kind: protocol
    for protocol in (
        SEGMENT,
        SNOWPLOW,
        POSTHOG,
        GOOGLE,
        CLOUDEVENTS,
        OTLP,
        PROMETHEUS,
        WEBHOOK,
        DEBEZIUM,
        WEBLOG,
    )
}
ANY = "*/*"
PREFIX = "/v1/collect/"
Method = Literal["GET", "POST", "OPTIONS"]


def _handler(protocol: Protocol) -> Handler:
    async def take(request: Request, services: Intake) -> Response:
        return await serve(request, services, protocol, None, request.url.path.lstrip("/"))

    return take


def _preflight(kind: str | None) -> Handler:
    async def ask(request: Request, services: Intake) -> Response:
        return await preflight(request, services, kind)

    return ask


async def take_named(request: Request, services: Intake) -> Response:
    """Whatever the collector of that name speaks; the path behind its name is the protocol's own."""
    name = request.path_params["collector"]
    gate = services.gates.named(name)
    protocol = PROTOCOLS.get(gate.definition.kind.name)
    if protocol is None:
        raise UsageError(
            f"collector `{name}` is of type `{gate.definition.kind.name}`, which does not come this way",
            hint=f"for plain events:  POST /v1/topics/{gate.topic}/events",
        )
    return await serve(request, services, protocol, name, request.path_params.get("path", ""))


def _endpoints(protocol: Protocol, summary: str, paths: Iterable[str], *methods: Method) -> Iterator[Endpoint]:
    for path in paths:
        for method in (*methods, *(("OPTIONS",) if protocol.pages else ())):
            handler = _preflight(protocol.kind) if method == "OPTIONS" else _handler(protocol)
            yield _endpoint(method, path, handler, summary, protocol.kind)


def _endpoint(method: Method, path: str, handler: Handler, summary: str, kind: str) -> Endpoint:
    name = re.sub(r"\W+", "_", f"{kind} {method.lower()} {path}").strip("_")
    return Endpoint(
        method=method,
        path=path,
        handler=handler,
        summary="May a page send here?" if method == "OPTIONS" else summary,
        role=None if method == "OPTIONS" else "write",
        checks="collector",
        body=(ANY,) if method == "POST" else None,
        answers={204: None} if method == "OPTIONS" else {200: (ANY,), 204: None, 422: (ANY,)},
        operation=name + ("_" if path.endswith("/") else ""),
    )


_SEGMENT = (*segment.BATCHES, *segment.TYPES, "m")
_POSTHOG = ("batch", "capture", "e", "track", "i/v0/e")

ENDPOINTS = (
    *_endpoints(SEGMENT, "Segment: messages of a tracker", (f"/v1/{call}" for call in _SEGMENT), "POST"),
    *_endpoints(SEGMENT, "Segment: what a page's client loads", ("/v1/projects/{key}/settings",), "GET"),
    *_endpoints(SNOWPLOW, "Snowplow: events of a tracker", ("/com.snowplowanalytics.snowplow/tp2",), "POST"),
    *_endpoints(SNOWPLOW, "Snowplow: an event as a pixel's parameters", ("/i",), "GET"),
    *_endpoints(POSTHOG, "PostHog: events", (f"/{call}{end}" for call in _POSTHOG for end in ("", "/")), "POST", "GET"),
    *_endpoints(POSTHOG, "PostHog: features, of which there are none", ("/decide/", "/flags/", "/flags"), "POST"),
    *_endpoints(POSTHOG, "PostHog: what a page's client loads", ("/array/{key}/config",), "GET"),
    *_endpoints(GOOGLE, "Measurement Protocol: events", ("/mp/collect",), "POST"),
    *_endpoints(GOOGLE, "Measurement Protocol: what is wrong with events", ("/debug/mp/collect",), "POST"),
    *_endpoints(CLOUDEVENTS, "CloudEvents: binary, structured or batched", ("/v1/cloudevents",), "POST"),
    *_endpoints(OTLP, "OpenTelemetry: logs", ("/v1/logs",), "POST"),
    *_endpoints(OTLP, "OpenTelemetry: not taken", ("/v1/traces", "/v1/metrics"), "POST"),
    *_endpoints(PROMETHEUS, "Prometheus: remote write", ("/api/v1/write",), "POST"),
    *(
        _endpoint(
            method,
            path,
            _preflight(None) if method == "OPTIONS" else take_named,
            "Send to a collector by its name, in its protocol",
            "collect",
        )
        for path in (PREFIX + "{collector}", PREFIX + "{collector}/{path:path}")
        for method in ("POST", "GET", "OPTIONS")
    ),
)
