"""CloudEvents, OTLP, Prometheus, webhooks, changes of databases, web servers' logs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from headrace.collect import cloudevents, debezium, webhooks, weblogs
from headrace.collect.base import Outcome
from headrace.errors import DiskFull, HeadraceError, UnsupportedMedia
from headrace.server.errors import error_response, json_response
from headrace.server.events import answer_of
from headrace.server.protocols.asking import Asked, Protocol, Read, Take

# gRPC's codes of what HTTP says with a status.
_GRPC = {400: 3, 401: 16, 403: 7, 404: 5, 408: 4, 413: 8, 415: 3, 429: 8, 503: 14, 507: 14}


def read_cloudevents(asked: Asked) -> Read:
    gate = asked.gate()
    settings = gate.definition.settings_as(cloudevents.CloudEventsSettings)
    return asked.take(cloudevents.translate(asked.posted, settings.data), answer_of)


def read_otlp(asked: Asked) -> Read:
    from headrace.collect import otlp

    json = asked.posted.media_type == otlp.JSON
    signal = asked.posted.path.rpartition("/")[2]
    if signal in ("traces", "metrics"):
        asked.require_collector()
        raise UnsupportedMedia(
            f"Headrace takes OpenTelemetry's logs, not its {signal}", hint=f"switch the exporter of {signal} off"
        )

    def answer(outcome: Outcome) -> Response:
        reason = outcome.rejected[0].reason if outcome.rejected else ""
        body = otlp.answer(json, len(outcome.rejected), reason)
        return Response(body, media_type=otlp.JSON if json else otlp.PROTOBUF)

    return asked.take(otlp.translate(asked.posted), answer)


def otlp_error(error: Exception, request: Request) -> Response:
    """As exporters read it: they send again what they are told to, by 429 and 503, and nothing else."""
    from headrace.collect import otlp

    response = error_response(error)
    status = 503 if isinstance(error, DiskFull) else response.status_code
    json = request.headers.get("content-type", "").startswith(otlp.JSON)
    message = str(error) if isinstance(error, HeadraceError) else "something went wrong in the server"
    body = otlp.status(json, _GRPC.get(status, 13), message)
    headers = {name: value for name, value in response.headers.items() if name in ("retry-after", "connection")}
    return Response(body, status, headers, otlp.JSON if json else otlp.PROTOBUF)


def read_prometheus(asked: Asked) -> Read:
    from headrace.collect import prometheus

    events = prometheus.translate(asked.posted, asked.max_bytes)
    return asked.take(events, lambda outcome: Response(status_code=204))


def read_webhook(asked: Asked) -> Read:
    settings = asked.gate().definition.settings_as(webhooks.WebhookSettings)
    events = webhooks.translate(asked.posted, settings)
    if (word := webhooks.challenge(events, settings)) is not None:
        return Read(lambda outcome: json_response({"challenge": word}))
    return asked.take(events, _stored)


def read_debezium(asked: Asked) -> Read:
    gate = asked.gate()
    settings = gate.definition.settings_as(debezium.DebeziumSettings)
    found = debezium.translate(asked.posted, settings)
    takes = []
    if settings.changes and found.changes.events:
        takes.append(Take(gate, found.changes, settings.changes))
    takes += [Take(gate, rows, topic) for topic, rows in found.rows.items()]
    return Read(_stored, tuple(takes))


def read_weblog(asked: Asked) -> Read:
    settings = asked.gate().definition.settings_as(weblogs.WebLogSettings)
    log = weblogs.WebLog(settings.format, settings.fields)
    return asked.take(log.read(asked.posted.body.split(b"\n")), answer_of)


def _stored(outcome: Outcome) -> Response:
    """For senders that take anything but success for a reason to send again: what did not fit is kept, as a letter."""
    rejected = [one.reason for one in outcome.rejected[:10]]
    return json_response({"accepted": outcome.accepted, "duplicates": outcome.duplicates, "rejected": rejected})


CLOUDEVENTS = Protocol(kind="cloudevents", read=read_cloudevents)
OTLP = Protocol(kind="otlp", read=read_otlp, errors=otlp_error)
PROMETHEUS = Protocol(kind="prometheus", read=read_prometheus, compressed=True, unfolds=True)
WEBHOOK = Protocol(kind="webhook", read=read_webhook)
DEBEZIUM = Protocol(kind="debezium", read=read_debezium)
WEBLOG = Protocol(kind="weblog", read=read_weblog)
