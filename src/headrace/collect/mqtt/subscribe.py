"""The collector `mqtt`: subscribes at a broker, and acknowledges a message when the log has it.

The session is persistent, so the broker keeps what comes while nobody is connected. A message that it sends again,
because the acknowledgement was lost, is known by its number and its contents: the last ones are in the cursor, so this
holds over kill -9, too. With QoS 2 nothing is said before the message is in the log; that is why this is not a
library's client, which says it has a message when it has it in memory.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import ssl
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from headrace.collect.base import Outcome, sent_objects
from headrace.collect.definitions import CollectorSettings
from headrace.collect.feed import Feed
from headrace.collect.gate import Arrival
from headrace.collect.mqtt import packets
from headrace.collect.mqtt.packets import Decoder, Malformed, Message, Packet
from headrace.collect.mqtt.topics import Pattern, read_pattern
from headrace.collect.poison import guarded
from headrace.collect.pull.base import MOST_BYTES, Backoff, Broken, source_name
from headrace.errors import ConfigError
from headrace.log.codecs.json_codec import Unreadable
from headrace.secrecy import Address, Secret, shown_address
from headrace.structs import ready
from headrace.toml_files import secret

REMEMBERED = 1024
"""Messages that are known again: more than a broker has on its way at once."""
BATCH = 512
ANSWER_S = 20.0


class MqttSettings(CollectorSettings, frozen=True, kw_only=True):
    url: Address = "mqtt://127.0.0.1:1883"
    """The broker: `mqtt://` or `mqtts://`, host and port."""
    topics: list[str] = []
    """Topics to subscribe to. `+` is any level, `#` any that follow; `{name}` is any level, and becomes the field
    `name`, `{name#}` the same for all that follow."""
    qos: int = 1
    """0: what is lost is lost; 1 and 2: kept by the broker until it is in the log."""
    client: str = ""
    """The client's name, under which the broker keeps its session; `headrace-` and the collector's by default."""
    user: str = ""
    """Who logs in."""
    password: Secret = ""
    """`env:NAME` is what the environment holds."""
    format: str = "json"
    """`json`: a payload is an event, or the field `value` of one; `text`: the field `message`; `bytes`: the value of a
    raw topic's record, whose key is the MQTT topic."""
    topic_field: str = ""
    """A field for the MQTT topic as it is."""
    keep_alive_seconds: int = 60
    """How long broker and collector may be silent before each takes the other for gone."""
    tls_ca: str = ""
    """File with the certificates that sign the broker's, relative to the project; the system's by default."""
    tls_cert: str = ""
    """File with our certificate, where the broker asks for one."""
    tls_key: str = ""
    """File with its private key."""

    def check(self) -> None:
        super().check()
        parts = urlsplit(self.url)
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
            raise ConfigError(
                f"`{shown_address(self.url)}` is no broker", hint='url = "mqtt://host:1883"', path=("url",)
            )
        if not self.topics:
            raise ConfigError("an MQTT collector needs `topics`", hint='topics = ["sensors/{device}/temperature"]')
        for text in self.topics:
            read_pattern(text)
        if self.qos not in (0, 1, 2):
            raise ConfigError(f"`qos` cannot be {self.qos}", hint="0, 1 or 2", path=("qos",))
        if self.format not in ("json", "text", "bytes"):
            raise ConfigError(f"there is no format `{self.format}`", hint="json, text or bytes", path=("format",))
        if not 1 <= self.keep_alive_seconds <= 65_535:
            raise ConfigError("`keep_alive_seconds` is 1 to 65535", path=("keep_alive_seconds",))


class _Cursor(msgspec.Struct, frozen=True):
    of: str
    """Broker and client: another session is another story."""
    filters: list[str] = []
    """What this session is subscribed to."""
    recent: list[tuple[int, str]] = []
    """Number and contents of the last messages that are in the log."""


@dataclass(slots=True)
class Session:
    """What outlives a connection."""

    of: str
    filters: list[str] = field(default_factory=list)
    recent: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def knows(self, message: Message) -> bool:
        return message.again and (message.number, _digest(message)) in self.recent

    def cursor(self) -> Any:
        return msgspec.to_builtins(_Cursor(self.of, self.filters, list(self.recent)))


