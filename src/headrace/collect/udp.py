"""The collector `udp`: one-way events. Whoever sends is never told anything, so what is lost is counted."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from headrace.collect.base import Sent, sent_objects
from headrace.collect.feed import Feed
from headrace.collect.listening.datagrams import Datagrams
from headrace.collect.listening.drain import drain
from headrace.collect.listening.pool import Gathered, Pool
from headrace.collect.listening.settings import Admission, ListenSettings, read_addresses
from headrace.log.codecs.json_codec import Unreadable

Format = Literal["json", "text", "bytes"]


class UdpSettings(ListenSettings, frozen=True, kw_only=True):
    listen: tuple[str, ...] = ("udp://127.0.0.1:5515",)
    """Where to listen: `udp://`, host and port each."""
    format: Format = "json"
    """What a datagram is: `json` (an event, or an array of them), `text` (an event's field `message`) or `bytes` (a
    record of a raw topic, as it is)."""

    def check(self) -> None:
        super().check()
        read_addresses(self.listen, ("udp",), self.allow)


async def start(feed: Feed) -> None:
    settings = feed.settings(UdpSettings)
    await receive(feed, settings, settings.listen, lambda gathered: read_datagrams(gathered, settings.format))


async def receive(
    feed: Feed, settings: ListenSettings, listen: Sequence[str], read: Callable[[Sequence[Gathered]], Sent]
) -> None:
    """Take datagrams until cancelled."""
    await feed.cursor()
    pool, admits = Pool(settings.buffer_bytes), Admission(settings.allow)
    doors: list[Datagrams] = []
    try:
        for address in read_addresses(listen, ("udp",), settings.allow):
            # One by one: when the second cannot be opened, the first is closed.
            door = Datagrams(address, pool, feed.counters, admits)
            doors.append(door)
    except BaseException:
        for door in doors:
            door.close()
        raise
    feed.running("listening on " + ", ".join(listen))
    await drain(feed, pool, doors, read)


def read_datagrams(gathered: Sequence[Gathered], format: Format) -> Sent:
    events: list[Any] = []
    originals: list[bytes] = []
    for datagram in (message for one in gathered for message in one.messages):
        found = _read(datagram, format)
        events += found
        originals += [datagram] * len(found)
    return sent_objects(events, originals.__getitem__)


def _read(datagram: bytes, format: Format) -> list[Any]:
    if format == "bytes":
        return [{"value": base64.b64encode(datagram).decode()}]
    try:
        if format == "text":
            return [{"message": datagram.decode().rstrip("\r\n\0")}]
        value = msgspec.json.decode(datagram)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError) as error:
        return [Unreadable(f"is not {'UTF-8' if format == 'text' else 'valid JSON'}: {error}")]
    return value if isinstance(value, list) else [value]
