"""`/v1/socket`: publish and subscribe over one WebSocket, both ways.

Each message is a JSON object. A client says `subscribe`, `unsubscribe` or `publish`, each with an id of its choice; the
server answers with `subscribed`, `ack` or `error` and that id, and sends `records`. What a client does not take waits
in the log, not here: a slow one falls behind, and is told so when what comes next is no longer kept.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from headrace.access.rights import Resource, Role
from headrace.deliver.browse import Page, offsets_at, parse_position, position_text, read_after
from headrace.errors import Conflict, HeadraceError, NotFound, OffsetOutOfRange, Overloaded, Refused, UsageError
from headrace.log.codecs.json_encode import to_json
from headrace.log.subscription import Wanted, wanted
from headrace.server import pump
from headrace.server.auth import hide_names
from headrace.server.endpoint import Endpoint
from headrace.server.errors import error_body
from headrace.server.publishing import publish
from headrace.server.services import Services
from headrace.server.touched import by_handler
from headrace.server.websocket import GOING_AWAY, TOO_SLOW, close
from headrace.store.base import Position
from headrace.structs import ready

LOOK_S = 1.0
QUEUED = 16
"""Messages that wait for a client; those who make them wait for room."""
PAGE, PAGE_BYTES = 500, 1024 * 1024
MOST_SUBSCRIPTIONS, MOST_TOPICS, MOST_IN_FLIGHT = 32, 256, 256
Name = str


class Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"start": "from"}):
    """What a client says: one of the first three."""

    subscribe: Name | None = None
    unsubscribe: Name | None = None
    publish: Name | None = None
    topics: str | list[str] = []
    """Names and wildcards (`orders.*`)."""
    start: Literal["latest", "earliest"] = "latest"
    after: dict[str, str] = {}
    """By topic: where to continue, as `next` said."""
    topic: str = ""
    event: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    events: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    acks: Literal["0", "1", "all"] = "all"
    key: str | None = None
    """Gives event *i* the id `KEY/i`, as an `Idempotency-Key` does."""


_said = msgspec.json.Decoder(ready(Said))


async def not_a_socket(request: Request, services: Services) -> Response:
    raise UsageError("this is a WebSocket", hint="connect to ws://…/v1/socket; see docs/howto/publish-subscribe.md")


async def serve_socket(websocket: WebSocket, services: Services) -> None:
    await websocket.accept()
    with services.subscribers.client(websocket, "socket"):
        await Talk(websocket, services).run()


@dataclass(slots=True)
class Subscription:
    name: Name
    wanted: Wanted
    start: Literal["latest", "earliest"]
    after: dict[str, dict[int, int]]
    looking: asyncio.Task[None] | None = None
    reading: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def cancel(self) -> None:
        for task in (self.looking, *self.reading.values()):
            if task is not None:
                task.cancel()


class Talk:
    """One connection: a task that listens, one that sends, and one for each topic that is followed."""

    def __init__(self, websocket: WebSocket, services: Services) -> None:
        self._websocket, self._services = websocket, services
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUED)
        self._subscriptions: dict[Name, Subscription] = {}
        self._in_flight = asyncio.Semaphore(MOST_IN_FLIGHT)
        self._acks: set[asyncio.Task[None]] = set()
        self._sent: asyncio.Future[None] | None = None
        """What is being sent."""

    async def run(self) -> None:
        listening = asyncio.create_task(self._listen())
        sending = asyncio.create_task(self._send())
        stopping = asyncio.create_task(self._services.stopping.wait())
        tasks = (listening, sending, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._say_why(listening, sending)
        finally:
            for subscription in self._subscriptions.values():
                subscription.cancel()
            if self._sent is not None:
                self._sent.cancel()
            for task in (*tasks, *self._acks):
                task.cancel()
            await asyncio.gather(*tasks, *self._acks, return_exceptions=True)

    async def _say_why(self, listening: asyncio.Task[None], sending: asyncio.Task[None]) -> None:
        slow = sending.done() and isinstance(sending.exception(), TimeoutError)
        if slow:
            self._services.metrics.feed_cuts.labels("too slow").inc()
        if listening.done() and not slow:
            return  # the client has left
        # Nothing closes a connection on which somebody still listens.
        listening.cancel()
        if self._sent is not None and not await pump.taken_within(pump.CLOSE_S if slow else 1.0, self._sent):
            await pump.cut_off(self._websocket.scope, self._sent)
        reason = pump.too_slow() if slow else "the server is stopping"
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            if not slow:
                await self._websocket.send_text(to_json({"cut": reason}).decode())
            await close(self._websocket, TOO_SLOW if slow else GOING_AWAY, reason)

    async def _send(self) -> None:
        while True:
            try:
                async with asyncio.timeout(pump.ALIVE_S):
                    message = await self._queue.get()
            except TimeoutError:
                message = b'{"alive":true}'
            # Not cancelled when it takes too long: what was half sent could not be followed by anything.
            self._sent = asyncio.ensure_future(self._websocket.send_text(message.decode()))
            done, _ = await asyncio.wait([self._sent], timeout=pump.SEND_S)
            if not done:
                raise TimeoutError
            try:
                self._sent.result()
            except (WebSocketDisconnect, RuntimeError):
                return

    async def _tell(self, **message: Any) -> None:
        await self._queue.put(to_json(message))

    # Listening

    async def _listen(self) -> None:
        while True:
            received = await self._websocket.receive()
            if received["type"] == "websocket.disconnect":
                return
            text = received.get("text")
            body = text.encode() if text is not None else received.get("bytes") or b""
            await self._hear(body)

    async def _hear(self, body: bytes) -> None:
        name: Name | None = None
        try:
            if len(body) > self._services.body_limits.max_bytes:
                raise UsageError("the message is too large", hint="see [server] max_body_bytes")
            said = _said.decode(body)
            name = said.subscribe or said.unsubscribe or said.publish
            act = self._act(said)
            await act(said)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            await self._tell(error=error_body(UsageError(f"the message does not fit: {error}")), id=None)
        except Exception as error:
            await self._tell(error=error_body(hide_names(self._websocket, error)), id=name)

    def _act(self, said: Said) -> Callable[[Said], Awaitable[None]]:
        acts = {"subscribe": self._subscribe, "unsubscribe": self._unsubscribe, "publish": self._publish}
        given = [name for name in acts if getattr(said, name) is not None]
        if len(given) != 1:
            raise UsageError("a message says one of subscribe, unsubscribe and publish, with an id as its value")
        return acts[given[0]]

    def _check(self, role: Role, topics: Iterable[str]) -> None:
        found = [Resource("topic", topic) for topic in topics]
        try:
            self._services.auth.check(self._websocket, role, lambda _: found)
        except Refused as error:
            self._services.audit.note(self._websocket, error.status)
            raise

    # Subscribing

    async def _subscribe(self, said: Said) -> None:
        topics = wanted(said.topics)
        self._check("read", (*topics.names, *said.after))
        name = str(said.subscribe)
        if name in self._subscriptions:
            raise Conflict(f"there is a subscription `{name[:40]}` already", hint="unsubscribe it, or take another id")
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            raise Overloaded(f"a connection has {MOST_SUBSCRIPTIONS} subscriptions at most")
        after = {topic: parse_position(text, "after") for topic, text in said.after.items()}
        for topic in (*topics.names, *after):
            self._services.log.topic(topic)
        subscription = Subscription(name, topics, said.start, after)
        self._subscriptions[name] = subscription
        try:
            found = await self._services.run(self._places, subscription)
        except BaseException:
            del self._subscriptions[name]  # who is told that it failed may say the same again
            raise
        await self._tell(subscribed=name, at={topic: position_text(at) for topic, at in found.items()})
        self._follow(subscription, found)
        subscription.looking = asyncio.create_task(self._look(subscription))

    def _places(self, subscription: Subscription) -> dict[str, dict[int, int]]:
        """Where the topics that are not followed yet begin."""
        log = self._services.log
        names = (topic.name for topic in log.topics())
        allows = partial(self._services.auth.allows, self._websocket)
        found = subscription.wanted.among(name for name in names if allows(Resource("topic", name)))
        places: dict[str, dict[int, int]] = {}
        where: dict[str, Any] = {"from": subscription.start}
        for topic in sorted(found - set(subscription.reading))[:MOST_TOPICS]:
            start = offsets_at(log, topic, **where)
            places[topic] = start | subscription.after.get(topic, {})
        return places

    def _follow(self, subscription: Subscription, places: dict[str, dict[int, int]]) -> None:
        for topic, at in places.items():
            subscription.reading[topic] = asyncio.create_task(self._read(subscription, topic, at))

    async def _look(self, subscription: Subscription) -> None:
        """Topics made later are read from their beginning."""
        subscription.start = "earliest"
        while subscription.wanted.patterns:
            await asyncio.sleep(LOOK_S)
            # A log that is away for a moment is asked again.
            with contextlib.suppress(HeadraceError):
                self._follow(subscription, await self._services.run(self._places, subscription))

    async def _read(self, subscription: Subscription, topic: str, at: dict[int, int]) -> None:
        log, tails = self._services.log, self._services.delivery.tails
        try:
            while True:
                now = await tails.wait(topic, Position(0, at), pump.ALIVE_S)
                place = ("page", log.topic(topic).id, tuple(at.items()))
                if at == {number: end.end for number, end in enumerate(now.ends.get(topic, ()))}:
                    continue
                # Read once for all who are at the same place.
                page: Page = await tails.share(place, partial(read_after, log, topic, at, PAGE, PAGE_BYTES))
                if page.records:
                    await self._queue.put(_records(subscription.name, topic, page))
                if page.next == at:
                    tails.forget(place)  # the next who are here find what has come since
                at = page.next
        except NotFound:
            await self._cut(subscription, topic, "the topic is gone")
        except OffsetOutOfRange as error:
            await self._cut(subscription, topic, f"too slow: {error.message}")
        except Exception as error:
            await self._tell(error=error_body(error), id=subscription.name)

    async def _cut(self, subscription: Subscription, topic: str, reason: str) -> None:
        self._services.metrics.feed_cuts.labels(reason.partition(":")[0]).inc()
        await self._tell(cut=reason, subscription=subscription.name, topic=topic)

    async def _unsubscribe(self, said: Said) -> None:
        subscription = self._subscriptions.pop(str(said.unsubscribe), None)
        if subscription is None:
            raise NotFound(f"there is no subscription `{str(said.unsubscribe)[:40]}`")
        subscription.cancel()
        await self._tell(unsubscribed=subscription.name)

    # Publishing

    async def _publish(self, said: Said) -> None:
        """Handed over in the order they come; acknowledged each by itself."""
        self._check("write", [said.topic])
        given = said.event if said.event is not msgspec.UNSET else said.events
        if given is msgspec.UNSET or (said.event is not msgspec.UNSET and said.events is not msgspec.UNSET):
            raise UsageError("what is published is an `event`, or several `events`")
        body = bytes(given)
        with ExitStack() as held:
            # Until they are written, and no longer: not until a slow client has taken the answer.
            held.enter_context(self._services.budget.share()).take(len(body))
            await self._in_flight.acquire()
            try:
                publishing = publish(self._services, self._websocket, said.topic, body, said.acks, said.key)
                taking = asyncio.ensure_future(await publishing)
            except BaseException:
                self._in_flight.release()
                raise
            done = held.pop_all()
        taking.add_done_callback(lambda _: done.close())
        task = asyncio.create_task(self._acknowledge(str(said.publish), taking))
        self._acks.add(task)
        task.add_done_callback(self._acks.discard)

    async def _acknowledge(self, name: Name, taking: asyncio.Future[dict[str, Any]]) -> None:
        try:
            await self._tell(ack=name, **await taking)
        except Exception as error:
            await self._tell(error=error_body(error), id=name)
        finally:
            self._in_flight.release()


def _records(subscription: Name, topic: str, page: Page) -> bytes:
    """Records are in it as they were written once."""
    tail = to_json({"subscription": subscription, "topic": topic, "next": position_text(page.next)})
    return b'{"records":[' + b",".join(page.records) + b"]," + tail[1:]


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/socket",
        handler=not_a_socket,
        touches=by_handler,
        websocket=serve_socket,
        summary="Publish and subscribe over one WebSocket",
        answers={},
    ),
)