async def start(feed: Feed) -> None:
    settings = feed.settings(MqttSettings)
    client = settings.client or f"headrace-{feed.gate.name}"
    session = Session(f"{source_name(settings.url)} {client}")
    known = await feed.cursor()
    if isinstance(known, dict) and known.get("of") in (session.of, f"{settings.url} {client}"):
        cursor = msgspec.convert(known, ready(_Cursor))
        session.filters = list(cursor.filters)
        session.recent.extend(cursor.recent)
    backoff = Backoff(feed)
    while True:
        try:
            await Connection(feed, settings, client, session, backoff).run()
        except (Broken, Malformed, OSError, EOFError, TimeoutError) as error:
            await backoff.pause(error if str(error) else Broken("the broker went away"))


class Connection:
    """From one CONNECT to the end of it."""

    def __init__(self, feed: Feed, settings: MqttSettings, client: str, session: Session, backoff: Backoff) -> None:
        self._feed, self._settings, self._client = feed, settings, client
        self._session, self._backoff = session, backoff
        self._patterns = [read_pattern(text) for text in settings.topics]
        self._decoder = Decoder(feed.project.settings.collect.max_event_bytes)
        self._arrived: asyncio.Queue[Message | Literal["subscribed"] | None] = asyncio.Queue(BATCH)
        self._waiting = 0
        """Bytes of the messages that are not written yet."""
        self._room = asyncio.Event()

    async def run(self) -> None:
        parts = urlsplit(self._settings.url)
        context = self._tls() if parts.scheme == "mqtts" else None
        opening = asyncio.open_connection(parts.hostname, parts.port or (8883 if context else 1883), ssl=context)
        async with asyncio.timeout(ANSWER_S):
            self._reader, self._writer = await opening
        tasks: list[asyncio.Task[None]] = []
        try:
            early = await self._log_in()
            self._feed.running(f"subscribed at {shown_address(self._settings.url)}: {', '.join(self._settings.topics)}")
            tasks = [asyncio.create_task(self._read(early)), asyncio.create_task(self._ping())]
            await self._store()
            await tasks[0]
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(OSError):
                self._writer.write(packets.GOODBYE)
                self._writer.close()

    # Beginning

    async def _log_in(self) -> list[Packet]:
        """The session as it should be; packets that came already."""
        settings = self._settings
        password = secret(settings.password) if settings.password else None
        user = settings.user or None
        self._writer.write(packets.connect(self._client, settings.keep_alive_seconds, user, password))
        [first, *early] = await self._receive()
        if first.type != packets.CONNACK or len(first.body) < 2:
            raise Malformed("the broker does not answer as one")
        if first.body[1]:
            raise Broken(f"the broker refuses: {packets.REFUSALS.get(first.body[1], f'code {first.body[1]}')}")
        if not first.body[0] & 1:
            # The broker knows nothing of us (any more): what it sends is new.
            self._session.filters = []
            self._session.recent.clear()
        await self._subscribe()
        return early

    async def _subscribe(self) -> None:
        """Only what changed: to subscribe again would bring all retained messages again."""
        wanted = [pattern.filter for pattern in self._patterns]
        new = [(one, self._settings.qos) for one in wanted if one not in self._session.filters]
        old = [one for one in self._session.filters if one not in wanted]
        if new:
            self._writer.write(packets.subscribe(1, new))
        if old:
            self._writer.write(packets.unsubscribe(2, old))
        self._pending = wanted if new or old else None

    def _subscribed(self, packet: Packet) -> None:
        refused = [number for number, code in enumerate(packet.body[2:]) if code == 0x80]
        if refused:
            raise Broken("the broker refuses a subscription: may the user read these topics?")
        if self._pending is not None:
            self._session.filters, self._pending = self._pending, None

    def _tls(self) -> ssl.SSLContext:
        settings, folder = self._settings, self._feed.project.folder
        try:
            context = ssl.create_default_context(cafile=str(folder / settings.tls_ca) if settings.tls_ca else None)
            if settings.tls_cert:
                context.load_cert_chain(folder / settings.tls_cert, folder / (settings.tls_key or settings.tls_cert))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the certificates cannot be used: {error}") from error
        return context

    # While it lasts

    async def _receive(self) -> list[Packet]:
        while True:
            silence = self._settings.keep_alive_seconds * 1.5
            async with asyncio.timeout(silence):
                data = await self._reader.read(256 * 1024)
            if not data:
                raise Broken("the broker closed the connection")
            found = self._decoder.feed(data)
            if found:
                return found

    async def _read(self, found: list[Packet]) -> None:
        try:
            while True:
                for packet in found:
                    await self._handle(packet)
                found = await self._receive()
        finally:
            # What came is stored first, unless that is what ended it.
            with contextlib.suppress(asyncio.QueueFull):
                self._arrived.put_nowait(None)

    async def _handle(self, packet: Packet) -> None:
        if packet.type == packets.PUBLISH:
            message = packets.read_message(packet)
            self._waiting += len(message.payload)
            await self._arrived.put(message)
            # They may be large: then it is not many that wait.
            while self._waiting >= MOST_BYTES:
                self._room.clear()
                await self._room.wait()
        elif packet.type == packets.PUBREL:
            self._writer.write(packets.answer(packets.PUBCOMP, packets.read_number(packet)))
        elif packet.type == packets.SUBACK:
            self._subscribed(packet)
            await self._arrived.put("subscribed")

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._settings.keep_alive_seconds / 2)
            self._writer.write(packets.PING)

    async def _store(self) -> None:
        """Write what arrived, then say so to the broker, until the connection ends."""
        while True:
            message = await self._arrived.get()
            batch: list[Message] = []
            subscribed, size = False, 0
            while message is not None:
                if isinstance(message, Message):
                    batch.append(message)
                    self._waiting -= len(message.payload)
                    size += len(message.payload)
                    self._room.set()
                else:
                    subscribed = True
                if self._arrived.empty() or len(batch) >= BATCH or size >= MOST_BYTES:
                    break
                message = self._arrived.get_nowait()
            if batch or subscribed:
                await self._write(batch)
            if message is None:
                return

    async def _write(self, batch: list[Message]) -> None:
        fresh = [message for message in batch if not self._session.knows(message)]
        if len(fresh) < len(batch):
            again = len(batch) - len(fresh)
            self._feed.counters.took(Outcome(0, duplicates=again), again, 0)
        self._session.recent.extend((one.number, _digest(one)) for one in fresh if one.qos)
        events = [self._event(message) for message in fresh]
        arrived = Arrival(
            size=sum(message.size for message in fresh),
            position=lambda row: fresh[row].topic.decode(errors="backslashreplace"),
        )
        sent = sent_objects(events, lambda row: fresh[row].payload)
        await self._feed.put(sent, arrived, self._session.cursor())
        for message in batch:
            if message.qos:
                kind = packets.PUBACK if message.qos == 1 else packets.PUBREC
                self._writer.write(packets.answer(kind, message.number))
        await self._writer.drain()
        self._backoff.reset()

    def _event(self, message: Message) -> Any:
        if message.size > len(message.payload):
            return Unreadable(f"is {message.size} bytes, more than the {len(message.payload)} that are taken")
        return guarded(lambda: read_event(message, self._settings, self._patterns))


def read_event(message: Message, settings: MqttSettings, patterns: list[Pattern]) -> Any:
    """A message as an event."""
    try:
        topic = message.topic.decode()
        if settings.format == "bytes":
            return {"key": _base64(message.topic), "value": _base64(message.payload)}
        if settings.format == "text":
            event: Any = {"message": message.payload.decode()}
        else:
            event = msgspec.json.decode(message.payload)
    except UnicodeDecodeError:
        return Unreadable("is not UTF-8")
    except (RecursionError, msgspec.DecodeError) as error:
        return Unreadable(f"is not valid JSON: {error}")
    if not isinstance(event, dict):
        event = {"value": event}
    fields = next((found for pattern in patterns if (found := pattern.fields(topic)) is not None), {})
    return event | fields | ({settings.topic_field: topic} if settings.topic_field else {})


def _digest(message: Message) -> str:
    digest = hashlib.blake2b(message.payload, digest_size=6)
    digest.update(message.topic)
    return digest.hexdigest()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
