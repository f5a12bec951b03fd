"""One way for all protocols: the body read with suspicion, translated, handed to the collector's gate, answered.

A protocol is a function of what was asked. It says which events go to which collector, and what to answer when they
are taken; the rest is the same for all, and is here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from headrace.collect.base import Outcome, Sent
from headrace.collect.gate import Gate
from headrace.collect.http.bodies import ClientGone, decompress, read_body
from headrace.collect.split import Limits, limited
from headrace.collect.trackers.settings import TrackerSettings
from headrace.collect.translate import Posted
from headrace.errors import NotFound, NotRunning, Refused
from headrace.server import visits
from headrace.server.auth import basic_user
from headrace.server.errors import error_response
from headrace.server.events import INLINE_BYTES, arrival
from headrace.server.services import Intake, Services

Answer = Callable[[Outcome], Response]


@dataclass(frozen=True, slots=True)
class Take:
    """Events for a collector; `topic` where it is not the collector's one."""

    gate: Gate
    events: Sent
    topic: str | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """What a request turned out to be. No takes: there is nothing in it to keep."""

    answer: Answer
    takes: tuple[Take, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a protocol, its body read."""

    kind: str
    posted: Posted
    request: Request
    services: Intake
    collector: str | None = None
    """Whom the path names."""

    def gate(self, key: str | None = None) -> Gate:
        """The collector that is meant: by the path, by a key from the body or the headers, or the only one there is."""
        gate = self.services.gates.of(self.kind, key=key or self.key, name=self.collector)
        settings, origin = gate.settings, self.request.headers.get("origin")
        if not takes_strangers(gate):
            self._check_sender(gate)
        if origin and isinstance(settings, TrackerSettings) and settings.origins and origin not in settings.origins:
            raise Refused(
                f"pages of `{origin}` may not use this collector", hint=f"see {gate.definition.where}, origins"
            )
        return gate

    def require_collector(self) -> None:
        """`NotFound` where no collector speaks this protocol: then nothing of it is answered, questions of clients
        that bring no key included. Those are answered to whoever may send to one of them."""
        if self.collector is not None:
            self.gate()
            return
        gates = [gate for gate in self.services.gates.all() if gate.definition.kind.name == self.kind]
        if not any(map(takes_strangers, gates)):
            self.gate()

    def _check_sender(self, gate: Gate) -> None:
        """A collector without keys that does not say that it is public is for the server's own user."""
        try:
            self.services.auth.check(self.request, "write")
        except Refused as error:
            where = gate.definition.where
            hint = f"give {where} `keys`, or say that anybody may send to it:  public = true"
            raise type(error)(error.message, hint=hint) from None

    @property
    def key(self) -> str | None:
        """What the headers bring: `Bearer KEY`, or `Basic` with the key as the user, or else as the password."""
        scheme, _, given = self.request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return given.strip() or None
        return basic_user(given) if scheme.lower() == "basic" else self.request.headers.get("x-api-key")

    def take(self, events: Sent, answer: Answer, key: str | None = None) -> Read:
        """All of them for one collector."""
        return Read(answer, (Take(self.gate(key), events, None, key or self.key or ""),))

    @property
    def max_bytes(self) -> int:
        return self.services.body_limits.max_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    kind: str
    read: Callable[[Asked], Read]
    errors: Callable[[Exception, Request], Response] = field(default=lambda error, request: error_response(error))
    pages: bool = False
    """Whether pages of other sites send it, so that browsers ask for permission first."""
    compressed: bool = False
    """The body stays as it came: the protocol has its own idea of `Content-Encoding`."""
    unfolds: bool = False
    """It decompresses something by itself."""


async def serve(request: Request, services: Intake, protocol: Protocol, collector: str | None, path: str) -> Response:
    try:
        response = await _serve(request, services, protocol, collector, path)
    except ClientGone:
        raise
    except Exception as error:
        # What is missing may be about to be made; a client that is told 404 would throw its events away.
        starting = isinstance(error, NotFound) and isinstance(services, Services) and services.applying
        response = protocol.errors(NotRunning("the server is starting") if starting else error, request)
    if protocol.pages:
        response.headers.update(permission(request))
    return response


async def _serve(request: Request, services: Intake, protocol: Protocol, collector: str | None, path: str) -> Response:
    headers = dict(request.headers)
    with services.budget.share() as share:
        body = await read_body(request.receive, headers.get("content-length"), services.body_limits, share)
        posted = Posted(body, path, dict(request.query_params), headers, services.clock.now_ms())
        work = partial(_take, Asked(protocol.kind, posted, request, services, collector), protocol)
        inline = len(body) <= INLINE_BYTES and "content-encoding" not in headers
        read, futures = work() if inline else await services.run(work)
        outcomes = [await asyncio.wrap_future(future) for future in futures]
    for take, outcome in zip(read.takes, outcomes, strict=True):
        services.metrics.collected(take.topic or take.gate.topic, outcome)
    return read.answer(_together(outcomes))


def _take(asked: Asked, protocol: Protocol) -> tuple[Read, list[Future[Outcome]]]:
    posted, services = asked.posted, asked.services
    if not protocol.compressed:
        body = decompress(posted.body, posted.headers.get("content-encoding", ""), asked.max_bytes)
        asked = replace(asked, posted=replace(posted, body=body))
    read = protocol.read(asked)
    settings = services.project.settings.collect
    limits = Limits(settings.max_events, settings.max_event_bytes)
    # A body that the protocol itself unfolds says nothing about how large an event in it is.
    plain = asked.posted.body[:1] in (b"{", b"[") or not protocol.unfolds
    size = len(asked.posted.body) if plain else asked.max_bytes
    futures = []
    for take, share in zip(read.takes, _shares(len(asked.posted.body), read.takes), strict=True):
        limits.check(len(take.events.events))
        events = limited(take.events, size, limits)
        visit = visits.current(asked.request, services)
        # Where the collector has no keys, nobody has checked the one that is claimed: a new one each time names nobody.
        tenant = take.key if take.gate.settings.keys else ""
        arrived = arrival(asked.request, share, tenant, visit)
        futures.append(take.gate.take(events, arrived, topic=take.topic))
    return read, futures


def _shares(size: int, takes: tuple[Take, ...]) -> list[int]:
    """Of a body's bytes, by events: what goes to several topics came once."""
    counts = [len(take.events.events) for take in takes]
    ends = [size * count // max(1, sum(counts)) for count in itertools.accumulate(counts, initial=0)]
    return [end - start for start, end in itertools.pairwise(ends)]


def _together(outcomes: list[Outcome]) -> Outcome:
    """What became of a request's events, where they went to several topics."""
    if len(outcomes) == 1:
        return outcomes[0]
    return Outcome(
        sum(one.accepted for one in outcomes),
        sum(one.duplicates for one in outcomes),
        tuple(rejection for one in outcomes for rejection in one.rejected),
        shed=sum(one.shed for one in outcomes),
        buffered=any(one.buffered for one in outcomes),
    )


def takes_strangers(gate: Gate) -> bool:
    """Whether others than the server's own user may send to a collector: those with one of its keys, or anybody."""
    return bool(gate.settings.keys or gate.settings.public or not gate.definition.kind.keyed)


def permission(request: Request) -> dict[str, str]:
    """What a browser must read to let a page of another site send events here, with the cookies of this one."""
    origin = request.headers.get("origin")
    if origin is None:
        return {}
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-credentials": "true",
        "vary": "Origin",
    }


async def preflight(request: Request, services: Intake, kind: str | None) -> Response:
    """A browser's question whether a page may send what it is about to. `NotFound` where no collector takes events
    from strangers: then a page of another site may not even ask."""
    name = request.path_params.get("collector")
    gates = [gate for gate in services.gates.all() if gate.name == name or gate.definition.kind.name == kind]
    if not any(map(takes_strangers, gates)):
        raise NotFound(
            "no collector here takes events of other sites", hint="a collector's `keys` or `public` allow it"
        )
    headers = permission(request) | {
        "access-control-allow-methods": "POST, GET, OPTIONS",
        "access-control-allow-headers": request.headers.get("access-control-request-headers", "content-type")[:1000],
        "access-control-max-age": "86400",
    }
    sender = request.headers.get("webhook-request-origin")
    if sender and _is_webhook_of_cloudevents(request, services):
        # Before it delivers, a bus such as Event Grid asks whether it may: whoever made the collector has said so.
        headers |= {"webhook-allowed-origin": sender[:1000], "webhook-allowed-rate": "*"}
    return Response(status_code=204, headers=headers)


def _is_webhook_of_cloudevents(request: Request, services: Intake) -> bool:
    name = request.path_params.get("collector")
    return any(gate.name == name and gate.definition.kind.name == "cloudevents" for gate in services.gates.all())
